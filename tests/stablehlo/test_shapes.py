"""Operations that move elements, and dynamic ones whose shapes are known."""

import pytest

from nxjax.errors import LoweringError, ShapeError
from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, agree, floats, ints, main

DYNAMIC = f"""
  %s = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
  %0 = stablehlo.dynamic_broadcast_in_dim %arg0, %s, dims = [1] : ({T(3)}, tensor<2xi32>) -> {T(2, 3)}
  %r = stablehlo.constant dense<[6]> : tensor<1xi32>
  %1 = stablehlo.dynamic_reshape %0, %r : ({T(2, 3)}, tensor<1xi32>) -> {T(6)}
  %2 = stablehlo.dynamic_iota %r, dim = 0 : (tensor<1xi32>) -> {T(6)}
  %3 = stablehlo.add %1, %2 : {T(6)}
  %z = stablehlo.constant dense<[1]> : tensor<1xi32>
  %p = stablehlo.constant dense<0.0> : tensor<f32>
  %4 = stablehlo.dynamic_pad %3, %p, %z, %z, %z :
    ({T(6)}, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> {T(13)}
  %n = stablehlo.get_dimension_size %4, dim = 0 : ({T(13)}) -> tensor<i32>
  %l = stablehlo.constant dense<[7]> : tensor<1xi32>
  %t = stablehlo.constant dense<[2]> : tensor<1xi32>
  %5 = stablehlo.real_dynamic_slice %4, %z, %l, %t :
    ({T(13)}, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> {T(3)}
  return %4, %n, %5 : {T(13)}, tensor<i32>, {T(3)}"""


def test_dynamic_operations_with_known_shapes():
    agree(main(DYNAMIC, [T(3)], [T(13), "tensor<i32>", T(3)]), floats(3))


def test_shapes_that_depend_on_data_are_refused():
    text = main(
        f"""
        %0 = stablehlo.real_dynamic_slice %arg0, %arg1, %arg1, %arg1 :
          ({T(13)}, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> {T(3)}
        return %0 : {T(3)}""",
        [T(13), "tensor<1xi32>"],
        [T(3)],
    )
    with pytest.raises(LoweringError, match="not a constant"):
        from_stablehlo(text, trusted=True)
    with pytest.raises(ShapeError, match="not known when the program is read"):
        from_stablehlo(main("return %arg0 : tensor<?xf32>", ["tensor<?xf32>"], ["tensor<?xf32>"]), trusted=True)


@pytest.mark.parametrize(("low", "high", "inside"), [(1, 2, 1), (-1, -2, 0), (-1, 1, 2), (0, 0, 0)])
def test_pad(low: int, high: int, inside: int):
    n = low + high + 6 + 5 * inside
    text = main(
        f"""
        %0 = stablehlo.pad %arg0, %arg1, low = [{low}], high = [{high}], interior = [{inside}] :
          ({T(6)}, {T()}) -> {T(n)}
        return %0 : {T(n)}""",
        [T(6), T()],
        [T(n)],
    )
    agree(text, floats(6), floats())


def test_broadcasts_permute_and_repeat():
    text = main(
        f"""
        %0 = stablehlo.broadcast_in_dim %arg0, dims = [2, 0] : ({T(3, 1)}, ) -> {T(4, 2, 3)}
        %1 = "stablehlo.broadcast"(%arg0) <{{broadcast_sizes = array<i64: 2>}}> : ({T(3, 1)}) -> {T(2, 3, 1)}
        return %0, %1 : {T(4, 2, 3)}, {T(2, 3, 1)}""".replace(", )", ")"),
        [T(3, 1)],
        [T(4, 2, 3), T(2, 3, 1)],
    )
    f = from_stablehlo(text, trusted=True)
    x = floats(3, 1)
    y, z = f(x)
    assert y[3, 1].tolist() == x[:, 0].tolist() and z[1].tolist() == x.tolist()


def test_tuples_and_bits():
    text = main(
        f"""
        %t = stablehlo.tuple %arg0, %arg0 : tuple<{T(3)}, {T(3)}>
        %x = stablehlo.get_tuple_element %t[1] : (tuple<{T(3)}, {T(3)}>) -> {T(3)}
        %0 = stablehlo.bitcast_convert %x : ({T(3)}) -> {T(3, 4, e="ui8")}
        %1 = stablehlo.bitcast_convert %0 : ({T(3, 4, e="ui8")}) -> {T(3, e="i32")}
        return %0, %1 : {T(3, 4, e="ui8")}, {T(3, e="i32")}""",
        [T(3)],
        [T(3, 4, e="ui8"), T(3, e="i32")],
    )
    agree(text, floats(3))


@pytest.mark.parametrize(
    ("e", "values", "expected"),
    [
        ("i4", "[1, -3, 7]", [1, -3, 7]),
        ("ui4", "[1, 13, 7]", [1, 13, 7]),
        ("bf16", "[1.5, -3.0, 0x7F80]", [1.5, -3.0, float("inf")]),
        ("f8E5M2", "[1.5, -3.0, 0.25]", [1.5, -3.0, 0.25]),
        ("f16", "2.5", [2.5, 2.5, 2.5]),
        ("i1", "[true, false, true]", [1, 0, 1]),
        ("ui64", "[1, 18446744073709551615, 3]", [1, 2**64 - 1, 3]),
        ("complex<f32>", "[(1.0, 2.0), (0.0, -1.0), (3.0, 0.0)]", [1 + 2j, -1j, 3]),
        ("complex<f64>", "(1.0, 2.0)", [1 + 2j] * 3),
    ],
)
def test_constants_of_every_kind(e: str, values: str, expected: list[complex]):
    text = main(f"%0 = stablehlo.constant dense<{values}> : tensor<3x{e}>\n return %0 : tensor<3x{e}>", [],
                [f"tensor<3x{e}>"])  # fmt: skip
    assert from_stablehlo(text, trusted=True)().tolist() == expected


def test_large_constants_are_consts_of_the_program():
    import jax

    from nxjax.interop import from_jax

    for dtype in ("float32", "bfloat16", "complex64", "int8"):
        w = ints(-100, 100, 64, 64).astype(jax.numpy.dtype(dtype))
        f = from_jax(lambda x, w=w: x + w)
        x = ints(0, 2, 64, 64).astype(w.dtype)
        assert (f(x).numpy() == (x + w)).all()
        from nxjax import make_jaxpr

        assert any(c.shape == (64, 64) for c in make_jaxpr(f)(x).literals)
