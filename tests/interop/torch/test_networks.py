"""Modules of PyTorch give the same results and gradients as functions of nxjax."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax.trace import dtypes

torch: Any = pytest.importorskip("torch")

from tests.interop.torch.networks import NETWORKS  # noqa: E402


def leaves(x: Any) -> list[Any]:
    if x is None or isinstance(x, (torch.Tensor, nx.Array, int, float)):
        return [x]
    if isinstance(x, dict):
        return [y for _, v in sorted(x.items()) for y in leaves(v)]
    return [y for v in x for y in leaves(v)] if isinstance(x, (list, tuple)) else leaves(vars(x))


def close(ours: Any, theirs: Any, rtol: float = 1e-5, scale: float = 1e-3) -> None:
    """Relative to the largest element, or to ``scale``: sums that cancel have no digits of their own."""
    ours, theirs = leaves(ours), leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert a.dtype.name == str(b.dtype).removeprefix("torch."), (a.dtype, b.dtype)
        expected = b.detach().numpy()
        assert a.shape == expected.shape
        atol = rtol * max(float(np.abs(expected[np.isfinite(expected)]).max(initial=0)), scale)
        np.testing.assert_allclose(np.asarray(a), expected, rtol, atol)


def objective(xs: list[Any], where: Any) -> Any:
    """A number that depends on every float of the results."""
    total: Any = 0.0
    for i, x in enumerate(xs):
        if hasattr(x, "shape") and x.dtype in (*dtypes.FLOAT, torch.float32):
            total = total + (where(x) * (i + 1)).sum()
    return total


def split(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A dict at the end that names an argument is one of keywords."""
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) and "scale" in args[-1] else (args, {})


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", NETWORKS)
def test_results_and_gradients_are_those_of_torch(name: str):
    torch.manual_seed(0)
    module, args = NETWORKS[name]()
    args, kwargs = split(args)
    module.eval()
    f = nx.interop.from_torch(module, args, kwargs)
    expected = module(*args, **kwargs)
    close(f(f.params, *args, **kwargs), expected)
    close(nx.jit(lambda p: f(p, *args, **kwargs))(f.params), expected)
    parameters = dict(module.named_parameters())
    assert f.params.keys() == parameters.keys()
    if not parameters:
        return
    objective(leaves(expected), torch.sin).backward()
    grads = nx.grad(lambda p: objective(leaves(f(p, *args, **kwargs)), nx.sin))(f.params)
    slopes = {k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in parameters.items()}
    scale = max(float(g.abs().max()) for g in slopes.values())
    close(grads, slopes, scale=scale)
