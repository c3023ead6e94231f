"""Convolutions of every layout, rank, stride, dilation and grouping."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, ops, same


def put(letters: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[c] for c in letters)


@pytest.mark.parametrize("lhs", ["NHWC", "NCHW", "CHWN", "HWNC"])
@pytest.mark.parametrize("rhs", ["HWIO", "OIHW", "IHWO"])
@pytest.mark.parametrize("out", ["NHWC", "NCHW"])
def test_any_layout(lhs, rhs, out):
    x = normal(*put(lhs, {"N": 2, "H": 6, "W": 7, "C": 3}))
    w = normal(*put(rhs, {"H": 3, "W": 2, "I": 3, "O": 4}))
    g = same(lambda x: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=(lhs, rhs, out)), x)
    (n,) = (n for n in g.nodes if n.op == "conv_2d")
    assert n.inputs[1].shape == (4, 3, 2, 3)
    assert count(g).get("transpose", 0) == (lhs != "NHWC") + (out != "NHWC")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_window(data):
    def pick(*values):
        return data.draw(st.sampled_from(values))

    groups = pick(1, 1, 2, 4)
    depth, out = pick(1, 2), pick(4, 8)
    h, w = data.draw(st.integers(5, 9)), data.draw(st.integers(5, 9))
    kernel = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    strides = (pick(1, 2, 3), pick(1, 2))
    dilation = (pick(1, 1, 2), pick(1, 2))
    spread = (pick(1, 1, 2, 3), pick(1, 1, 2))
    padding = [(data.draw(st.integers(-1, 4)), data.draw(st.integers(-1, 4))) for _ in range(2)]
    x, k = normal(2, h, w, groups * depth), normal(*kernel, depth, out)

    def f(x):
        return lax.conv_general_dilated(
            x, k, strides, padding, lhs_dilation=spread, rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip

    if 0 in np.shape(f(jnp.asarray(x))):
        return
    g = same(f, x, atol=1e-4)
    if spread == (1, 1):
        depthwise = groups == groups * depth and groups > 1
        assert ("depthwise_conv_2d" if depthwise else "conv_2d") in count(g)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID", [(0, 1), (2, 0)]])
@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_transposed_convolutions(stride, padding, kernel):
    w = normal(kernel, kernel, 3, 5)
    layout = ("NHWC", "HWIO", "NHWC")
    g = same(
        lambda x: lax.conv_transpose(x, w, (stride, stride), padding, dimension_numbers=layout) + normal(5),
        normal(1, 4, 5, 3),
        atol=1e-4,
    )
    if padding == "VALID" and kernel >= stride:
        assert ops(g) == ["transpose_conv"]
        assert g.nodes[0].inputs[2] is not None


def test_depthwise_with_multiplier():
    w = normal(3, 3, 1, 12)
    layout = ("NHWC", "HWIO", "NHWC")
    g = same(
        lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, feature_group_count=4),
        normal(1, 5, 5, 4),
    )
    assert ops(g) == ["depthwise_conv_2d"]
    assert g.nodes[0].inputs[1].shape == (1, 3, 3, 12)


@pytest.mark.parametrize(("lhs", "rhs"), list(itertools.product(["NWC", "NCW"], ["WIO", "OIW"])))
def test_one_dimension(lhs, rhs):
    x = normal(*put(lhs, {"N": 2, "W": 9, "C": 4}))
    for groups in (1, 4):
        w = normal(*put(rhs, {"W": 3, "I": 4 // groups, "O": 8}))
        g = same(
            lambda x, w=w, groups=groups: lax.conv_general_dilated(
                x, w, (2,), [(2, 0)], dimension_numbers=(lhs, rhs, lhs), feature_group_count=groups
            ),
            x,
        )
        assert count(g)["conv_2d" if groups == 1 else "depthwise_conv_2d"] == 1


def test_no_spatial_dimension():
    w = normal(5, 3)
    same(lambda x: lax.conv_general_dilated(x, w, (), (), dimension_numbers=("NC", "OI", "NC")), normal(2, 3))


def test_three_dimensions_of_which_the_kernel_mixes_two():
    layout = ("NDHWC", "DHWIO", "NDHWC")
    for kernel in ((1, 3, 3), (3, 1, 2), (2, 3, 1)):
        w = normal(*kernel, 2, 4)
        same(
            lambda x, w=w: lax.conv_general_dilated(x, w, (1, 1, 1), "VALID", dimension_numbers=layout),
            normal(1, 4, 5, 6, 2),
        )


def volumes(strides, padding, **more):
    layout = ("NDHWC", "DHWIO", "NDHWC")
    return lambda x, w: lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=layout, **more)


@pytest.mark.parametrize(
    ("strides", "padding", "more", "op"),
    [
        ((1, 1, 1), "VALID", {}, "conv_3d"),
        ((2, 1, 2), "SAME", {"rhs_dilation": (1, 2, 1)}, "conv_3d"),
        ((1, 1, 1), ((2, 0), (-1, 3), (0, 0)), {}, "conv_3d"),
        ((1, 1, 1), "SAME", {"feature_group_count": 2}, "conv_3d"),
        ((1, 1, 1), ((1, 1), (2, 1), (1, 0)), {"lhs_dilation": (2, 2, 1)}, "transpose_conv_3d"),
    ],
    ids=str,
)
def test_three_dimensions_that_the_kernel_mixes(strides, padding, more, op):
    w = normal(2, 3, 2, 2 // more.get("feature_group_count", 1), 4)
    f = volumes(strides, padding, **more)
    graph = same(lambda x: f(x, w), normal(1, 4, 5, 6, 2))
    assert op in ops(graph) and "conv_2d" not in ops(graph)


def test_four_dimensions_are_refused():
    w = normal(2, 2, 2, 2, 2, 4)
    numbers = lax.ConvDimensionNumbers((0, 1, 2, 3, 4, 5), (5, 4, 0, 1, 2, 3), (0, 1, 2, 3, 4, 5))
    with pytest.raises(UnsupportedOpsError, match="over 4 dimensions"):
        graph_of(
            lambda x: lax.conv_general_dilated(x, w, (1,) * 4, "VALID", dimension_numbers=numbers),
            normal(1, 2, 4, 5, 6, 3),
        )


def test_groups_of_the_batch():
    w = normal(4, 3, 3, 3)
    with pytest.raises(UnsupportedOpsError, match="feature_group_count"):
        graph_of(lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME", batch_group_count=2), normal(2, 3, 5, 5))


def test_constants_that_become_weights():
    w = jnp.asarray(normal(3, 3, 3, 4))
    layout = ("NHWC", "HWIO", "NHWC")
    g = same(
        lambda x: lax.conv_general_dilated(
            x, (w * 2).astype(jnp.float32)[::-1], (1, 1), "SAME", dimension_numbers=layout
        ),
        normal(1, 5, 5, 3),
    )
    assert ops(g) == ["conv_2d"]
