"""reduce with usual and unusual bodies."""

import numpy as np
import pytest

import nxjax as nx
from tests.stablehlo.modules import T, agree, floats, ints, main, ops_of


def reduced(body: str, x: str, out: str, dims: str, init: str | None = None) -> str:
    e = x.removesuffix(">").split("x")[-1]
    start = f"%i = stablehlo.constant dense<{init}> : tensor<{e}>" if init else ""
    return main(
        f"""
        {start}
        %0 = "stablehlo.reduce"(%arg0, {"%i" if init else "%arg1"}) <{{dimensions = array<i64: {dims}>}}> ({{
        ^bb0(%a: tensor<{e}>, %b: tensor<{e}>):
          {body}
          stablehlo.return %x : tensor<{e}>
        }}) : ({x}, tensor<{e}>) -> {out}
        return %0 : {out}""",
        [x] if init else [x, f"tensor<{e}>"],
        [out],
    )


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("init", ["0.0", "1.0", "0xFF800000", "0x7F800000"])
def test_monoids_with_any_initial_value(name: str, init: str):
    f = agree(reduced(f"%x = stablehlo.{name} %b, %a : tensor<f32>", T(5, 4), T(4), "0", init), floats(5, 4))
    assert "reduce" not in ops_of(f)


def test_an_initial_value_that_is_an_argument():
    text = reduced("%x = stablehlo.maximum %b, %a : tensor<i32>", T(5, 4, e="i32"), T(e="i32"), "0, 1")
    agree(text, ints(-9, 9, 5, 4), np.array(3, np.int32))


@pytest.mark.parametrize("name", ["or", "and", "add", "multiply", "maximum", "minimum"])
def test_truth_values(name: str):
    init = "true" if name in ("and", "multiply", "minimum") else "false"
    text = reduced(f"%x = stablehlo.{name} %a, %b : tensor<i1>", T(5, 4, e="i1"), T(5, e="i1"), "1", init)
    agree(text, ints(0, 2, 5, 4, dtype="bool"))


def test_any_body():
    body = """
      %m = stablehlo.multiply %a, %b : tensor<f32>
      %s = stablehlo.add %a, %b : tensor<f32>
      %x = stablehlo.subtract %s, %m : tensor<f32>"""
    f = agree(reduced(body, T(5, 4), T(4), "0", "0.0"), floats(5, 4) * 0.1)
    assert "reduce" in ops_of(f)
    x = nx.array(floats(5, 4) * 0.1)
    # 1 - prod(1 - x)
    expected = nx.grad(lambda x: (1 - nx.prod(1 - x, axis=0)).sum())(x)
    np.testing.assert_allclose(nx.grad(lambda x: f(x).sum())(x), expected, 1e-4, 1e-6)


def test_a_body_that_reads_what_is_outside():
    text = main(
        f"""
        %i = stablehlo.constant dense<1.0> : tensor<f32>
        %0 = "stablehlo.reduce"(%arg0, %i) <{{dimensions = array<i64: 0>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %m = stablehlo.multiply %a, %b : tensor<f32>
          %x = stablehlo.multiply %m, %arg1 : tensor<f32>
          stablehlo.return %x : tensor<f32>
        }}) : ({T(4, 3)}, tensor<f32>) -> {T(3)}
        return %0 : {T(3)}""",
        [T(4, 3), T()],
        [T(3)],
    )
    from nxjax.interop import from_stablehlo

    x = floats(4, 3)
    y = from_stablehlo(text, trusted=True)(x, np.float32(2.0))
    np.testing.assert_allclose(y.numpy(), x.prod(0) * 2.0**4, 1e-5)


@pytest.mark.parametrize(("direction", "name"), [("GT", "argmax"), ("LT", "argmin")])
def test_arg_extrema_are_found(direction: str, name: str):
    text = main(
        f"""
        %n = stablehlo.constant dense<{"0xFF800000" if direction == "GT" else "0x7F800000"}> : tensor<f32>
        %z = stablehlo.constant dense<0> : tensor<i32>
        %1 = stablehlo.iota dim = 1 : {T(3, 6, e="i32")}
        %0:2 = "stablehlo.reduce"(%arg0, %1, %n, %z) <{{dimensions = array<i64: 1>}}> ({{
        ^bb0(%a: tensor<f32>, %i: tensor<i32>, %b: tensor<f32>, %j: tensor<i32>):
          %gt = stablehlo.compare {direction}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %nan = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %first = stablehlo.or %gt, %nan : tensor<i1>
          %eq = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %lt = stablehlo.compare LT, %i, %j : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %tie = stablehlo.and %eq, %lt : tensor<i1>
          %left = stablehlo.or %first, %tie : tensor<i1>
          %v = stablehlo.select %first, %a, %b : tensor<i1>, tensor<f32>
          %k = stablehlo.select %left, %i, %j : tensor<i1>, tensor<i32>
          stablehlo.return %v, %k : tensor<f32>, tensor<i32>
        }}) : ({T(3, 6)}, {T(3, 6, e="i32")}, tensor<f32>, tensor<i32>) -> ({T(3)}, {T(3, e="i32")})
        return %0#0, %0#1 : {T(3)}, {T(3, e="i32")}""",
        [T(3, 6)],
        [T(3), T(3, e="i32")],
    )
    x = floats(3, 6).round(0)
    x[1, 4] = np.nan
    assert name in ops_of(agree(text, x))
