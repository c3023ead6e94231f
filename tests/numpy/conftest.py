"""`check`: runs a call under nxjax and under JAX, eagerly and transformed, and compares values, shapes and dtypes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp


def peer() -> Any:
    import jax.numpy

    return jax.numpy


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [leaf for item in x for leaf in _leaves(item)]
    return [x]


def to_peer(x: Any) -> Any:
    """Arrays of nxjax as arrays of JAX, in nested lists and tuples too."""
    import jax.numpy

    if isinstance(x, nx.Array):
        if x.weak_type and not x.shape:
            return jax.numpy.asarray(x.item())
        return jax.numpy.asarray(np.asarray(x))
    if isinstance(x, (list, tuple)):
        return type(x)(to_peer(item) for item in x)
    return x


def assert_same(
    got: Any, want: Any, rtol: float = 2e-5, atol: float = 1e-5, weak: bool = False, where: str = ""
) -> None:
    """Leaf by leaf: value, shape and dtype."""
    mine, theirs = _leaves(got), _leaves(want)
    assert len(mine) == len(theirs), f"{where}: {len(mine)} results, expected {len(theirs)}"
    for a, b in zip(mine, theirs, strict=True):
        if hasattr(b, "dtype"):
            assert hasattr(a, "dtype"), f"{where}: {type(a)} instead of an array"
            assert a.dtype == b.dtype, f"{where}: dtype {a.dtype}, expected {b.dtype}"
            if weak and b.dtype != bool:
                assert a.weak_type == b.weak_type, f"{where}: weak_type {a.weak_type}, expected {b.weak_type}"
        x, y = np.asarray(a), np.asarray(b)
        assert x.shape == y.shape, f"{where}: shape {x.shape}, expected {y.shape}"
        if y.dtype.kind not in "fcV" and y.dtype.name not in ("bfloat16",):
            np.testing.assert_array_equal(x, y, err_msg=where)
        else:
            wide = np.complex128 if y.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(x.astype(wide), y.astype(wide), rtol=rtol, atol=atol, err_msg=where)


def compare(call: Callable[..., Any], *args: Any, jit: bool = True, **tolerance: Any) -> None:
    """``call(numpy_face, *args)`` eagerly and, with the array arguments traced, under `jit`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = call(peer(), *to_peer(list(args)))
    got = call(jnp, *args)
    assert_same(got, want, where="eager", **tolerance)
    if jit:
        at = [i for i, a in enumerate(args) if isinstance(a, nx.Array)]

        def traced(*xs: Any) -> Any:
            full = list(args)
            for i, x in zip(at, xs, strict=True):
                full[i] = x
            return call(jnp, *full)

        assert_same(nx.jit(traced)(*(args[i] for i in at)), want, where="jit", **tolerance)


def compare_grad(call: Callable[..., Any], *args: Any, argnums: Any = 0, **tolerance: Any) -> None:
    """The gradient of a weighted sum of the result."""
    import jax

    def scalar(face: Any, *xs: Any) -> Any:
        total = 0.0
        for leaf in _leaves(call(face, *xs)):
            weights = np.cos(np.arange(int(np.prod(leaf.shape)), dtype=np.float32)).reshape(leaf.shape)
            total = total + face.sum(face.real(leaf) * weights)
        return total

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Compiled as one program, not op by op.
        want = jax.jit(jax.grad(lambda *xs: scalar(peer(), *xs), argnums))(*to_peer(list(args)))
    got = nx.grad(lambda *xs: scalar(jnp, *xs), argnums)(*args)
    assert_same(got, want, where="grad", **tolerance)


def compare_vmap(call: Callable[..., Any], *args: Any, in_axes: Any = 0, **tolerance: Any) -> None:
    """Under `vmap` over ``in_axes``."""
    import jax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = jax.jit(jax.vmap(lambda *xs: call(peer(), *xs), in_axes))(*to_peer(list(args)))
    got = nx.vmap(lambda *xs: call(jnp, *xs), in_axes)(*args)
    assert_same(got, want, where="vmap", **tolerance)


class Check:
    """The comparisons, as a fixture's value."""

    same = staticmethod(assert_same)
    values = staticmethod(compare)
    grad = staticmethod(compare_grad)
    vmap = staticmethod(compare_vmap)

    @staticmethod
    def peer(face: Any, x: Any) -> Any:
        """``x`` for that face."""
        return x if face is jnp else to_peer(x)

    def all(self, call: Callable[..., Any], *args: Any, **tolerance: Any) -> None:
        """Values eagerly and under jit, and the gradient in the first argument."""
        compare(call, *args, **tolerance)
        compare_grad(call, *args, **tolerance)

    def raises_alike(self, call: Callable[..., Any], *args: Any) -> None:
        """Both raise, and nxjax's error is caught by the class JAX raises (or the built-in one above it)."""
        try:
            call(peer(), *to_peer(list(args)))
        except Exception as error:
            builtin = next(c for c in type(error).__mro__ if c.__module__ == "builtins")
        else:
            raise AssertionError("JAX does not raise")
        with pytest.raises(builtin):
            call(jnp, *args)


@pytest.fixture
def check() -> Check:
    return Check()
