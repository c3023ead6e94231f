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
from nxjax.ops import base, vocabulary
from nxjax.ops.quant_grid import Grid
from nxjax.testing import executors
from nxjax.trace import core, dtypes
from nxjax.trace.array import wrap
from nxjax.trace.types import ArrayType
from tests.kernels.cpu.elementwise import specials
from tests.kernels.cpu.running import ISAS
from tests.ops.exhaustive import ELSEWHERE, PEERS, ROUNDED, ROWS, SLOPES
from tests.ops.numbers import EXACT, Kind, converted, errors, hard, rounded, singles, unlike, wide, words

for module in pkgutil.iter_modules(nxjax.ops.__path__):
    importlib.import_module(f"nxjax.ops.{module.name}")

WAYS = ["eager", *ISAS]
XLA = ["xla"] if "xla" in executors() else []
FLOAT8 = [d for d in dtypes._SHORT if d in dtypes.FLOAT and d.itemsize == 1]
HALF = [dtypes.float16, dtypes.bfloat16]
INTEGERS = [dtypes.int4, dtypes.uint4, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16]
REAL = [d for d in dtypes._SHORT if d in dtypes.NUMERIC - dtypes.COMPLEX]
# Formats differ in their constants only: other instruction sets have one with infinity or one without.
OTHERS = dict(zip(ISAS[1:], (dtypes.float8_e5m2, dtypes.float8_e4m3fnuz), strict=False))
NARROW = [(d, w) for d in FLOAT8 for w in WAYS if OTHERS.get(w, d) == d]
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
        return core.get_op(self.name)(*xs, **self.params)


def of_type(name, params, ins):
    """The dtype of the op's result; None where the op has no meaning for ``ins``."""
    try:
        return core.get_op(name).infer(*(ArrayType((2,), d) for d in ins), **params).dtype
    except NxError:
        return None


@lru_cache(2)
def prepared(dtype, kinds, sampled=False):
    """Operands of ``dtype`` for all rows whose operands are of ``kinds``, and the cases."""
    xs = operands(dtype, kinds, sampled)
    return xs, cases_of(dtype, kinds, xs)


def cases_of(dtype, kinds, xs, names=ROWS):
    """The ops called ``names`` on ``xs``, with each choice of their parameters."""
    wides, cases = [wide(x) for x in xs], []
    for name, row in ROWS.items():
        for params in row.params if row.kinds == kinds and name in names else ():
            out = of_type(name, params, [x.dtype for x in xs])
            if out is None:
                continue
            want = np.broadcast_to(row.meaning(Kind(dtype), *wides, **params), xs[0].shape)
            bound = row.single if dtype == dtypes.float32 and row.single is not None else row.bound
            bound = bound(wides[0]) if callable(bound) else bound
            right = rounded(want, out) if out in dtypes.FLOAT else None
            cases.append(Case(name, dict(params), out, bound, want, right))
    return cases


def operands(dtype, kinds, sampled):
    """Every combination of values, or for ``sampled`` of those at which the dtype is hardest and some others."""
    if sampled:
        values = [specials(dtype), words(dtype)[::311] if dtype.itemsize < 4 else singles(1)[::97]]
        pools = [np.concatenate(values) if k == "x" else words(k) for k in kinds]
    else:
        every = words(dtype) if dtype.itemsize < 4 else singles(128)
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
    wrong = differences(way, dtype, xs, cases)
    assert not wrong, "\n".join(wrong)
    return cases


def differences(way, dtype, xs, cases):
    """What is computed otherwise than the rows say, as text."""
    wrong = []
    for case, got in zip(cases, computed(way, cases, xs), strict=True):
        assert got.dtype == case.out
        bound = case.bound
        if way == "eager" and dtype == dtypes.float32 and not np.all(bound == EXACT):
            bound = np.maximum(bound, 3)  # NumPy's
        bad = unlike(got, case.want, case.out, bound, case.right)
        if bad.any():
            wrong.append(listed(f"{case.name} {case.params or ''}", bad, xs, got, case.want))
    return wrong


def test_every_elementwise_op_has_a_row():
    there = {n for n, op in vocabulary.every().items() if isinstance(op, base.Elementwise)}
    there |= {"select_n", "clamp", "copy", "bitcast_convert_type"}
    elsewhere = [n for names in ELSEWHERE.values() for n in names.split()]
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


@named(
    [
        (d, w)
        for d in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, *FLOAT8, *HALF, dtypes.float32)
        for w in WAYS[:2]
    ]
)
def test_choices(dtype, way):
    """`clamp` and `select_n` on cubes of the values that are hardest."""
    pool = specials(dtype)[:: 1 if dtype.itemsize > 1 or dtype in INTEGERS else 7]
    cube = [np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(pool, pool, pool[::-1], indexing="ij")]
    d, wides = Kind(dtype), [wide(x) for x in cube]
    which = np.resize(np.array([-7, 0, 1, 2, 9], np.int32), len(cube[0]))
    functions = [
        core.get_op("clamp"),
        lambda *xs: core.get_op("select_n")(wrap(which), *xs),
        lambda *xs: core.get_op("select_n")(wrap(which % 2 == 0), *xs[1:]),
    ]
    clamped, chosen, one = computed(way, functions, cube)
    bad = unlike(clamped, ROWS["clamp"].meaning(d, *wides), dtype, EXACT)
    assert not bad.any(), listed("clamp", bad, cube, clamped, clamped)
    assert chosen.tobytes() == np.choose(np.clip(which, 0, 2), [x.view(f"u{x.itemsize}") for x in cube]).tobytes()
    assert (
        one.tobytes()
        == np.where(which % 2 == 0, cube[2].view(f"u{dtype.itemsize}"), cube[1].view(f"u{dtype.itemsize}")).tobytes()
    )


@lru_cache(2)
def all_converted(dtype):
    x = hard(dtype)
    return x, [converted(x, new) for new in REAL]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", REAL, ids=lambda d: d.name)
def test_conversions(dtype, way):
    x, wants = all_converted(dtype)
    turned = [
        lambda v, d=new: core.get_op("convert_element_type")(v, dtype=d)
        for new in (*REAL, *sorted(dtypes.COMPLEX, key=str))
    ]
    results = computed(way, turned, [x])
    for new, got, want in zip(REAL, results, wants, strict=False):
        assert got.dtype == new
        if new in dtypes.FLOAT:
            bad = unlike(got, want, new, EXACT, want)
        else:
            bad = got.astype(np.int8) != want.astype(np.int8) if dtypes.bit_width(new) == 4 else got != want
        assert not bad.any(), listed(f"{dtype.name} to {new.name}", bad, [x], got, want)
    for got in results[len(REAL) :]:
        real = wants[REAL.index(dtypes.real_part(got.dtype))]
        assert np.array_equal(got.real, real, equal_nan=True)
        assert not got.imag.any()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "dtype",
    [d for d in REAL if d.itemsize <= 2 and d != dtypes.bool_ and dtypes.bit_width(d) > 4],
    ids=lambda d: d.name,
)
def test_bits_of_every_value(dtype, way):
    """NaN keep their payload, too."""
    x = words(dtype)
    others = [d for d in REAL if d != dtypes.bool_ and dtypes.bit_width(d) == dtypes.bit_width(dtype)]
    turned = [lambda v, d=new: core.get_op("bitcast_convert_type")(v, dtype=d) for new in others]
    for new, got in zip(others, computed(way, turned, [x]), strict=True):
        bad = got.view(f"u{new.itemsize}") != x.view(f"u{new.itemsize}")
        assert not bad.any(), listed(f"{dtype.name} as {new.name}", bad, [x], got, x)


OPERANDS = [
    0.0,
    6e-8,
    1e-3,
    0.1,
    0.25,
    0.5,
    0.75,
    0.9,
    1,
    1.5,
    2,
    2.5,
    3,
    5,
    7.25,
    10,
    20,
    50,
    100.5,
    300,
    1000,
    np.inf,
]
OPERANDS += [np.nan, -0.0, -1e-3, -0.5, -1, -1.5, -2.25, -7.75, -8, -11.5, -12.5, -13.25, -20.5, -100.25, -300, -np.inf]


@pytest.mark.parametrize("dtype", [*HALF, dtypes.float32], ids=lambda d: d.name)
@pytest.mark.parametrize("name", PEERS)
def test_functions_of_several_operands(name, dtype):
    """Rounded once at structured operands; at the edges and outside NaN and infinities stand where JAX has them."""
    peer, count = PEERS[name], 3 if "beta" in name else 2
    pool = np.array(OPERANDS[:: peer.every]).astype(dtype)
    grid = np.meshgrid(pool[~(pool.astype(float) > peer.most)], *[pool] * (count - 1), indexing="ij")
    xs = [np.ascontiguousarray(x.reshape(-1)) for x in grid]
    wides = [wide(x) for x in xs]
    here = peer.inside(*wides)
    with jax.enable_x64(True):
        want = np.array(getattr(jax.lax, "betainc" if count == 3 else name)(*wides))
    want[here] = peer.meaning(*(w[here] for w in wides))
    known = ~(here & np.isnan(want)) | (name == "zeta")
    assert (here & known).sum() > 50
    outside = kinds(rounded(want, dtype))
    for way in WAYS[:2]:
        (got,) = computed(way, [core.get_op(name)], xs)
        assert got.dtype == dtype
        units = errors(got, want, dtype)
        near = np.abs(got.astype(np.float64) - want) * (1 - ROUNDED / units) <= peer.off
        bad = np.where(here, (units > ROUNDED) & ~near, kinds(got) != outside) & known
        assert not bad.any(), listed(name, bad, xs, got, want)


def slopes(dtype):
    """The functions of `SLOPES` with tangent 1."""

    def slope(name):
        params = {"approximate": False} if name == "gelu" else {}
        return lambda x: nx.jvp(lambda v: core.get_op(name)(v, **params), (x,), (nx.numpy.ones_like(x),))[1]

    return {name: slope(name) for name in SLOPES}


@named([(d, w) for d in HALF for w in WAYS[:2]])
def test_derivatives_at_every_value(dtype, way):
    """Within 0.55 of the last place, and 2^-22 where the slope is a difference of nearly equal numbers.

    At an infinite number the slope is its limit, where the meaning has one.
    """
    x = words(dtype)
    value = wide(x)
    wrong = []
    for (name, _), got in zip(slopes(dtype).items(), computed(way, slopes(dtype).values(), [x]), strict=True):
        want = np.asarray(SLOPES[name](value), np.float64)
        sampled = ~np.isnan(value) & np.isfinite(want)
        sampled &= np.isinf(value) | np.isfinite(
            ROWS[name].meaning(Kind(dtypes.float32), value, *((False,) if name == "gelu" else ())).astype(np.float32)
        )
        units, distance = errors(np.abs(got), np.abs(want), dtype), np.abs(got.astype(np.float64) - want)
        bad = ~(units <= 0.55) & ~(distance * (1 - 0.55 / units) <= 2.0**-22) & sampled
        bad |= (np.abs(got) > 2.0**-22) & (np.sign(got.astype(np.float64)) != np.sign(want)) & sampled
        if bad.any():
            wrong.append(listed(f"slope of {name}", bad, [x], got, want))
    assert not wrong, "\n".join(wrong)


def kinds(y):
    """NaN, infinite with sign, or finite."""
    y = np.asarray(y).astype(np.float64)
    return np.where(np.isnan(y), 3, np.where(np.isinf(y), np.sign(y), 0))


def in_jax(case, xs):
    """JAX's function for ``case``; None where it has none of that name, or takes no such operands."""
    name, params = case.name, case.params
    if name == "exp2":
        return None  # rounds x log 2, so that 2^128 is finite in bfloat16
    logic = {n: getattr(jax.lax, "bitwise_" + n) for n in ("and", "or", "xor", "not")}
    function = logic.get(name) or getattr(jax.lax, name, None) or getattr(jax.nn, name, None)
    if name == "round":
        params = {"rounding_method": jax.lax.RoundingMethod(params["rounding_method"])}
    try:
        with_params = lambda *xs: function(*xs, **params)
        accepted = function is not None and jax.eval_shape(with_params, *xs).dtype == case.out
    except TypeError:
        accepted = False
    return with_params if accepted else None


def far_from_subnormal(case, xs, tiny):
    """Where nothing that is computed on the way is subnormal: XLA takes such numbers for 0."""
    plain = np.all([~(np.abs(wide(x)) < tiny) | (wide(x) == 0) for x in xs], axis=0)
    if not tiny or case.out == dtypes.bool_:
        return plain
    if case.name == "integer_pow":
        plain &= ~(np.abs(case.want) > 0.25 / tiny)
    return plain & ~((np.abs(case.want) < (2 if case.bound == EXACT else 256) * tiny) & (case.want != 0))


def known_there(case, xs):
    """Where XLA has what IEEE 754 asks for: 1 to the power NaN and NaN to the power 0 are NaN there in bfloat16."""
    return ~np.any([np.isnan(x) for x in xs], axis=0) if case.name == "pow" else np.True_


@pytest.mark.usefixtures("shipped_jax")
@pytest.mark.parametrize("dtype", [*INTEGERS[2:], dtypes.float16], ids=lambda d: d.name)
def test_conventions_are_those_of_jax(dtype):
    """Integers are equal; of floats NaN and infinities stand where they stand in JAX, which takes subnormals for 0."""
    for operand_kinds in ("x", "xx"):
        xs, cases = prepared(dtype, operand_kinds, sampled=operand_kinds == "xx" and dtype.itemsize == 2)
        theirs = [jnp.asarray(x) for x in xs]
        known = [(c, f) for c in cases if (f := in_jax(c, theirs)) is not None]
        theirs = jax.jit(lambda *xs, known=known: [f(*xs) for _, f in known])(*theirs)
        assert len(known) > (8 if operand_kinds == "x" else 10), [c.name for c, _ in known]
        for (case, _), want in zip(known, theirs, strict=True):
            (got,), want = computed("eager", [case], xs), np.asarray(want)
            if dtype not in dtypes.FLOAT:
                assert got.dtype == want.dtype, case.name
                bad = got != want
            else:
                tiny = float(dtypes.float_info(dtype).smallest_normal)
                bad = (kinds(got) != kinds(want)) & known_there(case, xs) & far_from_subnormal(case, xs, tiny)
            assert not bad.any(), listed(f"{case.name} {case.params}", bad, xs, got, want)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("way", XLA)
def test_xla_gives_the_same(dtype, way):
    """Integers and what is rounded once to the bit, functions within four units; XLA takes subnormals for 0."""
    for operand_kinds in ("x", "xx"):
        xs, cases = prepared(dtype, operand_kinds, sampled=operand_kinds == "xx" and dtype.itemsize == 2)
        tiny = float(dtypes.float_info(dtype).smallest_normal) if dtype in dtypes.FLOAT else 0
        for case, got in zip(cases, computed(way, cases, xs), strict=True):
            if dtype not in dtypes.FLOAT or case.out == dtypes.bool_:
                bad = unlike(got, case.want, case.out, EXACT) & far_from_subnormal(case, xs, tiny)
            else:
                # Zeros have another sign there in extremes.
                error = errors(
                    np.where(got == 0, np.copysign(got, case.want.astype(got.dtype)), got), case.want, case.out
                )
                bad = (
                    (error > (4 if case.bound != EXACT else EXACT))
                    & known_there(case, xs)
                    & far_from_subnormal(case, xs, tiny)
                )
            assert not bad.any(), listed(f"{case.name} {case.params}", bad, xs, got, case.want)


X, Y, OUT = Grid(dtypes.int8, 0.037, -5), Grid(dtypes.int8, 0.11, 17), Grid(dtypes.int8, 0.125, 3)
FULL = {"lo": -128, "hi": 127, "rounding": "double"}
BINARY_GRIDS = {"x_grid": X, "y_grid": Y, "out_grid": OUT}
ON_GRIDS = {
    "qadd": ({**BINARY_GRIDS, **FULL}, lambda x, y: x + y),
    "qsub": ({**BINARY_GRIDS, **FULL, "rounding": "single"}, lambda x, y: x - y),
    "qmul": ({**BINARY_GRIDS, **FULL}, lambda x, y: x * y),
    "qprelu": ({**BINARY_GRIDS, "rounding": "double"}, lambda x, y: np.where(x >= 0, x, x * y)),
    "requantize": ({"x_grid": X, "y_grid": OUT, "lo": -128, "hi": 127, "rounding": "double"}, lambda x, y: x),
    "quantize_dequantize": ({"grid": OUT}, lambda x, y: x),
    "qunary": ({"function": "tanh", "x_grid": X, "y_grid": OUT, "rounding": "double"}, lambda x, y: np.tanh(x)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_pair_on_grids(way):
    """The real result's place on the grid, to one step; all ways give the same step."""
    q = [
        v.reshape(-1)
        for v in np.meshgrid(words(dtypes.int8).astype(np.int64), words(dtypes.int8).astype(np.int64), indexing="ij")
    ]
    x, y = (((v - g.zero_point) * np.float32(g.scale)).astype(np.float32) for v, g in zip(q, (X, Y), strict=True))
    two = ("qadd", "qsub", "qmul", "qprelu")
    functions = [
        lambda a, b, n=n, p=p: core.get_op(n)(*((a, b) if n in two else (a,)), **p) for n, (p, _) in ON_GRIDS.items()
    ]
    for (name, (_, real)), got, eager in zip(
        ON_GRIDS.items(), computed(way, functions, [x, y]), computed("eager", functions, [x, y]), strict=True
    ):
        exact = np.clip(real(x.astype(np.float64), y.astype(np.float64)) / OUT.scale + OUT.zero_point, -128, 127)
        step = got / np.float32(OUT.scale) + OUT.zero_point
        bad = (np.abs(step - exact) > 1) | (step != np.rint(step)) | (got != eager)
        assert not bad.any(), listed(name, bad, [x, y], got, exact)
