"""Calibration: `nx.calibrate` as a transform, one compiled pass over any iterable, and what is said of bad data."""

import io
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.display import progress
from nxjax.errors import MissingExtraError, ParameterError
from nxjax.quant import calibration
from nxjax.quant.scheme import Layered, preset, without

R = np.random.default_rng(0)
P = {"w": R.standard_normal((4, 6)).astype(np.float32), "b": R.standard_normal(6).astype(np.float32)}
X = R.standard_normal((5, 4)).astype(np.float32)


def f(p: Any, x: Any) -> Any:
    return nx.nn.relu(x @ p["w"] + p["b"])


def batches(n: int = 3) -> list[Any]:
    r = np.random.default_rng(1)
    return [(P, (i + 1) * r.standard_normal((5, 4)).astype(np.float32)) for i in range(n)]


def numbers(ranges: Any) -> dict[str, tuple[float, float]]:
    return {k: (float(a), float(b)) for k, (a, b) in ranges.items()}


# --- the transform ---


def test_it_gives_the_result_and_the_ranges():
    y, ranges = nx.calibrate(f)(P, X)
    np.testing.assert_array_equal(y, f(P, X))
    assert all(v.dtype == np.float32 and v.shape == () for pair in ranges.values() for v in pair)
    y = np.asarray(y)
    assert numbers(ranges) == {"in_2": (X.min(), X.max()), "relu_0": (y.min(), y.max())}


def test_it_is_a_transform():
    c = nx.calibrate(f)
    _, wanted = c(P, X)
    _, jitted = nx.jit(c)(P, X)
    assert jitted.keys() == wanted.keys()
    for k, v in numbers(jitted).items():
        np.testing.assert_allclose(v, numbers(wanted)[k], 1e-6)
    xs = np.stack([x for _, x in batches()])
    _, many = nx.vmap(c, in_axes=(None, 0))(P, xs)
    _, scanned = lax.scan(lambda _, x: (0, c(P, x)[1]), 0, xs)
    for i, x in enumerate(xs):
        for k, v in numbers(c(P, x)[1]).items():
            for found in (many, scanned):
                np.testing.assert_allclose([found[k][0][i], found[k][1][i]], v, 1e-6)
    params = nx.tree.map(nx.asarray, P)
    g = nx.grad(lambda p: c(p, X)[0].sum())(params)
    np.testing.assert_allclose(g["w"], nx.grad(lambda p: f(p, X).sum())(params)["w"], 1e-6)
    # Statistics have no derivative.
    g = nx.grad(lambda p: sum(a + b for a, b in c(p, X)[1].values()))(params)
    assert not np.asarray(g["w"]).any()


def test_its_ranges_serve_quantize():
    _, ranges = nx.calibrate(f)(P, X)
    q = nx.quantize(f, ranges=ranges)
    assert q.ranges == numbers(ranges) and all(type(v) is float for pair in q.ranges.values() for v in pair)
    np.testing.assert_array_equal(q(P, X), nx.quantize(f, ranges=q.ranges)(P, X))


def test_its_loss_can_hold_ranges_of_a_policy():
    policy = lambda op, scope, types: "int16x8" if op == "dot_general" else None
    _, ranges = nx.calibrate(f, policy)(P, X)
    assert list(ranges) == ["in_2", "relu_0"]
    _, ranges = nx.calibrate(f, "int8-weights")(P, X)
    assert not ranges


# --- the pass over the data ---


def test_ranges_are_merged_over_batches():
    data = batches()
    found = nx.quantize(f, "int8", calibrate=data).ranges
    each = [nx.quantize(f, "int8", calibrate=[b]).ranges for b in data]
    assert found == {k: (min(r[k][0] for r in each), max(r[k][1] for r in each)) for k in found}


def test_any_iterable_is_taken_once():
    drawn: list[int] = []

    def generator() -> Iterator[Any]:
        for i, b in enumerate(batches()):
            drawn.append(i)
            yield b

    wanted = nx.quantize(f, "int8", calibrate=batches(), observer="mse").ranges
    assert nx.quantize(f, "int8", calibrate=generator(), observer="mse").ranges == wanted
    assert drawn == [0, 1, 2]

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return iter(batches())

    assert nx.quantize(f, "int8", calibrate=Loader(), observer="mse").ranges == wanted


def test_batches_that_are_no_tuples_are_the_only_argument():
    w = P["w"]
    xs = [x for _, x in batches()]
    found = nx.quantize(lambda x: x @ w, calibrate=xs).ranges
    assert found["in_0"] == (min(x.min() for x in xs), max(x.max() for x in xs))
    tree = nx.quantize(lambda p: jnp.sin(p["x"]) @ w, calibrate=[{"x": x} for x in xs], params=())
    assert tree.ranges["in_0"] == found["in_0"]


def test_batches_of_any_size():
    sizes = (1, 7, 3, 0)
    data = [(P, R.standard_normal((n, 4)).astype(np.float32)) for n in sizes]
    for observer in ("minmax", "moving-average", "percentile", "entropy", "mse"):
        found = nx.quantize(f, "int8", calibrate=data, observer=observer).ranges
        assert np.isfinite(list(found.values())).all()
        q = nx.quantize(f, ranges=found)
        assert [q(P, x).shape for _, x in data] == [(n, 6) for n in sizes]


def test_compiled_once_per_shape():
    traced: list[int] = []

    def counted(p: Any, x: Any) -> Any:
        traced.append(0)
        return f(p, x)

    nx.quantize(counted, "int8", calibrate=batches(10))
    # For the ranges, and for the results: they are good enough, so that nothing further is tried.
    assert len(traced) == 2


def test_branches_taken_late_count():
    """Also for observers that average: a batch in which a value is not computed says nothing about it."""
    g = lambda p, x: lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ p["w"]), lambda x: x @ p["w"] * 2, x)
    data = [(P, s * np.abs(X)) for s in (1, -1, 1, -2)]
    for observer in ("minmax", "moving-average", "percentile"):
        found = nx.quantize(g, "int8", calibrate=data, observer=observer).ranges
        assert np.isfinite(list(found.values())).all()
    average = nx.quantize(g, "int8", calibrate=data, observer="moving-average").ranges
    sorted_by_branch = [data[i] for i in (0, 2, 1, 3)]
    again = nx.quantize(g, "int8", calibrate=sorted_by_branch, observer="moving-average").ranges
    inner = [k for k in average if k.startswith("cond_0/")]
    assert len(inner) >= 4 and all(average[k] == again[k] for k in inner)


# --- progress ---


def test_progress_bar(monkeypatch: pytest.MonkeyPatch):
    def printed(progress: bool | None, tty: bool) -> str:
        stream = io.StringIO()
        stream.isatty = lambda: tty  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stderr", stream)
        nx.quantize(f, "int8", calibrate=iter(batches()), observer="mse", progress=progress)
        return stream.getvalue()

    assert "calibrating: 3batch" in printed(True, False) and "histograms: 100%" in printed(True, False)
    assert "calibrating" in printed(None, True)
    # Only a running kernel is a notebook, not its packages.
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert printed(None, False) == "" and printed(False, True) == ""
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert "calibrating" in printed(None, False)


def test_progress_without_its_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        nx.quantize(f, "int8", calibrate=batches(), progress=True)
    monkeypatch.setattr(progress, "interactive", lambda: True)
    assert nx.quantize(f, "int8", calibrate=batches()).ranges


# --- bad data ---


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_number_in_any_batch_is_named(bad: float, place: int):
    data = [(p, x.copy()) for p, x in batches()]
    data[place][1][2, 3] = bad
    for observer in ("minmax", "moving-average", "percentile"):
        with pytest.raises(ParameterError, match=rf"the range of in_2 is not finite[^$]*in batch {place + 1}"):
            nx.quantize(f, "int8", calibrate=data, observer=observer)


def test_bad_weights_are_named():
    with pytest.raises(ParameterError, match="relu_0 is not finite"):
        nx.quantize(f, "int8", calibrate=[({**P, "w": P["w"] * np.nan}, X)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no batches"),
        (iter(()), "no batches"),
        (7, "an iterable of argument tuples"),
        ((P, X), "does not fit f"),
        ([[P, X]], r"tuple\(batch\) if a loader gives lists"),
        ([(P, X, X)], "does not fit f"),
        ([(P, X), (P,)], "does not fit f"),
        ([(P, X[:0])], "never computed in_2"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused(data: Any, said: str):
    with pytest.raises(ParameterError, match=said):
        nx.quantize(f, "int8", calibrate=data)


def branches(p, x, far):
    return lax.cond(far, lambda x: x @ p["w"], lambda x: jnp.tanh(x @ p["w"]), x)


def test_branches_never_taken_are_named_and_stay_float():
    with pytest.warns(UserWarning, match=r"takes cond_0/1 \(.*test_calibration.py"):
        q = nx.quantize(branches, calibrate=[(P, X, False)])
    assert np.array_equal(q(P, X, True), branches(P, X, True))
    y = branches(P, X, False)
    assert not np.array_equal(q(P, X, False), y)
    np.testing.assert_allclose(q(P, X, False), y, atol=0.05)


@pytest.mark.parametrize("policy", ["auto", "int16x8"])
def test_so_they_do_under_other_policies(policy: str):
    with pytest.warns(UserWarning, match="takes cond_0/1"):
        q = nx.quantize(branches, policy, calibrate=[(P, X, False)])
    assert np.array_equal(q(P, X, True), branches(P, X, True))


def test_a_body_of_a_loop_that_no_batch_enters():
    step = lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"].T
    g = lambda p, x: lax.while_loop(lambda x: x.sum() < -1e6, lambda x: step(p, x), step(p, x))
    with pytest.warns(UserWarning, match="takes while_0"):
        q = nx.quantize(g, calibrate=[(P, X)])
    np.testing.assert_allclose(q(P, X), g(P, X), atol=0.2)


def test_nothing_is_quantized_where_no_batch_goes_anywhere():
    g = lambda p, x, far: lax.cond(far, lambda x: x @ p["w"], lambda x: jnp.zeros((5, 6)), x)
    with pytest.raises(ParameterError, match=r"calibration never computed cond_0/1"):
        nx.quantize(g, calibrate=[(P, X, False)])


def test_a_policy_keeps_its_other_exceptions():
    policy = Layered(preset("int8"), {"cond_0/1/dot_general_0": "int16x8", "cond_0/0/tanh_0": None})
    found = without(policy, ["cond_0/1"])
    assert found.exceptions == {"cond_0/0/tanh_0": None, "cond_0/1": None}
    assert found.of_layer("cond_0/1/dot_general_0", "dot_general", "", ()) is None
    assert found.of_layer("cond_0/10", "dot_general", "", ()) == preset("int8")


def test_run_gives_ranges_and_their_number():
    found = calibration.run(f, preset("int8"), batches(4), "minmax", None, False)
    assert found.batches == 4 and list(found.ranges) == ["in_2", "relu_0"]


def test_a_list_is_the_only_argument():
    """A function that takes one gets it; another's error says that it was one."""
    x = jnp.ones((2, 3))
    assert nx.quantize(lambda xs: xs[0] * 2.0, calibrate=[[x]], params=()).ranges
    for batch in ([x], [[1.0, 2.0]]):
        with pytest.raises(nx.errors.ParameterError, match="a list as its only argument") as told:
            nx.quantize(lambda x: x * 2.0, calibrate=[batch])
        assert "tuple(batch)" in str(told.value)
    with pytest.raises(TypeError):
        nx.quantize(lambda x: x * 2.0, calibrate=[{"x": x}])


# --- data of other functions ---


def normed(p: Any, x: Any) -> Any:
    return nx.nn.layer_norm(x, p["s"], p["o"]) @ p["v"] + p["b"]


NORMED = {"s": np.ones(4, np.float32), "o": np.zeros(4, np.float32), "v": P["w"], "b": P["b"]}
READERS = {
    "smooth": nx.quant.smooth,
    "smoothed": nx.quant.smoothed,
    "gptq": nx.quant.gptq,
    "adaround": lambda f, data: nx.quant.adaround(f, data, steps=1),
    "correct_bias": nx.quant.correct_bias,
    "sensitivity": nx.quant.sensitivity,
    "mixed_precision": nx.quant.mixed_precision,
    "compare": lambda f, data: nx.quant.compare(f, nx.quantize(normed, "int8-weights"), data),
}


@pytest.mark.parametrize("name", READERS)
def test_all_that_read_data_say_what_is_wrong_with_it(name: str):
    read = READERS[name]
    with pytest.raises(ParameterError, match=f"{name}: needs a function"):
        read(3, [(NORMED, X)])
    for data, said in (
        (None, "data"),
        ([], "no data"),
        ((NORMED, X), "a batch of data does not fit normed"),
    ):
        with pytest.raises(ParameterError, match=f"{name}: {said}"):
            read(normed, data)
    if name != "compare":
        nan = X.copy()
        nan[1, 2] = np.nan
        for batch in ((NORMED, nan), (NORMED | {"v": np.full_like(P["w"], np.nan)}, X)):
            with pytest.raises(ParameterError, match=r"not finite(.|\n)*batch 1, in which args"):
                read(normed, [batch])


@pytest.mark.parametrize("name", ["smooth", "smoothed"])
def test_a_share_that_is_no_number(name: str):
    with pytest.raises(ParameterError, match=name):
        getattr(nx.quant, name)(normed, [(NORMED, X)], "half")


def test_batches_without_elements_smooth_nothing():
    args = NORMED, X
    both = nx.quant.smoothed(normed, [(NORMED, X[:0]), args]), nx.quant.smoothed(normed, [args])
    np.testing.assert_array_equal(*(g.factors["dot_general_0"] for g in both))


def test_branches_never_taken_are_in_no_ranking():
    g = lambda p, x: lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ p["w"]), lambda x: x @ p["w"], x)
    with pytest.warns(UserWarning, match="no batch of calibration takes cond_0/0"):
        q = nx.quant.mixed_precision(g, [(P, abs(X))], budget=1.0, observer="minmax")
    assert list(q.policy.exceptions) == ["cond_0/1/dot_general_0", "cond_0/0"]
    np.testing.assert_allclose(q(P, -abs(X)), g(P, -abs(X)), rtol=1e-5)


@pytest.mark.parametrize("data", [{"x": X}, "data", 3])
def test_a_tree_or_a_text_is_no_list_of_batches(data: Any):
    with pytest.raises(ParameterError, match="iterable of argument tuples"):
        nx.quantize(lambda x: jnp.tanh(x), "int8", calibrate=data)
