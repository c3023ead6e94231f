"""Functions and operands for every family of ops that tiles run; what a program gives is held against its meaning."""

import dataclasses

import numpy as np

import nxjax as nx
from nxjax.kernels.ipu.chip import BOW, IpuSystem
from nxjax.lower.ipu.interpret import interpret
from nxjax.lower.ipu.keys import as_words
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.verify import verify

lax = nx.lax
TINY = IpuSystem("tiny", "eight tiles", dataclasses.replace(BOW, tiles=8), 1)
WHOLE = IpuSystem("bow", "one Bow IPU", BOW, 1)
# Room for a table in few columns: rows are cut, too.
CRAMPED = IpuSystem("cramped", "tiles of 2 KiB", dataclasses.replace(BOW, tiles=8, memory=2048), 1)
RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape) + 1).standard_normal(shape).astype(dtype)


def integers(low, high, shape, dtype=np.int32):
    return np.random.default_rng(int(np.prod(shape)) + 1).integers(low, high, shape).astype(dtype)


def check(function, *args, system=TINY, rtol=2e-5, donate=(), runs=1):
    """Lower, verify, interpret and compare; gives the IpuProgram."""
    leaves, tree = nx.tree_util.tree_flatten(args)
    flat = [np.asarray(x) if not isinstance(x, nx.Array) else x.numpy() for x in leaves]
    program = nx.make_jaxpr(lambda *xs: nx.tree_util.tree_leaves(function(*nx.tree_util.tree_unflatten(tree, xs))))(
        *leaves
    )
    wanted = [y.numpy() for y in program(*(nx.asarray(x) for x in leaves))]
    lowered = verify(lower(program, system, donate=donate))
    found = interpret(lowered, [as_words(x) for x in flat])
    assert len(found) == len(wanted)
    for y, w in zip(found, wanted, strict=True):
        w = as_words(w)
        assert y.dtype == w.dtype
        if w.dtype.kind == "f":
            scale = np.max(np.abs(w[np.isfinite(w)]), initial=1.0)
            each = 100 * rtol if w.dtype == np.float16 else rtol
            np.testing.assert_allclose(y, w, rtol=10 * each, atol=each * float(scale))
        else:
            np.testing.assert_array_equal(y, w)
    return lowered
