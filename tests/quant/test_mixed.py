"""Sensitivity and mixed precision: the layer that is bad is found, and kept wide within the budget."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax, nn
from nxjax.errors import ParameterError
from nxjax.quant import mixed_precision, sensitivity

R = np.random.default_rng(0)


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


# One weight of the middle layer, of an input that is always 0, takes the whole range for itself.
P = {"a": normal(16, 32, scale=0.3), "bad": normal(32, 16, scale=0.1), "c": normal(16, 8, scale=0.3)}
P["bad"][0, 0] = 30
P["a"][:, 0] = 0
DATA = [(P, normal(64, 16)) for _ in range(2)]
BAD = "dot_general_1"
# One scale for all of a layer's weights, else nothing is bad about it.
SHARED = nx.quant.Scheme(dense_per_channel=False)


def f(p: Any, x: Any) -> Any:
    y = nn.relu(x @ p["a"])
    y = nn.relu(y @ p["bad"])
    return y @ p["c"]


def sqnr(q: Any) -> float:
    y = np.concatenate([np.asarray(f(*b), np.float64) for b in DATA])
    z = np.concatenate([np.asarray(q(*b), np.float64) for b in DATA])
    return float(10 * np.log10((y**2).sum() / ((z - y) ** 2).sum()))


def narrow(policy: Any = SHARED) -> Any:
    return nx.quantize(f, policy, calibrate=DATA)


@pytest.mark.parametrize("policy", ["int8", "int4-weights", "dynamic-int8"])
def test_the_bad_layer_comes_first(policy: str):
    scheme = nx.quant.PRESETS[policy]
    scheme = nx.quant.Scheme(scheme.activations, scheme.weights, scheme.dynamic, dense_per_channel=False)
    ranking = sensitivity(f, DATA, scheme)
    assert ranking[0].name == BAD and len(ranking) == 3
    assert [s.sqnr for s in ranking] == sorted(s.sqnr for s in ranking)
    assert ranking[0].sqnr < ranking[1].sqnr - 6


def test_shares_are_of_all_products():
    shares = {s.name: s.share for s in sensitivity(f, DATA)}
    macs = {"dot_general_0": 16 * 32, BAD: 32 * 16, "dot_general_2": 16 * 8}
    assert shares == {k: n / sum(macs.values()) for k, n in macs.items()}


def test_products_in_loops_count_as_often_as_they_run():
    p = {"w": normal(8, 8, scale=0.3), "v": normal(8, 8)}
    g = lambda p, x: lax.scan(lambda c, _: (nn.relu(c @ p["w"]), None), x, None, length=4)[0] @ p["v"]
    shares = {s.name: s.share for s in sensitivity(g, [(p, normal(3, 8))])}
    assert shares == {"scan_0/dot_general_0": 0.8, "dot_general_0": 0.2}


@pytest.mark.parametrize("budget", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_budget_is_kept(budget: float):
    share = {s.name: s.share for s in sensitivity(f, DATA, SHARED)}
    q = mixed_precision(f, DATA, budget, policy=SHARED)
    wide = q.policy.exceptions
    assert sum(share[name] for name in wide) <= budget + 1e-9
    assert (BAD in wide) == (budget >= share[BAD])
    if budget == 1.0:
        assert set(wide) == set(share)
    kinds = {p.dtype.name for e in nx.make_jaxpr(q)(*DATA[0]).equations for p in [e.params.get("y_grid")] if p}
    assert ("int16" in kinds) == bool(wide)


def test_the_worst_layer_wide_is_better():
    before = sqnr(narrow())
    assert sqnr(mixed_precision(f, DATA, 0.5, policy=SHARED, wide=None)) > before + 6
    floats = mixed_precision(f, DATA, 0.9, policy=SHARED, wide=None)
    assert list(floats.policy.exceptions) == [BAD, "relu_1", "dot_general_0", "relu_0"] and sqnr(floats) > 38
    with pytest.raises(ParameterError, match="nothing in the function is quantized"):
        mixed_precision(f, DATA, 1.0, policy=SHARED, wide=None)
    # int16 activations keep int8 weights: a scheme with scales per channel mends these.
    q = mixed_precision(f, DATA, 0.5, policy=SHARED, wide="int8")
    assert sqnr(q) > before + 6
    for args in DATA:
        np.testing.assert_array_equal(nx.jit(q)(*args), q(*args))


def test_other_bases_and_observers():
    q = mixed_precision(f, DATA, 0.5, policy="int4-weights", wide="int8-weights", observer="percentile")
    assert list(q.policy.exceptions.values()) == ["int8-weights"] and not q.ranges
    stored = q.quantize_params(*DATA[0])
    assert sorted(v.dtype.name for v in stored.values() if isinstance(v, nx.QArray)) == ["int4", "int4", "int8"]


def test_tables():
    ranking = sensitivity(f, DATA, progress=False)
    lines = repr(ranking).splitlines()
    assert lines[0].split() == ["layer", "SQNR", "dB", "share", "of", "MACs"] and lines[1].startswith(BAD)
    assert ranking._repr_html_().count("<tr>") == 4
    assert repr(sensitivity(lambda x: nn.relu(x), [DATA[0][1]])).splitlines() == [lines[0][:5] + lines[0][len(BAD) :]]


def test_progress(capsys: pytest.CaptureFixture[str]):
    sensitivity(f, DATA, progress=True)
    assert "sensitivity: 100%" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sensitivity(f, []), "no data"),
        (lambda: mixed_precision(f, DATA, 1.5), "a share of all products, 0 to 1"),
        (lambda: mixed_precision(f, DATA, -0.1), "a share of all products"),
        (lambda: mixed_precision(f, DATA, "half"), "a share of all products"),  # type: ignore[arg-type]
        (lambda: mixed_precision(f, DATA, 1.0, wide="int17"), "no such preset"),
        (lambda: sensitivity(f, DATA, "int17"), "no such preset"),
    ],
)
def test_errors(make: Any, said: str):
    with pytest.raises(ParameterError, match=said):
        make()
