"""Products and convolutions on tiles: every layout, stride, dilation, padding and group, on few and on many tiles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.kernels.ipu.chip import BOW, IpuSystem
from nxjax.lower.ipu.builder import IpuOptions
from nxjax.lower.ipu.interpret import interpret
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Copy, Execute
from nxjax.lower.ipu.verify import verify


def system(tiles: int, memory: int = BOW.memory) -> IpuSystem:
    return IpuSystem("small", "small IPU", replace(BOW, tiles=tiles, memory=memory), 1)


def run(f, *args, tiles: int = 16, memory: int = BOW.memory, tolerance: float = 1e-4, **options):
    program = nx.make_jaxpr(f)(*args)
    found = lower(program, system(tiles, memory), IpuOptions(**options))
    verify(found)
    (y,) = interpret(found, list(args))
    want = np.asarray(f(*args))
    assert y.dtype == want.dtype
    np.testing.assert_allclose(y.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
    return found


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("tiles", [1, 7, 1472])
@pytest.mark.parametrize(
    ("spec", "x", "y"),
    [
        ("ij,jk->ik", (3, 5), (5, 7)),
        ("ij,kj->ik", (64, 200), (33, 200)),
        ("abij,abjk->bika", (2, 3, 4, 5), (2, 3, 5, 6)),
        ("i,i->", (40,), (40,)),
        ("i,j->ij", (5,), (6,)),
        ("ij,jk->ik", (2, 0), (0, 3)),
        ("ij,jk->ik", (0, 2), (2, 3)),
        ("ijk,lkj->il", (4, 3, 5), (2, 5, 3)),
    ],
)
def test_any_product(spec, x, y, tiles):
    run(lambda a, b: nx.einsum(spec, a, b), numbers(0, *x), numbers(1, *y), tiles=tiles)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16"])
def test_dtypes(dtype):
    x, y = (np.random.default_rng(i).integers(0, 50, s).astype(dtype) for i, s in enumerate([(9, 33), (33, 5)]))
    out = np.int32 if "int" in dtype else np.float32
    run(lambda a, b: nx.lax.dot(a, b, preferred_element_type=out), x, y, tolerance=1e-2)


def test_integer_sums_wrap_around():
    x = np.full((2, 40), 2**30, np.int32)
    run(lambda a: nx.lax.dot(a, a.T), x)


@st.composite
def convolutions(draw):
    n = draw(st.integers(1, 3))
    group, batch_group = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    batch, ins = batch_group * draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5]))
    outs = draw(st.sampled_from([1, 2, 3])) * group * batch_group
    three = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(n))
    kernel, strides, holes, gaps = three(1, 3), three(1, 2), three(1, 2), three(1, 2)
    size = three(5, 8)
    padding = [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(n)]
    params = {
        "window_strides": strides, "padding": padding, "lhs_dilation": gaps, "rhs_dilation": holes,
        "feature_group_count": group, "batch_group_count": batch_group,
    }  # fmt: skip
    return (batch, ins * group, *size), (outs, ins, *kernel), params


@given(convolutions(), st.sampled_from([1, 5, 64]), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_any_convolution(convolution, tiles, seed):
    x, w, params = convolution
    run(lambda a, b: nx.lax.conv_general_dilated(a, b, **params), numbers(seed, *x), numbers(seed + 1, *w), tiles=tiles)


@pytest.mark.parametrize("numbers_", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("NHWC", "OIHW", "NCHW")])
@pytest.mark.parametrize("groups", [1, 8])
def test_layouts_and_channels_of_their_own(numbers_, groups):
    shape = lambda spec, sizes: [sizes[c] for c in spec]
    x = numbers(0, *shape(numbers_[0], {"N": 2, "H": 9, "W": 7, "C": 8}))
    w = numbers(1, *shape(numbers_[1], {"H": 3, "W": 2, "I": 8 // groups, "O": 16}))
    f = lambda a, b: nx.lax.conv_general_dilated(
        a, b, (2, 1), "SAME", dimension_numbers=numbers_, feature_group_count=groups
    )
    run(f, x, w, tiles=64)


def test_a_large_convolution_stays_windows_and_a_gradient_is_written_out():
    conv = lambda a, b: nx.lax.conv_general_dilated(a, b, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x, w = numbers(0, 2, 16, 16, 32), numbers(1, 3, 3, 32, 32)
    names = lambda p: {g.codelet.name for s in p.walk() if isinstance(s, Execute) for g in s.groups}
    direct = lower(nx.make_jaxpr(conv)(x, w), system(64))
    assert any("Amp" in n for n in names(direct)) and sum(isinstance(s, Copy) for s in direct.walk()) <= 1
    g = lambda a, b: nx.grad(lambda v: conv(a, v).sum())(b)
    found = run(g, x, w, tiles=64, tolerance=1e-2)
    edges = [e for s in found.walk() if isinstance(s, Execute) for g in s.groups for e in g.edges.values()]
    assert max(e.boxes.count for e in edges) < x.size // 2  # no tile holds most of the input


def test_products_that_do_not_fit_go_in_turns():
    found = run(lambda a, b: a @ b, numbers(0, 64, 512), numbers(1, 512, 512), tiles=8, memory=40_000, tolerance=1e-3)
    assert sum(isinstance(s, Execute) for s in found.walk()) > 2


def test_sums_of_one_turn_are_added_before_the_next():
    """Four turns, each over four parts of the sum: no more than one turn's parts are in memory."""
    x, y = numbers(0, 64, 256), numbers(1, 256, 128)
    found = run(lambda a, b: a @ b, x, y, tiles=8, memory=40_000, tolerance=1e-3)
    products = [s for s in found.walk() if isinstance(s, Execute) and any("Amp" in g.codelet.name for g in s.groups)]
    sums = {g.edges["y"].variable for s in products for g in s.groups}
    assert len(products) == len(sums) == 4
    assert {v.size for v in sums} == {4 * 64 * 128 // 4}


def test_half_partials_round_once_per_block():
    """Sums are single inside of a block of 16, half between blocks: Graphcore's instruction set."""
    x, y = numbers(0, 8, 64).astype(np.float16), numbers(1, 64, 16).astype(np.float16)
    program = nx.make_jaxpr(lambda a, b: a @ b)(x, y)
    (got,) = interpret(lower(program, system(1), IpuOptions(partials="float16")), [x, y])
    total = np.zeros((8, 16), np.float16)
    for k in range(0, 64, 16):
        block = x[:, k : k + 16].astype(np.float32) @ y[k : k + 16].astype(np.float32)
        total = (total.astype(np.float32) + block).astype(np.float16)
    np.testing.assert_array_equal(got, total)
    (single,) = interpret(lower(program, system(1)), [x, y])
    assert not np.array_equal(single, total)


def test_mixed_precision_takes_halves_into_products_only():
    x, y = numbers(0, 8, 64), numbers(1, 64, 16)
    found = run(lambda a, b: a @ b, x, y, precision="mixed", tolerance=2e-2)
    fields = {f.dtype for c in found.codelets() if "Amp" in c.name for f in c.fields if f.io == "in"}
    assert fields == {"float16"}
