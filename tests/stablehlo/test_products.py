"""dot_general, convolution and the older forms of products."""

import numpy as np
import pytest

from nxjax.errors import LoweringError
from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, agree, floats, ints, main


def product(op: str, ins: list[str], out: str) -> str:
    return main(f"%0 = {op} : ({', '.join(ins)}) -> {out}\n return %0 : {out}", ins, [out])


def test_integers_into_wider_ones():
    text = product(
        "stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]",
        [T(3, 4, e="i8"), T(4, 2, e="i8")],
        T(3, 2, e="i32"),
    )
    agree(text, ints(-128, 128, 3, 4, dtype="int8"), ints(-128, 128, 4, 2, dtype="int8"))


def test_batches_and_several_contractions():
    text = product(
        "stablehlo.dot_general %arg0, %arg1, batching_dims = [1] x [0], contracting_dims = [0, 2] x [3, 1]",
        [T(4, 2, 5, 3), T(2, 5, 6, 4)],
        T(2, 3, 6),
    )
    agree(text, floats(4, 2, 5, 3), floats(2, 5, 6, 4), tolerance=1e-4)


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize("groups", ["batch_group_count = 1 : i64, feature_group_count = 2 : i64"])
def test_convolution_with_everything(reverse: str, groups: str):
    window = f"{{stride = [2], pad = [[3, 1]], lhs_dilate = [2], rhs_dilate = [2], reverse = [{reverse}]}}"
    text = product(
        f"stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {window} "
        f"{{{groups}}}",
        [T(2, 8, 4), T(3, 2, 6)],
        T(2, 8, 6),
    )
    agree(text, floats(2, 8, 4), floats(3, 2, 6), tolerance=1e-4)


def test_convolution_in_groups_of_the_batch():
    text = product(
        "stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {} "
        "{batch_group_count = 2 : i64, feature_group_count = 1 : i64}",
        [T(4, 3, 7), T(6, 3, 2)],
        T(2, 6, 6),
    )
    agree(text, floats(4, 3, 7), floats(6, 3, 2), tolerance=1e-4)


@pytest.mark.parametrize(
    ("config", "a", "b", "out"),
    [
        ("bij,bjk->bki", (2, 3, 4), (2, 4, 5), (2, 5, 3)),
        ("ij,kj->ik", (3, 4), (5, 4), (3, 5)),
        ("ij,jk->k", (3, 4), (4, 5), (5,)),
        ("i,j->ji", (3,), (4,), (4, 3)),
    ],
)
def test_einsum(config: str, a: tuple[int, ...], b: tuple[int, ...], out: tuple[int, ...]):
    text = product(f'stablehlo.einsum %arg0, %arg1, config = "{config}"', [T(*a), T(*b)], T(*out))
    x, y = floats(*a), floats(*b, seed=1)
    z = from_stablehlo(text, trusted=True)(x, y)
    np.testing.assert_allclose(z, np.einsum(config, x, y), 1e-4, 1e-5)


def test_ragged_products_are_refused():
    text = """
    func.func public @main(%a: tensor<4x3xf32>, %b: tensor<2x3x5xf32>, %c: tensor<2xi32>) -> tensor<4x5xf32> {
      %0 = "chlo.ragged_dot"(%a, %b, %c) <{ragged_dot_dimension_numbers = #chlo.ragged_dot<
        lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0],
        rhs_group_dimensions = [0]>}> : (tensor<4x3xf32>, tensor<2x3x5xf32>, tensor<2xi32>) -> tensor<4x5xf32>
      return %0 : tensor<4x5xf32>
    }"""
    with pytest.raises(LoweringError, match=r"chlo\.ragged_dot cannot be imported"):
        from_stablehlo(text, trusted=True)
