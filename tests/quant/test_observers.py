"""Observers against their definitions, written straightforwardly in NumPy on the values themselves."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.quant import MSE, Entropy, MinMax, MovingAverage, Observer, Percentile
from nxjax.quant.observe import BINS
from nxjax.quant.observers import OBSERVERS, as_observer

SPANS = st.lists(
    st.tuples(st.floats(-1e3, 0, width=32), st.floats(0, 1e3, width=32)), min_size=1, max_size=8
)  # fmt: skip


def data(kind: str, n: int = 20_000) -> np.ndarray:
    r = np.random.default_rng(3)
    x = {
        "normal": lambda: r.standard_normal(n),
        "laplace": lambda: r.laplace(size=n),
        "outlier": lambda: np.append(r.standard_normal(n - 1), 100.0),
        "relu": lambda: np.maximum(r.standard_normal(n), 0),
        "uniform": lambda: r.uniform(-1, 1, n),
        "shifted": lambda: r.standard_normal(n) + 3,
    }[kind]()
    return x.astype(np.float32)


def histogram(x: np.ndarray, bins: int = BINS) -> np.ndarray:
    return np.histogram(np.abs(x), bins, (0, np.abs(x).max()))[0].astype(np.float64)


def chosen(observer: Any, x: np.ndarray) -> tuple[float, float]:
    span = float(x.min()), float(x.max())
    return observer.clipped(observer.joined([span]), histogram(x))


def found(observer: Any, *batches: np.ndarray) -> tuple[float, float]:
    """What calibration finds for the input of a product."""
    w = {"w": np.eye(batches[0].shape[-1], dtype=np.float32)}
    f = nx.quantize(lambda p, x: x @ p["w"], calibrate=[(w, x) for x in batches], observer=observer)
    return f.ranges["in_1"]


@given(SPANS)
def test_minmax_is_the_hull(spans: list[tuple[float, float]]):
    assert MinMax().joined(spans) == (min(a for a, _ in spans), max(b for _, b in spans))


@given(SPANS, st.floats(0, 0.99))
def test_moving_average_is_the_weighted_mean(spans: list[tuple[float, float]], m: float):
    # Unrolled: the first batch weighs m^(n-1), batch i after it (1 - m) m^(n-1-i).
    n = len(spans)
    weights = np.array([m ** (n - 1), *((1 - m) * m ** (n - 1 - i) for i in range(1, n))])
    assert np.isclose(weights.sum(), 1)
    np.testing.assert_allclose(MovingAverage(m).joined(spans), weights @ np.array(spans), 1e-9, 1e-9)


@pytest.mark.parametrize("kind", ["normal", "laplace", "outlier", "relu", "uniform", "shifted"])
@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0, 99.9, 100.0])
def test_percentile_holds_that_share(kind: str, percent: float):
    x = data(kind)
    low, high = chosen(Percentile(percent), x)
    bound = max(-low, high)
    share = (np.abs(x) <= bound).mean()
    width = np.abs(x).max() / BINS
    assert share >= percent / 100 - 1e-9
    # One bin less would not be enough.
    assert (np.abs(x) <= bound - 1.01 * width).mean() < percent / 100
    assert low >= x.min() and high <= x.max()


def kl_of_bound(counts: np.ndarray, n: int, levels: int = 128) -> float:
    """The divergence of the first ``n`` bins, the rest counted into the last, from their ``levels``-level version."""
    p = counts[:n].astype(float)
    q = np.zeros(n)
    edges = [round(i * n / levels) for i in range(levels + 1)]
    for a, b in itertools.pairwise(edges):
        full = p[a:b] > 0
        if full.any():
            q[a:b][full] = p[a:b].sum() / full.sum()
    p[-1] += counts[n:].sum()
    p, q = p / p.sum(), q / q.sum()
    return sum(a * np.log(a / max(b, 1e-12)) for a, b in zip(p, q, strict=True) if a > 0)


@pytest.mark.parametrize("kind", ["normal", "laplace", "outlier", "relu"])
def test_entropy_loses_least_information(kind: str):
    counts = histogram(data(kind))
    best = Entropy().bound(counts)
    smooth = counts.copy()
    smooth[0] = smooth[1]
    losses = {n: kl_of_bound(smooth, n) for n in range(128, BINS + 1, 8)}
    assert losses[best] <= min(losses.values()) + 1e-12


def mse_of_bound(x: np.ndarray, bound: float, levels: int = 256) -> float:
    low, high = max(min(x.min(), 0), -bound), min(x.max(), bound)
    step = (high - low) / (levels - 1)
    q = np.clip(np.rint((x - low) / step) * step + low, low, high)
    return float(np.mean((x - q) ** 2))


@pytest.mark.parametrize("kind", ["normal", "laplace", "outlier", "uniform", "relu"])
def test_mse_is_least(kind: str):
    x = data(kind)
    low, high = chosen(MSE(), x)
    ours = mse_of_bound(x, max(-low, high))
    assert ours <= 1.05 * min(mse_of_bound(x, b) for b in np.linspace(0.05, 1, 96) * np.abs(x).max())
    if kind == "uniform":
        assert max(-low, high) > 0.98


@pytest.mark.parametrize("observer", ["percentile", "entropy", "mse"])
def test_histogram_observers_never_widen(observer: str):
    for kind in ("normal", "relu", "shifted", "uniform"):
        x = data(kind)
        low, high = chosen(as_observer(observer), x)
        assert x.min() <= low <= 0 or low == x.min()
        assert 0 < high <= x.max()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 2047))
def test_bounds_are_bins(seed: int, alone: int):
    r = np.random.default_rng(seed)
    for h in (r.integers(0, 50, 2048) * (r.random(2048) < 0.1), np.eye(2048)[alone]):
        if h.sum():
            for observer in (Percentile(), Entropy(), MSE()):
                assert 1 <= observer.bound(h) <= 2048


def test_without_values_the_range_stays():
    for observer in (Percentile(), Entropy(), MSE()):
        assert observer.clipped((-1.0, 2.0), np.zeros(BINS)) == (-1.0, 2.0)


def test_calibration_counts_every_value_once():
    """The histogram that calibration makes on the device is NumPy's, over all batches."""
    batches = [data(k, 4000).reshape(-1, 8) for k in ("normal", "laplace", "outlier")]
    seen: list[np.ndarray] = []

    class Spy(Observer):
        histogram = True

        def joined(self, batches: Any) -> tuple[float, float]:
            return MinMax().joined(batches)

        def clipped(self, span: tuple[float, float], counts: np.ndarray) -> tuple[float, float]:
            seen.append(counts)
            return span

    low, high = found(Spy(), *batches)
    x = np.concatenate(batches)
    assert (low, high) == (x.min(), x.max())
    wanted = histogram(x)
    assert seen[0].sum() == x.size
    # A value on the edge of two bins may fall to either.
    assert np.abs(np.cumsum(seen[0]) - np.cumsum(wanted)).max() <= 3


@pytest.mark.parametrize("name", ["minmax", "moving-average", "percentile", "entropy", "mse"])
def test_calibration_gives_what_the_observer_says(name: str):
    batches = [data("laplace", 4096).reshape(-1, 8) * s for s in (1, 3, 2)]
    spans = [(float(b.min()), float(b.max())) for b in batches]
    observer = as_observer(name)
    wanted = observer.joined(spans)
    if observer.histogram:
        x = np.concatenate(batches)
        top = max(map(abs, wanted))
        wanted = observer.clipped(wanted, np.histogram(np.abs(x), BINS, (0, top))[0].astype(float))
    np.testing.assert_allclose(found(name, *batches), wanted, 2e-3)
    # An instance does as its name.
    assert found(observer, *batches) == found(name, *batches)


def test_an_outlier_is_cut_off_and_the_function_gets_better():
    x = data("outlier", 8000).reshape(-1, 8)
    w = {"w": np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)}
    f = lambda p, x: x @ p["w"]
    inner = x[:-1]

    def error(observer: Any) -> float:
        q = nx.quantize(f, "int8", calibrate=[(w, x)], observer=observer)
        return float(np.abs(np.asarray(q(w, inner)) - np.asarray(f(w, inner))).mean())

    assert error(Percentile(99.9)) < 0.2 * error("minmax")


def test_an_observer_of_ones_own():
    class Half(Observer):
        def joined(self, batches: Any) -> tuple[float, float]:
            low, high = MinMax().joined(batches)
            return low / 2, high / 2

    x = data("uniform", 800).reshape(-1, 8)
    assert found(Half(), x) == (x.min() / 2, x.max() / 2)


def test_wrong_observers_are_named():
    for make, said in (
        (lambda: Percentile(0), "percent"),
        (lambda: Percentile(101), "percent"),
        (lambda: MovingAverage(1.0), "momentum"),
        (lambda: MovingAverage(-0.1), "momentum"),
        (lambda: MSE(1), "levels"),
        (lambda: as_observer("max"), "minmax, moving-average, percentile, entropy, mse or an Observer"),
        (lambda: as_observer(MinMax), "or an Observer"),
    ):
        with pytest.raises(nx.errors.ParameterError, match=said):
            make()


EDGES = {
    "zeros": np.zeros((4, 4)),
    "one zero": np.zeros((1, 1)),
    "one value": np.full((1, 1), 2.0),
    "constant": np.full((4, 4), 3.0),
    "negative constant": np.full((4, 4), -3.0),
    "all negative": -1 - np.arange(16.0).reshape(4, 4) / 16,
    "one in many": np.eye(4, 4) * np.float32([1, 0, 0, 0]),
    "small": np.full((4, 4), 1e-30),
    "subnormal": np.full((4, 4), 1e-42),
    "least": np.float32([[1e-45, 0, 0, 0]]),
    "huge": np.float32([[3e38, -3e38, 1, 0]]),
    "greatest": np.float32([[np.finfo(np.float32).max, np.finfo(np.float32).min]]),
    "greatest alone": np.full((4, 4), np.finfo(np.float32).max),
}


@pytest.mark.parametrize("name", OBSERVERS)
def test_values_at_the_edges_have_a_range(name: str):
    """No observer divides by a range that is zero or subnormal, or ends outside of what was seen."""
    for kind, values in EDGES.items():
        x = values.astype(np.float32)
        low, high = found(name, x)
        assert x.min() <= low <= high <= x.max() or (low, high) == (0.0, 0.0), kind
        w = {"w": np.eye(x.shape[-1], dtype=np.float32)}
        for policy in ("int8", "int16x8"):
            f = nx.quantize(lambda p, x: x @ p["w"], policy, calibrate=[(w, x)], observer=name)
            y = np.asarray(f(w, x), np.float64)
            largest = float(np.abs(x).max())
            # A step is no less than the least normal number; an identity's products are of the same grid.
            step = max(largest / 64, float(np.finfo(np.float32).tiny))
            cut = largest if name in ("percentile", "entropy", "mse") and kind == "one in many" else step
            assert np.abs(y - x).max() <= cut, (kind, policy)


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_refused(name: str, value: float):
    x = np.float32([[1, 2, value, 4]])
    with pytest.raises(ParameterError, match="not finite"):
        found(name, x)
    with pytest.raises(ParameterError, match="never computed"):
        found(name, x[:0])


@pytest.mark.parametrize("span", [(np.nan, 1.0), (0.0, np.inf), (1.0, -1.0)])
def test_an_observer_of_the_users_own_gives_a_range_or_an_error(span: tuple[float, float]):
    class Own(Observer):
        def joined(self, batches: Any) -> tuple[float, float]:
            return span

    with pytest.raises(ParameterError, match="Own gave no range for"):
        found(Own(), np.ones((2, 2), np.float32))
