"""Searches: what they find, what they refuse, that they are the same twice, and that they go on where they were cut."""

import json

import numpy as np
import pytest

from nxjax import nas
from nxjax.errors import ParameterError

PLACES = 6


@nas.Space
def code(choose):
    return tuple(choose(f"d{i}", range(6)) for i in range(PLACES))


def closeness(model, seed):
    """A smooth landscape with one top."""
    return -float(sum((d - (i * 5) % 6) ** 2 for i, d in enumerate(model)))


def test_evolution_and_the_estimator_beat_drawing_at_an_equal_budget():
    def tops(name, **options):
        runs = (nas.search(code, closeness, budget=120, strategy=name, seed=s, **options) for s in range(6))
        return np.array([r.best.fitness for r in runs])

    drawn, evolved = tops("random"), tops("evolution", population=16, tournament=5)
    assert evolved.mean() > drawn.mean() + 2 and (evolved > drawn).sum() >= 5, (evolved, drawn)
    pytest.importorskip("optuna")
    found = nas.search(code, closeness, budget=60, strategy="bayesian", seed=0)
    assert found.best.fitness > drawn.mean()


@pytest.mark.parametrize("strategy", ["random", "evolution", "bayesian", "exhaustive"])
def test_it_begins_with_what_was_made_by_hand(strategy, tmp_path):
    if strategy == "bayesian":
        pytest.importorskip("optuna")
    by_hand = {f"d{i}": (i * 5) % 6 if i else 1 for i in range(PLACES)}
    kept = {"budget": 9, "strategy": strategy, "start": [by_hand], "journal": tmp_path / "search.jsonl"}
    found = nas.search(code, closeness, **kept)
    assert found.trials[0].genes == by_hand and len(found.trained) == 9
    assert found.best.fitness >= found.trials[0].fitness == -1
    assert [t.genes for t in nas.search(code, None, **kept).trials] == [t.genes for t in found.trials]
    with pytest.raises(ParameterError, match="no gene"):
        nas.search(code, closeness, budget=1, start=[{"d0": 1}])


def test_all_of_a_small_space():
    small = nas.Space(lambda choose: choose("x", range(7)))
    found = nas.search(small, lambda x, seed: -((x - 4) ** 2), budget=100, strategy="exhaustive")
    assert found.exhausted and len(found.trials) == 7 and found.model() == 4
    drawn = nas.search(small, lambda x, seed: x, budget=100, strategy="random")
    assert drawn.exhausted and sorted(t.figures["accuracy"] for t in drawn.trials) == list(range(7))


def test_what_is_over_a_limit_is_never_trained():
    trained = []

    def evaluate(model, seed):
        trained.append(model)
        return float(sum(model))

    found = nas.search(code, evaluate, budget=30, costs=lambda m: {"sum": sum(m)}, limits={"sum": 15}, seed=2)
    assert len(trained) == len(set(trained)) == len(found.trained) == 30
    assert all(sum(m) <= 15 for m in trained) and found.best.fitness == 15
    refused = [t for t in found.trials if not t.trained]
    assert refused and all(t.figures["sum"] > 15 and "over 15" in t.why for t in refused)
    with pytest.raises(ParameterError, match="not a cost"):
        nas.search(code, evaluate, budget=1, costs=lambda m: {"sum": 1.0}, limits={"cycles": 1})
    impossible = nas.search(code, evaluate, budget=1, costs=lambda m: {"sum": 1.0}, limits={"sum": 0})
    with pytest.raises(ParameterError, match="no architecture was trained"):
        _ = impossible.best


def test_a_fitness_of_ones_own_and_several_figures():
    found = nas.search(
        code,
        lambda m, seed: {"top1": sum(m), "loss": 1.0},
        budget=40,
        main="top1",
        fitness=lambda f: nas.reward(f["top1"], f["price"], 20.0, -1.0),
        costs=lambda m: {"price": 1 + sum(m) ** 2},
    )
    t = found.best
    assert t.fitness == pytest.approx(t.figures["top1"] / (t.figures["price"] / 20))
    with pytest.raises(ParameterError, match="no figure 'accuracy'"):
        nas.search(code, lambda m, seed: {"top1": 1.0}, budget=1)
    with pytest.raises(ParameterError, match="numbers by name"):
        nas.search(code, lambda m, seed: "good", budget=1)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_search_that_was_cut_off_gives_what_it_would_have_given(tmp_path, workers):
    seeds = {}

    def evaluate(model, seed):
        assert seeds.setdefault(model, seed) == seed
        return closeness(model, seed)

    kept = {"budget": 24, "seed": 5, "population": 6, "tournament": 3, "workers": workers}
    whole = nas.search(code, evaluate, **kept)
    path = tmp_path / "deep" / "search.jsonl"
    calls = []

    def failing(model, seed):
        calls.append(model)
        if len(calls) > 13:
            raise KeyboardInterrupt
        return evaluate(model, seed)

    with pytest.raises(KeyboardInterrupt):
        nas.search(code, failing, journal=path, **kept)
    # The machine went down in the middle of a line.
    known = path.read_text().count("\n") - 1
    path.write_bytes(path.read_bytes() + b'{"key": "{\\"d0')
    again = []
    resumed = nas.search(code, lambda m, s: (again.append(m), evaluate(m, s))[1], journal=path, **kept)
    assert [(t.genes, t.fitness) for t in resumed.trials] == [(t.genes, t.fitness) for t in whole.trials]
    assert len(again) == 24 - known and 10 <= known <= 13
    json.loads(path.read_text().splitlines()[-1])
    with pytest.raises(ParameterError, match=r"of another search\n.*seed=5"):
        nas.search(code, evaluate, journal=path, **{**kept, "seed": 6})
    path.write_text("hello\n")
    with pytest.raises(ParameterError, match="not a journal"):
        nas.search(code, evaluate, journal=path, **kept)


def test_an_evaluation_that_fails():
    def fragile(model, seed):
        if model[0] == 0:
            raise ValueError("too thin")
        return float("nan") if model[0] == 1 else float(sum(model))

    with pytest.raises(ValueError, match="too thin"):
        nas.search(code, fragile, budget=60)
    found = nas.search(code, fragile, budget=60, on_error="skip", strategy="random")
    whys = {t.why for t in found.trials if not t.trained}
    assert whys == {"ValueError: too thin", "its fitness is not a number"}
    assert all(t.genes["d0"] > 1 for t in found.trained) and "refused or failed" in str(found)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 0}, "budget=0"),
        ({"budget": 3, "seed": "x"}, "a seed is an integer"),
        ({"budget": 3, "strategy": "annealing"}, "no such strategy"),
        ({"budget": 3, "population": 4}, "tournament"),
        ({"budget": 3, "strategy": "random", "population": 4}, "options of the strategy"),
        ({"budget": 3, "limits": {"cycles": 1}}, "without costs"),
    ],
)
def test_bad_searches(options, said):
    with pytest.raises(ParameterError, match=said):
        nas.search(code, closeness, **options)


def test_the_front_is_what_nothing_beats(tmp_path):
    rng = np.random.default_rng(0)
    table = {c: rng.uniform(size=2).round(1) for c in range(60)}
    space = nas.Space(lambda choose: choose("x", range(60)))
    found = nas.search(
        space, lambda x, s: table[x][0], budget=60, strategy="exhaustive", costs=lambda x: {"cost": table[x][1]}
    )
    front = found.front("cost")
    beaten = lambda a, b: b[1] <= a[1] and b[0] >= a[0] and tuple(b) != tuple(a)
    expected = {tuple(p) for p in table.values() if not any(beaten(p, q) for q in table.values())}
    assert {(t.figures["accuracy"], t.figures["cost"]) for t in front} == expected
    assert [t.figures["cost"] for t in front] == sorted(t.figures["cost"] for t in front)
    assert found.curve() == sorted(found.curve()) and len(found.curve()) == 60
    ax = found.plot("cost", marks={"by hand": (0.5, 0.5)})
    assert {"front", "by hand"} <= {t.get_text() for t in ax.get_legend().get_texts()}
    saved = json.loads(found.save(tmp_path / "found.json").read_text())
    assert len(saved["trials"]) == 60 and saved["trials"][3]["genes"] == {"x": 3}
    assert "60 architectures" in found._repr_html_()
    with pytest.raises(ParameterError, match="no such figure"):
        found.front("cycles")
