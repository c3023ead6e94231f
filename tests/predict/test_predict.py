"""Predictors find laws, say how good they are on what they have not seen, and are the same after they were kept."""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax import predict
from nxjax.errors import InvalidFileError, MissingExtraError, ParameterError
from nxjax.predict import models
from nxjax.predict.features import features
from nxjax.predict.models import Boosted, LinearModel
from nxjax.predict.predictor import Predictor
from nxjax.predict.published import SOURCE
from nxjax.predict.samples import Sample, _measured
from nxjax.predict.scores import score, spearman


@pytest.fixture(autouse=True)
def fewer_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models._TREES, "n_estimators", 40)


def samples(count: int, law: Any, seed: int = 0) -> list[Sample]:
    random = np.random.default_rng(seed)
    found: list[Sample] = []
    for i in range(count):
        macs, nbytes = 10 ** random.uniform(4, 8, 2)
        found.append(Sample(f"{i}", {"runs": 1.0, "macs": macs, "bytes": nbytes}, None, law(macs, nbytes), "measured"))
    return found


def added(macs: float, nbytes: float) -> float:
    return 2e-6 + 3e-12 * macs + 1e-10 * nbytes


def roofed(macs: float, nbytes: float) -> float:
    return 2e-6 + max(3e-11 * macs, 1e-11 * nbytes)


def test_a_law_is_found_and_kept_without_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = predict.fit("cpu", samples(50, added))
    assert predictor.chosen == "linear"
    assert predictor.scores["linear"].error < 1e-6 and predictor.scores["linear"].within == 1
    found = predictor.of({"runs": 1.0, "macs": 5e6, "bytes": 1e5})
    assert found.seconds == pytest.approx(added(5e6, 1e5), rel=1e-6)
    assert found.low <= found.seconds <= found.high and found.figure.basis == "model" and not found.beyond
    far = predictor.of({"runs": 1.0, "macs": 1e10, "bytes": 1e5, "bytes of sort": 8.0})
    assert far.seconds == pytest.approx(added(1e10, 1e5), rel=1e-6)
    assert far.beyond == ("macs", "bytes of sort") and "beyond what was learned from: macs" in str(far)
    predictor.save(tmp_path / "cpu.json")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    again = predict.load(tmp_path / "cpu.json")
    assert again.of({"macs": 7e7, "bytes": 1e4}) == predictor.of({"macs": 7e7, "bytes": 1e4})
    assert again.report == predictor.report and list(tmp_path.iterdir()) == [tmp_path / "cpu.json"]
    with pytest.raises(MissingExtraError, match="scikit-learn"):
        predict.fit("cpu", samples(8, added))
    assert "on another machine" in replace(again, machine="else").of({"macs": 1e5}).basis


def test_trees_correct_what_no_sum_can_say_and_are_those_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.ensemble import GradientBoostingRegressor

    known = samples(200, roofed)
    predictor = predict.fit("cpu", known)
    assert predictor.chosen == "boosted"
    assert predictor.scores["boosted"].error < 0.8 * predictor.scores["linear"].error
    assert predictor.scores["boosted"].rank > 0.98
    new = samples(100, roofed, seed=1)
    found = [predictor.of(s.features) for s in new]
    assert np.mean([p.low <= s.seconds <= p.high for p, s in zip(found, new, strict=True)]) > 0.8
    predictor.save(tmp_path / "p.json")
    again = predict.load(tmp_path / "p.json")
    assert [again.of(s.features) for s in new] == found
    # Trees grow no further than they have seen: the line goes on.
    assert predictor.of({"runs": 1.0, "macs": 1e10}).basis.startswith("linear")
    x = np.stack([[*s.features.values(), 0.0] for s in known])
    t = np.array([s.seconds for s in known])
    base, ours = LinearModel.fit(x, t), Boosted.fit(x, t)
    seen = np.concatenate([np.log1p(x[:, :-1]), np.log(base(x))[:, None]], 1).astype(np.float32)
    theirs = GradientBoostingRegressor(random_state=0, **models._TREES).fit(seen, np.log(t / base(x)))
    np.testing.assert_allclose(ours(x), base(x) * np.exp(theirs.predict(seen)), rtol=1e-9)


def test_scores_are_of_what_was_held_out() -> None:
    """Times that follow from nothing cannot be predicted, though trees learn them by heart."""
    random = np.random.default_rng(3)
    noise = samples(60, lambda macs, nbytes: float(np.exp(random.normal())))
    predictor = predict.fit("cpu", noise)
    x = np.array([[s.features["bytes"], s.features["macs"], 1.0, 0.0] for s in noise])
    t = np.array([s.seconds for s in noise])
    assert score(t, Boosted.fit(x, t)(x)).error < 0.7 * predictor.scores["boosted"].error
    assert abs(predictor.scores["boosted"].rank) < 0.4
    assert spearman(np.array([1.0, 5.0, 2.0]), np.array([10.0, 30.0, 20.0])) == 1
    assert np.isnan(spearman(np.ones(3), np.arange(3.0)))


def test_the_edge_tpu_by_its_published_table() -> None:
    predictor = predict.fit("edgetpu", predict.edge_tpu(), basis=SOURCE)
    assert set(predictor.scores) == {"scaled", "linear"}
    best = predictor.scores[predictor.chosen]
    assert best.error < 0.2 and best.within > 0.7 and best.rank > 0.95 and best.count == 11
    assert "published" in predictor.report


def test_vela_is_learned() -> None:
    pytest.importorskip("ethosu")
    known = predict.gather("ethos-u55", predict.programs(6))
    assert {s.basis for s in known} == {"vendor-estimate"}
    predictor = predict.fit("ethos-u55", known)
    assert max(s.rank for s in predictor.scores.values()) > 0.8
    name, fun, args = next(predict.programs(1))
    found = predictor(fun)(*args)
    assert found.modelled is not None and found.modelled > 0
    assert found.low < next(s.seconds for s in known if s.name == name) < found.high


def test_this_machine_is_measured_and_graphs_are_counted() -> None:
    known = predict.gather("cpu", predict.programs(2))
    assert all(s.basis == "measured" and 0 < s.seconds < 1 and s.modelled for s in known)
    w = np.ones((3, 3, 4, 8), np.float32)
    conv = lambda x: nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = nx.ones((1, 6, 6, 4))
    found, modelled = predict.features("ethos-u55", conv)(x)
    assert found["macs of conv"] == 6 * 6 * 8 * 9 * 4
    assert found["filled macs of conv"] == 6 * 6 * 16 * 9 * 16
    assert found["bytes of weights"] >= 288 and found["bytes of inputs and results"] == 6 * 6 * 12
    assert modelled is not None
    floats, roof = predict.features("tpu-v5e", conv)(x)
    assert floats["filled macs of conv"] == 6 * 6 * 128 * 9 * 128
    assert floats["bytes of inputs and results"] == 4 * 6 * 6 * 12 and roof is not None
    assert predict.features("cpu", conv)(x)[0]["macs of conv"] >= 6 * 6 * 8 * 9 * 4 / 2


def test_wrong_use_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="at least 6"):
        predict.fit("cpu", samples(3, added))
    with pytest.raises(ParameterError, match="without a positive time"):
        predict.fit("cpu", [replace(s, seconds=0.0) for s in samples(8, added)])
    with pytest.raises(ParameterError, match="no time to learn from"):
        predict.gather("edgetpu", predict.programs(1))
    with pytest.raises(ParameterError, match="no such target"):
        predict.fit("no chip", count=6)
    modelled = predict.fit("cpu", [replace(s, modelled=s.seconds / 2) for s in samples(8, added)])
    assert modelled.chosen == "scaled"
    with pytest.raises(ParameterError, match="modelled"):
        modelled.of({"macs": 1.0})
    path = tmp_path / "p.json"
    predict.fit("cpu", samples(45, roofed)).save(path)
    whole = json.loads(path.read_text())
    endless = json.loads(path.read_text())
    endless["models"]["boosted"]["trees"][0]["left"][0] = 0
    large = {**whole, "most": [10**400, *whole["most"][1:]]}
    others = [{**whole, "format": "x"}, {**whole, "names": ["a"]}, {**whole, "chosen": "x"}]
    for broken in ({}, [], *others, endless, large):
        path.write_text(json.dumps(broken))
        with pytest.raises(InvalidFileError, match=r"predict\.load"):
            predict.load(path)
    assert isinstance(modelled, Predictor)


def test_a_loop_of_unknown_length_has_no_time() -> None:
    x = nx.ones((8, 8))
    grown = lambda x: nx.lax.while_loop(lambda v: v.sum() < 9, lambda v: v @ v, x)
    with pytest.raises(ParameterError, match="unknown: loop"):
        features("cpu", grown)(x)
    assert nx.predict.gather("cpu", [("grown", grown, (x,))]) == []
    turns = lambda n: lambda x: nx.lax.fori_loop(0, n, lambda i, v: v @ v, x)
    ten, one = (features("cpu", turns(n))(x)[0]["macs of dense"] for n in (10, 1))
    assert ten == 10 * one > 0


def test_what_else_the_machine_does_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits for others, as on a busy machine, takes no time of the processor."""
    waited = 0.05

    def slow(x: Any) -> Any:
        time.sleep(waited)
        return x

    monkeypatch.setattr("nxjax.predict.samples.jit", lambda fun: slow)
    seconds, basis = _measured(lambda x: x, (nx.ones(10),))
    assert basis == "measured" and seconds < waited / 5


def test_the_page_has_the_figures_of_its_record() -> None:
    """`docs/predictions.json` is a copy of what ``python -m benchmarks predictions`` has kept."""
    docs = Path(__file__).parents[2] / "docs"
    record, page = json.loads((docs / "predictions.json").read_text()), (docs / "prediction.md").read_text()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    errors, times = ({f["name"]: f for f in record["figures"] if f["unit"] == unit} for unit in ("% error", "us"))
    target, count, found = "", "", set[str]()
    for row in (c for c in cells if len(c) == 7 and c[3].endswith("%")):
        target, count = row[0].split("`")[1] if row[0] else target, row[1] or count
        kind = row[2].removesuffix(" roofline")
        name = next(n for n in errors if n.removesuffix(" *") == f"{target}, {count} networks: {kind}")
        error, within, rank, band = errors[name]["ours"], *re.findall(r"[\d.]+(?=%|,|$)", errors[name]["note"])[:3]
        assert row[3:] == [f"{error:.0f} %", f"{within} %", rank, band], name
        found.add(name)
    # The model that is used is shown of each target, and what it is compared with.
    assert found >= {n for n in errors if n.endswith(("*", "scaled"))}
    for row in (c for c in cells if len(c) == 3 and c[1].endswith(" ms")):
        model, on = row[0].split(", `")
        names = {"keyword spotter": "ds_cnn", "MobileNetV2": "mobilenet_v2", "ResNet-18": "resnet18"}
        f = times.pop(f"{on.strip('`')}, {names[model.partition(' (')[0]]}")
        assert [float(c.split()[0]) for c in row[1:]] == [float(f"{f[k] / 1000:.3g}") for k in ("ours", "peer")], row
    assert not times
