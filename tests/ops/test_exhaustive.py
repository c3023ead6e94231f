"""Elementwise ops at every value of their narrow dtypes, or at every pair, by every way of computing them.

The oracle is `tests.ops.exhaustive`. All ops of one dtype are one program, so that they take one compilation.
"""

import importlib
import pkgutil
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
import nxjax.ops
from nxjax.errors import NxError
from nxjax.ops import base
from nxjax.ops.quant_grid import Grid
from nxjax.testing import executors
from nxjax.trace import core, dtypes
from nxjax.trace.array import wrap
from nxjax.trace.types import ArrayType
from tests.kernels.cpu.elementwise import specials
from tests.kernels.cpu.running import ISAS
from tests.ops import exhaustive
from tests.ops.exhaustive import EXACT, FLOAT8, HALF, ROWS, Kind, errors, rounded, unlike, wide, words

for module in pkgutil.iter_modules(nxjax.ops.__path__):
    importlib.import_module(f"nxjax.ops.{module.name}")

WAYS = ["eager", *ISAS]
XLA = ["xla"] if "xla" in executors() else []
INTEGERS = [dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16]
REAL = [d for d in dtypes._SHORT if d in dtypes.NUMERIC - dtypes.COMPLEX]
# Of formats that differ in their constants only, the other instruction sets have one with infinity and one without.
NARROW = [(d, w) for d in FLOAT8 for w in WAYS if d in (dtypes.float8_e5m2, dtypes.float8_e4m3fnuz) or w in WAYS[:2]]
NARROW += [(d, w) for d in (dtypes.bool_, *INTEGERS, *HALF) for w in WAYS]


def named(cases):
    return pytest.mark.parametrize(("dtype", "way"), cases, ids=[f"{d.name}-{w}" for d, w in cases])


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


@dataclass
class Case:
    """An op with parameters on given operands, and what it gives."""

    name: str
    params: dict
    out: Any
    bound: Any
    want: Any
    right: Any

    def __call__(self, *xs):
        return core.OPS[self.name](*xs, **self.params)


def of_type(name, params, ins):
    """The dtype of the op's result; None where the op has no meaning for ``ins``."""
    try:
        return core.OPS[name].infer(*(ArrayType((2,), d) for d in ins), **params).dtype
    except NxError:
        return None


@lru_cache(2)
def prepared(dtype, kinds, sampled=False):
    """Operands of ``dtype`` for all rows whose operands are of ``kinds``, and the cases."""
    xs = operands(dtype, kinds, sampled)
    with np.errstate(all="ignore"):
        wides = [wide(x) for x in xs]
        cases = []
        for name, row in ROWS.items():
            for params in row.params if row.kinds == kinds else ():
                out = of_type(name, params, [x.dtype for x in xs])
                if out is None:
                    continue
                want = np.broadcast_to(row.meaning(Kind(dtype), *wides, **params), xs[0].shape)
                bound = row.single if dtype == dtypes.float32 and row.single is not None else row.bound
                bound = bound(wides[0]) if callable(bound) else bound
                right = rounded(want, out) if out in dtypes.FLOAT else None
                cases.append(Case(name, dict(params), out, bound, want, right))
    return xs, cases


def operands(dtype, kinds, sampled):
    """Every combination of values, or for ``sampled`` of those at which the dtype is hardest and some others."""
    if sampled:
        values = [specials(dtype), words(dtype)[::311] if dtype.itemsize < 4 else exhaustive.singles(1)[::97]]
        pools = [np.concatenate(values) if k == "x" else words(k) for k in kinds]
    else:
        every = words(dtype) if dtype.itemsize < 4 else exhaustive.singles(256)
        pools = [every if k == "x" else words(k) for k in kinds]
    if len(pools) == 1:
        return pools
    return [np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(*pools, indexing="ij")]


def computed(way, functions, xs):
    """The results of all functions of ``xs``, in one program."""
    xs = [wrap(x) for x in xs]
    if way == "eager":
        ys = [f(*xs) for f in functions]
    else:
        chosen = {"executor": "xla"} if way == "xla" else {"executor": "cpu", "cpu_isa": way}
        with nx.config.using(cache_dir="", **chosen):
            ys = nx.jit(lambda *xs: [f(*xs) for f in functions])(*xs)
    return [np.asarray(y) for y in ys]


def listed(name, bad, xs, got, want):
    where = np.flatnonzero(bad)
    shown = [([str(x[i]) for x in xs], str(got[i]), str(want[i])) for i in (*where[:3], where[-1])]
    return f"{name}: {len(where)} of {len(bad)} are wrong, such as (operands, got, wanted) {shown}"


def check(way, dtype, kinds, sampled=False):
    xs, cases = prepared(dtype, kinds, sampled)
    wrong = []
    for case, got in zip(cases, computed(way, cases, xs), strict=True):
        assert got.dtype == case.out
        bound = case.bound
        if way == "eager" and dtype == dtypes.float32 and not np.all(bound == EXACT):
            bound = np.maximum(bound, 3)  # NumPy's
        bad = unlike(got, case.want, case.out, bound, case.right)
        if bad.any():
            wrong.append(listed(f"{case.name} {case.params or ''}", bad, xs, got, case.want))
    assert not wrong, "\n".join(wrong)
    return cases


def test_every_elementwise_op_has_a_row():
    there = {n for n, op in core.OPS.items() if isinstance(op, base.Elementwise) and type(op).__module__.startswith("nxjax.")}
    there |= {"select_n", "clamp", "copy", "bitcast_convert_type"}
    elsewhere = [n for names in exhaustive.ELSEWHERE.values() for n in names.split()]
    assert there == ROWS.keys() | set(elsewhere)
    assert not ROWS.keys() & set(elsewhere)
    for name, row in ROWS.items():
        for params in row.params:
            ins = [[d if k == "x" else k for k in row.kinds] for d in REAL]
            assert any(of_type(name, params, i) for i in ins), (name, params)


@named(NARROW)
def test_every_value(dtype, way):
    assert check(way, dtype, "x")


@named([(d, w) for d, w in NARROW if d.itemsize == 1])
def test_every_pair(dtype, way):
    assert check(way, dtype, "xx")


@named([(d, w) for d in (dtypes.int16, dtypes.uint16, *HALF, dtypes.float32) for w in WAYS])
def test_pairs_of_wider_types(dtype, way):
    assert check(way, dtype, "xx", sampled=True)


@pytest.mark.parametrize("way", WAYS)
def test_every_exponent_of_float32(way):
    assert check(way, dtypes.float32, "x")
