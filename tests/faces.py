"""nxjax and JAX under one set of names, so that one function can be written for both."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp

ours = SimpleNamespace(
    np=jnp,
    lax=nx.lax,
    jit=nx.jit,
    grad=nx.grad,
    vmap=nx.vmap,
    jvp=nx.jvp,
    vjp=nx.vjp,
    linearize=nx.linearize,
    checkpoint=nx.checkpoint,
    custom_jvp=nx.custom_jvp,
    custom_vjp=nx.custom_vjp,
    policies=nx.checkpoint_policies,
)


def peer() -> SimpleNamespace:
    import jax
    import jax.numpy

    return SimpleNamespace(
        np=jax.numpy,
        lax=jax.lax,
        jit=jax.jit,
        grad=jax.grad,
        vmap=jax.vmap,
        jvp=jax.jvp,
        vjp=jax.vjp,
        linearize=jax.linearize,
        checkpoint=jax.checkpoint,
        custom_jvp=jax.custom_jvp,
        custom_vjp=jax.custom_vjp,
        policies=jax.checkpoint_policies,
    )


def close(got: Any, expected: Any, rtol: float = 2e-5, atol: float = 1e-6) -> None:
    """Equal structure, shapes and dtypes, and close values."""
    import jax

    ours_leaves, theirs = jax.tree.leaves(_plain(got)), jax.tree.leaves(expected)
    assert len(ours_leaves) == len(theirs)
    for a, b in zip(ours_leaves, theirs, strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def _plain(tree: Any) -> Any:
    return nx.tree.map(lambda x: np.asarray(x), tree)
