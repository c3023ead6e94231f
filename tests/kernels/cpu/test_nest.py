"""Loop nests: machine code against the meaning, for random spaces, strides and graphs, cut into items anywhere."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.backends.cpu.engine import engine
from nxjax.config import config
from nxjax.errors import LoweringError
from nxjax.kernels.cpu import nest_emit
from nxjax.kernels.cpu.expression import Constant, ExpressionNode
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.kernels.cpu.isa import named
from nxjax.kernels.cpu.nest import ACCUMULATORS, Input, Iota, Nest, Output, Reduction
from nxjax.kernels.cpu.nest_passes import CHUNK, widths
from nxjax.ops.arithmetic import add, div, mul, sub
from nxjax.ops.arithmetic import max as maximum
from nxjax.ops.compare import gt
from nxjax.ops.elementary import cos, exp, tanh
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from tests.kernels.cpu.running import ISAS, run

F32 = np.dtype(np.float32)
LOWEST = np.float32(-np.inf).tobytes()
ZERO = np.float32(0).tobytes()
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def dense(sizes, itemsize, order=None):
    strides, step = [0] * len(sizes), itemsize
    for d in reversed(order or range(len(sizes))):
        strides[d] = step
        step *= sizes[d]
    return tuple(strides)


def kept(sizes, count, itemsize):
    return (*dense(sizes[:count], itemsize), *(0 for _ in sizes[count:]))


def close(got, wanted, dtype=F32):
    if dtype.kind in "fV" or "float" in dtype.name:
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=2e-5, atol=2e-4)
    else:
        np.testing.assert_array_equal(got, wanted)


def cuts_of(nest, data):
    return sorted({data.draw(st.integers(0, nest.items)) for _ in range(3)}) if nest.items else []


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_elementwise(isa, data):
    sizes = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 7, 16, 33, 64, 130]), min_size=1, max_size=3)))
    dtype = data.draw(
        st.sampled_from([F32, dtypes.bfloat16, np.dtype(np.int8), np.dtype(np.float64), np.dtype(np.int64)])
    )
    size = dtype.itemsize
    order = data.draw(st.permutations(range(len(sizes))))
    repeated = data.draw(st.integers(0, len(sizes) - 1))
    y_shape = tuple(1 if d == repeated else n for d, n in enumerate(sizes))
    y_strides = tuple(0 if d == repeated else s for d, s in enumerate(dense(y_shape, size)))
    two = Constant(np.asarray(2, dtype).tobytes(), dtype)
    nodes = (
        two,
        ExpressionNode(add, (), (0, 1), dtype),
        Iota(dtype, 3, tuple(data.draw(st.integers(-1, 1)) for _ in sizes)),
        ExpressionNode(mul, (), (3, 2), dtype),
        ExpressionNode(gt, (), (5, 4), dtypes.bool_),
        ExpressionNode(select_n, (), (6, 5, 0), dtype),
    )
    outputs = (Output(7, dense(sizes, size)), Output(6, dense(sizes, 1)))
    nest = Nest(
        sizes, len(sizes), False, (Input(dtype, dense(sizes, size, order)), Input(dtype, y_strides)), nodes, outputs
    )
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, [sizes[d] for d in order]).astype(dtype).transpose(np.argsort(order))
    y = rng.integers(-9, 9, y_shape).astype(dtype)
    for got, wanted in zip(
        run(nest, x, y, name=isa, cuts=cuts_of(nest, data), strided=True), nest.meaning(x, y), strict=True
    ):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("int8", "int16", "float32", "float64")], ids=str)
@pytest.mark.parametrize("step", [-2, -1, 1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("n", [1, 5, 64, 200])
def test_steps_along_the_lanes(isa, dtype, step, n):
    """Nothing is read before the first element or after the last one: the array ends with its memory."""
    x = np.arange(abs(step) * (n - 1) + 1).astype(dtype)[::step]
    assert len(x) == n
    size = dtype.itemsize
    nest = Nest(
        (n,),
        1,
        False,
        (Input(dtype, (step * size,)),),
        (ExpressionNode(add, (), (0, 0), dtype),),
        (Output(1, (size,)),),
    )
    np.testing.assert_array_equal(run(nest, x, name=isa, strided=True)[0], x + x)


def softmax_like(sizes, count, rows, full):
    """max, exp, sum, and a second reduction; with outputs of both kinds."""
    nodes = (
        Reduction("max", 0, LOWEST, F32),
        ExpressionNode(sub, (), (0, 1), F32),
        ExpressionNode(exp, (), (2,), F32),
        Reduction("add", 3, ZERO, F32),
        ExpressionNode(mul, (), (3, 4), F32),
        ExpressionNode(add, (), (4, 1), F32),
    )
    outputs = [Output(6, kept(sizes, count, 4)), Output(1, kept(sizes, count, 4))]
    if full:
        outputs.append(Output(5, dense(sizes, 4)))
    return Nest(sizes, count, rows, (Input(F32, dense(sizes, 4)),), nodes, tuple(outputs))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_passes(isa, rows, data):
    pick = st.sampled_from([1, 2, 5, 16, 31, 64, 200])
    sizes = tuple(data.draw(pick) for _ in range(data.draw(st.integers(2, 3))))
    count = data.draw(st.integers(1, len(sizes) - 1))
    if np.prod(sizes[count:]) == 1:
        sizes = (*sizes[:-1], 3)
    nest = softmax_like(sizes, count, rows, data.draw(st.booleans()))
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    for got, wanted in zip(run(nest, x, name=isa, cuts=cuts_of(nest, data)), nest.meaning(x), strict=True):
        close(got, wanted)


def reduction_of_reduction(sizes, count, rows):
    """``cos(x)`` does not need the first sum, and is first needed after it, twice."""
    nodes = (
        ExpressionNode(cos, (), (0,), F32),
        Reduction("add", 0, ZERO, F32),
        ExpressionNode(sub, (), (0, 2), F32),
        ExpressionNode(mul, (), (3, 1), F32),
        Reduction("add", 4, ZERO, F32),
        ExpressionNode(mul, (), (5, 1), F32),
        Reduction("add", 6, ZERO, F32),
    )
    return Nest(sizes, count, rows, (Input(F32, dense(sizes, 4)),), nodes, (Output(7, kept(sizes, count, 4)),))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("sizes", [(1, 3), (5, 40), (64, 129), (2, 3, 7)], ids=str)
def test_what_is_saved_is_made_by_the_first_pass_that_needs_it(isa, rows, sizes):
    nest = reduction_of_reduction(sizes, len(sizes) - 1, rows)
    assert nest.scratch
    x = np.random.default_rng(0).uniform(-1, 1, sizes).astype(np.float32)
    wide, t = x.astype(np.float64), np.cos(x.astype(np.float64))
    first = ((wide - wide.sum(-1, keepdims=True)) * t).sum(-1, keepdims=True)
    (got,) = run(nest, x, name=isa)
    np.testing.assert_allclose(got, (first * t).sum(-1), rtol=1e-4, atol=1e-4 * np.abs(first).max() * sizes[-1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 15, 16, 17, 31, 33, 47, 49, 63, 65, 97, 113, 129])
def test_lanes_beyond_the_end_change_nothing(isa, dtype, n):
    """They hold 0 / 0. One lane in the last register is a case of its own for LLVM."""
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    nodes = (
        ExpressionNode(div, (), (0, 0), dtype),
        ExpressionNode(mul, (), (0, 1), dtype),
        Reduction("add", 2, bytes(size), dtype),
    )
    nest = Nest((1, n), 1, True, (Input(dtype, (0, size)),), nodes, (Output(3, (size, 0)),))
    x = np.arange(1, n + 1, dtype=dtype)[None]
    np.testing.assert_array_equal(run(nest, x, name=isa)[0], x.sum())


BOUNDED = (cos, tanh)
PAIRS = (add, sub, mul, maximum)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_graphs(isa, rows, data):
    """Any graph of element-wise ops and reductions, over inputs that vary along any of the dimensions, in float64."""
    f64 = np.dtype(np.float64)
    pick = lambda n: data.draw(st.integers(0, n - 1))
    sizes = tuple(data.draw(st.sampled_from([1, 2, 3, 8, 17, 40])) for _ in range(2 + pick(2)))
    count = 1 + pick(len(sizes) - 1)
    if np.prod(sizes[count:]) == 1:
        sizes = (*sizes[:-1], 3)
    rng = np.random.default_rng(pick(100))
    xs, inputs = [], []
    for k in range(1 + pick(3)):
        shape = tuple(1 if k and not pick(3) else n for n in sizes)
        strides = tuple(0 if a != n else s for a, n, s in zip(shape, sizes, dense(shape, 8), strict=True))
        xs.append(rng.uniform(-1, 1, shape))
        inputs.append(Input(f64, strides))
    nodes = []
    recent = lambda have: have - 1 - min(pick(have), pick(have))
    for _ in range(3 + pick(9)):
        have = len(inputs) + len(nodes)
        reduced = [i for i, n in enumerate(nodes, len(inputs)) if isinstance(n, Reduction)]
        dear = [i for i, n in enumerate(nodes, len(inputs)) if isinstance(n, ExpressionNode) and n.op in BOUNDED]
        match pick(5):
            case 0:
                op, start = ("max", np.float64(-np.inf).tobytes()) if pick(2) else ("add", bytes(8))
                nodes.append(Reduction(op, recent(have), start, f64))
            case 1:
                nodes.append(ExpressionNode(BOUNDED[pick(2)], (), (recent(have),), f64))
            case 2 if reduced and dear:  # a dear value that two passes after a reduction need
                twice, total = dear[pick(len(dear))], Reduction("add", have, bytes(8), f64)
                nodes += [ExpressionNode(mul, (), (reduced[pick(len(reduced))], twice), f64), total]
                nodes.append(ExpressionNode(mul, (), (have + 1, twice), f64))
            case _:
                nodes.append(ExpressionNode(PAIRS[pick(4)], (), (pick(have), recent(have)), f64))
    first = len(inputs)
    # A nest reduces what belongs to the whole space only.
    full = [any(s and n > 1 for s, n in zip(i.strides[count:], sizes[count:], strict=True)) for i in inputs]
    for k, node in enumerate(nodes):
        if isinstance(node, Reduction) and not full[node.arg]:
            node = nodes[k] = ExpressionNode(tanh, (), (node.arg,), f64)
        full.append(False if isinstance(node, Reduction) else any(full[a] for a in node.args))
    wanted = {len(full) - 1, *(first + pick(len(nodes)) for _ in range(pick(3)))}
    outputs = tuple(Output(i, dense(sizes, 8) if full[i] else kept(sizes, count, 8)) for i in sorted(wanted))
    nest = Nest(sizes, count, rows, tuple(inputs), tuple(nodes), outputs)
    for got, meant in zip(
        run(nest, *xs, name=isa, strided=True, cuts=cuts_of(nest, data)), nest.meaning(*xs), strict=True
    ):
        scale = max(1.0, np.abs(meant).max())
        np.testing.assert_allclose(got / scale, meant / scale, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", [(9, 700), (40, 1500), (3, 4, 1000), (100, 600), (5, 10_001), (2, 3, 8192)], ids=str)
def test_whole_rows_of_columns(isa, shape):
    """Accumulators of wide columns wait in memory; the first dimension is kept where there are three."""
    count = len(shape) - 1
    sizes = (*shape[: count - 1], shape[-1], shape[-2])  # kept with the lanes last, then reduced
    strides = dense(shape, 4)
    inner = (*strides[: count - 1], strides[-1], strides[-2])
    nodes = (ExpressionNode(mul, (), (0, 0), F32), Reduction("add", 1, ZERO, F32), Reduction("max", 0, LOWEST, F32))
    outputs = (Output(2, kept(sizes, count, 4)), Output(3, kept(sizes, count, 4)))
    nest = Nest(sizes, count, False, (Input(F32, inner),), nodes, outputs)
    assert nest.whole
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = run(nest, x.swapaxes(-1, -2), name=isa, strided=True, cuts=range(1, nest.items))
    close(got[0], (x * x).sum(-2))
    np.testing.assert_array_equal(got[1], x.max(-2))


def _extremes_of_columns(dtype, columns):
    """The largest of 27 rows, in blocks of columns."""
    size = dtype.itemsize
    lowest = np.asarray(np.iinfo(dtype).min, dtype).tobytes()
    inputs, outputs = (
        (Input(dtype, (27 * columns * size, size, columns * size)),),
        (Output(1, (columns * size, size, 0)),),
    )
    nest = Nest((10, columns, 27), 2, False, inputs, (Reduction("max", 0, lowest, dtype),), outputs)
    assert nest.blocks > 1
    return nest


NARROW = [("int8", 1201), ("int8", 1024), ("uint8", 1600), ("int16", 1000), ("uint16", 801)]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("dtype", "columns"), NARROW)
def test_blocks_of_narrow_columns(isa, dtype, columns):
    nest = _extremes_of_columns(np.dtype(dtype), columns)
    x = np.random.default_rng(0).integers(0, 100, (10, 27, columns)).astype(dtype)
    (got,) = run(nest, x.swapaxes(1, 2), name=isa, strided=True, cuts=range(1, nest.items))
    np.testing.assert_array_equal(got, x.max(1))


@pytest.mark.parametrize(("bits", "registers"), [(128, 16), (128, 32), (256, 16), (256, 32), (512, 32)])
@pytest.mark.parametrize(("dtype", "columns"), NARROW)
def test_a_block_of_columns_ends_where_a_vector_does(bits, registers, dtype, columns):
    """Of every width of vectors, also those that this processor has not."""
    nest = _extremes_of_columns(np.dtype(dtype), columns)
    _, lanes = widths(nest, replace(named("portable"), bits=bits, registers=registers))
    assert nest.block % lanes == 0


@pytest.mark.parametrize("isa", ISAS)
def test_vectors_wider_than_their_memory_are_refused(isa, monkeypatch):
    """Whatever chooses the width: the code would write past a block, an accumulator's room or a saved value's."""
    sizes, strides = (1201, 27), (4, 4 * 1201)
    inputs, outputs = (Input(F32, strides),), (Output(1, (4, 0)),)
    whole = Nest(sizes, 1, False, inputs, (Reduction("add", 0, ZERO, F32),), outputs)
    softmax = (
        Reduction("max", 0, LOWEST, F32),
        ExpressionNode(sub, (), (0, 1), F32),
        ExpressionNode(exp, (), (2,), F32),
        Reduction("add", 3, ZERO, F32),
        ExpressionNode(div, (), (3, 4), F32),
    )
    saved = Nest(sizes, 1, False, inputs, softmax, (Output(5, strides),))
    assert whole.whole and saved.plan.slots
    for nest, lanes in ((_extremes_of_columns(np.dtype("int8"), 1201), 512), (whole, 2048), (saved, 128)):
        nest.emit(LlvmModule(), named(isa))
        with monkeypatch.context() as patch:
            patch.setattr(nest_emit, "widths", lambda *_, lanes=lanes: (lanes, lanes))
            with pytest.raises(LoweringError, match="columns"):
                nest.emit(LlvmModule(), named(isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("int8", "uint16", "int32", "float16", "float64")], ids=str)
@pytest.mark.parametrize("n", [2, 13, 64, 1000, 20000])
def test_reductions_of_dtypes(isa, dtype, n):
    x = np.random.default_rng(n).integers(0, 5, (3, n)).astype(dtype)
    wide = F32 if dtype == np.float16 else dtype
    nodes = (
        Reduction("add", 0, np.asarray(0, wide).tobytes(), dtype),
        Reduction("min", 0, np.asarray(100, dtype).tobytes(), dtype),
    )
    size = dtype.itemsize
    outputs = (Output(1, (size, 0)), Output(2, (size, 0)))
    nest = Nest((3, n), 1, True, (Input(dtype, (n * size, size)),), nodes, outputs)
    total, least = run(nest, x, name=isa)
    np.testing.assert_array_equal(least, x.min(1))
    np.testing.assert_array_equal(total, x.astype(wide).sum(1, dtype=wide).astype(dtype))


def test_sums_are_accurate():
    """A long row is at least as exact as NumPy's pairwise sum, about."""
    n = 1 << 20
    x = np.random.default_rng(0).standard_normal((1, n)).astype(np.float32)
    nest = Nest((1, n), 1, True, (Input(F32, (0, 4)),), (Reduction("add", 0, ZERO, F32),), (Output(1, (4, 0)),))
    exact = x.astype(np.float64).sum()
    ours = abs(run(nest, x)[0][0] - exact)
    assert ours <= 4 * max(abs(x.sum() - exact), 1e-3)


def associated(x):
    """Sums along all axes of [kept, ..., n] but the first in the order of a fixed reduction, which the docs promise."""

    def added(totals, x):
        """``totals`` and all of ``x``, and how many additions were made one after the other."""
        last = x.ndim == 2
        n, unit = x.shape[1], ACCUMULATORS if last else 1
        inner = 1 if last else added(zeros(), x[:, 0])[1]
        if n * inner <= 2 * CHUNK * unit:
            for e in range(n):
                if last:
                    totals[:, e % ACCUMULATORS] += x[:, e]
                else:
                    added(totals, x[:, e])
            return totals, max(n // unit, 1) * inner
        part = max(CHUNK // inner, 1)
        while -(-(n // unit) // part) > 2 * CHUNK:
            part *= CHUNK
        whole = n // unit * unit
        for start in range(0, whole, part * unit):
            totals += added(zeros(), x[:, start : min(start + part * unit, whole)])[0]
        if whole < n:
            added(totals, x[:, whole:])
        return totals, -(-(n // unit) // part)

    zeros = lambda: np.zeros((len(x), ACCUMULATORS), x.dtype)
    totals, _ = added(zeros(), x)
    while totals.shape[1] > 1:
        half = totals.shape[1] // 2
        totals = totals[:, :half] + totals[:, half:]
    return totals[:, 0]


PART = CHUNK * ACCUMULATORS


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("n", [1, 7, 8, 9, PART, 2 * PART - 1, 2 * PART, 2 * PART + 1, 2 * PART + 8, 3 * PART + 9])
def test_fixed_reductions_have_the_order_that_is_promised(isa, rows, dtype, n):
    """To the bit, of one reduced dimension and of two, of any number of columns."""
    dtype = np.dtype(dtype)
    for sizes in ((1, n), (3, n), (17, 2, n)) if n > 1 else ((5, 3, n), (2, 300, n), (2, 129, 5, n)):
        outputs = (Output(1, kept(sizes, 1, dtype.itemsize)),)
        nodes = (Reduction("add", 0, bytes(dtype.itemsize), dtype),)
        inputs = (Input(dtype, dense(sizes, dtype.itemsize)),)
        x = np.random.default_rng(n).standard_normal(sizes).astype(dtype)
        with config.using(reproducible=True, cpu_isa=isa):
            (got,) = run(Nest(sizes, 1, rows, inputs, nodes, outputs, fixed=True), x)
        np.testing.assert_array_equal(got, associated(x))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.int32, np.float64], ids=["int32", "float64"])
@pytest.mark.parametrize("sizes", [(2,), (3, 2)], ids=str)
def test_rows_about_the_length_of_a_chunk(isa, dtype, sizes):
    """Whole numbers, so that every order gives the same: of some chunks, and of some more or fewer elements."""
    dtype = np.dtype(dtype)

    def nest(n):
        full = (*sizes, n)
        nodes = (Reduction("add", 0, bytes(dtype.itemsize), dtype),)
        outputs = (Output(1, kept(full, 1, dtype.itemsize)),)
        return Nest(full, 1, True, (Input(dtype, dense(full, dtype.itemsize)),), nodes, outputs)

    lanes = widths(nest(10**6), named(isa))[1]
    chunk = CHUNK * lanes
    for n in (2 * chunk - 1, 2 * chunk, 2 * chunk + 1, 2 * chunk + lanes, 3 * chunk - 1, 3 * chunk, 3 * chunk + 1):
        x = np.random.default_rng(n).integers(-(10**6), 10**6, (*sizes, n)).astype(dtype)
        (got,) = run(nest(n), x, name=isa)
        np.testing.assert_array_equal(got, x.reshape(sizes[0], -1).sum(1, dtype=dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64, np.float32, np.float64], ids=lambda d: d.__name__)
@pytest.mark.parametrize("end", [-(2**31) - 1, -(2**31), 2**31 - 1, 2**31])
def test_numbers_of_elements_that_pass_32_bits(isa, dtype, end):
    """Sequences that end, or begin, at the ends of int32, along the lanes and another dimension; both ways."""
    dtype = np.dtype(dtype)
    sizes = (2, 21)
    for offset, steps in ((end, (-1, -1)), (end, (1, 1)), (end - 21, (1, 1)), (end + 23, (-3, -1))):
        nest = Nest(sizes, 2, False, (), (Iota(dtype, offset, steps),), (Output(0, dense(sizes, dtype.itemsize)),))
        (got,) = run(nest, name=isa)
        i, j = np.indices(sizes)
        whole = offset + steps[0] * i + steps[1] * j
        np.testing.assert_array_equal(got, whole.astype(dtype))


def test_what_may_lie_in_one_place():
    inputs = (Input(F32, (40, 4)), Input(F32, (0, 4)))
    nest = Nest((9, 10), 2, False, inputs, (ExpressionNode(add, (), (0, 1), F32),), (Output(2, (40, 4)),))
    assert nest.inplace == ((0, 0),)
    for size, dtype in ((1, "int8"), (2, "int16"), (1, "bool")):
        d = np.dtype(dtype)
        small = Nest((9, 10), 2, False, (Input(d, (10 * size, size)),), (), (Output(0, (10 * size, size)),))
        assert small.inplace == ((0, 0),)
    # The row is read again after it has been written.
    nodes = (
        Reduction("max", 0, LOWEST, F32),
        ExpressionNode(add, (), (0, 0), F32),
        ExpressionNode(mul, (), (0, 1), F32),
    )
    twice = Nest((9, 10), 1, True, inputs[:1], nodes, (Output(2, (40, 4)), Output(3, (40, 4))))
    assert twice.inplace == ((1, 0),)


def test_keys():
    def nest(n, stride=4):
        return Nest(
            (n,), 1, False, (Input(F32, (stride,)),), (ExpressionNode(add, (), (0, 0), F32),), (Output(1, (4,)),)
        )

    assert nest(5).key == nest(5).key != nest(6).key
    assert nest(5).key != nest(5, 8).key
    assert nest(5).title == "add"


def test_nothing_and_one():
    for n in (0, 1):
        x = np.ones((n, 3), np.float32)
        nest = Nest((n, 3), 1, True, (Input(F32, (12, 4)),), (Reduction("add", 0, ZERO, F32),), (Output(1, (4, 0)),))
        assert nest.items == n
        np.testing.assert_array_equal(run(nest, x)[0], x.sum(1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "columns"])
@pytest.mark.parametrize("total", [1000, 901, 900, 1199, 1200])
def test_blocks_of_a_reduction(isa, rows, total):
    """A dimension in blocks of 300; the last one may have fewer."""
    nodes = (ExpressionNode(mul, (), (0, 0), F32), Reduction("add", 1, ZERO, F32))
    strides, x_shape = ((1200, 4), (total,)) if rows else ((300 * 28, 4, 28), (7, total))
    count = -(-total // 300)
    sizes = (count, 300) if rows else (count, 7, 300)
    outputs = (Output(2, kept(sizes, len(sizes) - 1, 4)),)
    nest = Nest(sizes, len(sizes) - 1, rows, (Input(F32, strides),), nodes, outputs, total)
    x = np.random.default_rng(0).standard_normal(x_shape[::-1]).astype(np.float32).T
    (got,) = run(nest, x, name=isa, strided=True, cuts=[1, 3])
    wanted = [(x[..., i : i + 300].astype(np.float64) ** 2).sum(-1) for i in range(0, total, 300)]
    close(got, np.stack(wanted))
    close(nest.meaning(x)[0], np.stack(wanted))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("offset", [0, 4, 8, 16, 32, 48, 60])
def test_streams_want_no_alignment(isa, offset):
    """An output may have been moved since it was planned to go past the caches."""
    n = 5000
    nest = Nest((n,), 1, False, (Input(F32, (4,)),), (ExpressionNode(add, (), (0, 0), F32),), (Output(1, (4,), True),))
    x, y = np.arange(n, dtype=np.float32), np.zeros(n + 32, np.float32)
    place = -y.ctypes.data % 64 + offset
    words = np.array([x.ctypes.data, y.ctypes.data + place], np.uint64)
    (address,) = engine(named(isa)).addresses([nest])
    _TYPE(address)(words.ctypes.data, 0, nest.items, None)
    np.testing.assert_array_equal(y[place // 4 : place // 4 + n], 2 * x)
    assert not y[place // 4 + n :].any()
    # Such stores are seen by other threads after a fence only, which no test on one processor can tell by its numbers.
    text = engine(named(isa)).texts([nest])
    assert "nontemporal" in text and "fence seq_cst" in text[text.rindex("nontemporal") :]


@pytest.mark.parametrize("isa", ISAS)
def test_a_module_has_the_code_of_a_function_some_times_and_calls_it_from_then_on(isa):
    def nest(points, times):
        nodes = [ExpressionNode(tanh, (), (i,), F32) for i in range(times)]
        return Nest((points,), 1, False, (Input(F32, (4,)),), tuple(nodes), (Output(times, (4,)),))

    def lines(points, times):
        return engine(named(isa)).texts([nest(points, times)]).count("\n")

    some = nest_emit.IN_LINE
    assert lines(64, 10 * some) < 2 * lines(64, some)
    assert lines(2 * nest_emit.FEW_POINTS, 10 * some) > 9 * lines(64, some)
    x = np.linspace(-3, 3, 64, dtype=np.float32)
    called, in_line = (run(nest(n, 2 * some), np.resize(x, n), name=isa)[0] for n in (64, 2 * nest_emit.FEW_POINTS))
    assert called.tobytes() == in_line[:64].tobytes()
