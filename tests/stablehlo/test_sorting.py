"""sort with every kind of comparator, top_k."""

import numpy as np
import pytest

from tests.stablehlo.modules import T, agree, floats, ints, main, ops_of

SPECIAL = np.array([3, -1, 0.0, -0.0, 2, np.inf, -np.inf, 0.5, -7], np.float32)


def sorted_by(comparator: str, n: int, second: str = "i32") -> str:
    """Two operands of ``n`` elements sorted by a comparator of %a, %b and %c, %d."""
    ins = [T(n), T(n, e=second)]
    return main(
        f"""
        %0:2 = "stablehlo.sort"(%arg0, %arg1) <{{dimension = 0 : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<{second}>, %d: tensor<{second}>):
          {comparator}
          stablehlo.return %z : tensor<i1>
        }}) : ({", ".join(ins)}) -> ({", ".join(ins)})
        return %0#0, %0#1 : {", ".join(ins)}""",
        ins,
        ins,
    )


@pytest.mark.parametrize("kind", ["FLOAT", "TOTALORDER"])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE", "GE"])
def test_orders_of_floats(direction: str, kind: str):
    compare = f"%z = stablehlo.compare {direction}, %a, %b, {kind} : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    f = agree(sorted_by(compare, 9), SPECIAL, np.arange(9, dtype=np.int32))
    # `LE` is no strict order, so that only a network does what it says.
    assert ("sort" in ops_of(f)) == (direction in ("LT", "GT"))


def test_the_key_may_be_the_second_operand():
    compare = "%z = stablehlo.compare GT, %c, %d : (tensor<ui8>, tensor<ui8>) -> tensor<i1>"
    f = agree(sorted_by(compare, 9, "ui8"), floats(9), ints(0, 5, 9, dtype="uint8"))
    assert "sort" in ops_of(f)


def test_two_keys():
    body = """
      %lt = stablehlo.compare LT, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %eq = stablehlo.compare EQ, %c, %d : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %in = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %tie = stablehlo.and %eq, %in : tensor<i1>
      %z = stablehlo.or %lt, %tie : tensor<i1>"""
    f = agree(sorted_by(body, 12), floats(12), ints(0, 3, 12))
    assert "sort" in ops_of(f)


@pytest.mark.parametrize("n", [2, 3, 7, 16, 21])
def test_any_comparator(n: int):
    body = """
      %x = stablehlo.abs %a : tensor<f32>
      %y = stablehlo.abs %b : tensor<f32>
      %z = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
    f = agree(sorted_by(body, n), floats(n).round(0), ints(-9, 9, n))
    assert "sort" not in ops_of(f)


def test_a_network_works_on_rows():
    ins = [T(3, 7), T(3, 7, e="i32")]
    text = main(
        f"""
        %0:2 = "stablehlo.sort"(%arg0, %arg1) <{{dimension = 0 : i64, is_stable = true}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
          %x = stablehlo.multiply %a, %a : tensor<f32>
          %y = stablehlo.multiply %b, %b : tensor<f32>
          %z = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %z : tensor<i1>
        }}) : ({", ".join(ins)}) -> ({", ".join(ins)})
        return %0#0, %0#1 : {", ".join(ins)}""",
        ins,
        ins,
    )
    agree(text, floats(3, 7), ints(-9, 9, 3, 7))


def test_top_k():
    text = main(
        f"""
        %0:2 = chlo.top_k(%arg0, k = 3) : {T(2, 8)} -> ({T(2, 3)}, {T(2, 3, e="i32")})
        return %0#0, %0#1 : {T(2, 3)}, {T(2, 3, e="i32")}""",
        [T(2, 8)],
        [T(2, 3), T(2, 3, e="i32")],
    )
    agree(text, floats(2, 8))
