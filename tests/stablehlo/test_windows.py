"""reduce_window and select_and_scatter with usual and unusual bodies."""

import numpy as np
import pytest

from tests.stablehlo.modules import T, agree, floats, main, ops_of


@pytest.mark.parametrize("init", ["0.5", "0.0", "1.0"])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
def test_windows_with_dilations_and_padding(name: str, init: str):
    text = main(
        f"""
        %i = stablehlo.constant dense<{init}> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%arg0, %i) <{{window_dimensions = array<i64: 2, 3>,
          window_strides = array<i64: 1, 2>, base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 1, 2>,
          padding = dense<[[1, 0], [2, 1]]> : tensor<2x2xi64>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %x = stablehlo.{name} %a, %b : tensor<f32>
          stablehlo.return %x : tensor<f32>
        }}) : ({T(5, 6)}, tensor<f32>) -> {T(9, 3)}
        return %0 : {T(9, 3)}""",
        [T(5, 6)],
        [T(9, 3)],
    )
    agree(text, floats(5, 6))


def test_windows_of_pairs():
    text = main(
        f"""
        %i = stablehlo.constant dense<0.0> : tensor<f32>
        %j = stablehlo.constant dense<0> : tensor<i32>
        %0:2 = "stablehlo.reduce_window"(%arg0, %arg1, %i, %j) <{{window_dimensions = array<i64: 3>,
          padding = dense<[[1, 1]]> : tensor<1x2xi64>}}> ({{
        ^bb0(%a: tensor<f32>, %c: tensor<i32>, %b: tensor<f32>, %d: tensor<i32>):
          %p = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          %x = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
          %y = stablehlo.select %p, %c, %d : tensor<i1>, tensor<i32>
          stablehlo.return %x, %y : tensor<f32>, tensor<i32>
        }}) : ({T(6)}, {T(6, e="i32")}, tensor<f32>, tensor<i32>) -> ({T(6)}, {T(6, e="i32")})
        return %0#0, %0#1 : {T(6)}, {T(6, e="i32")}""",
        [T(6), T(6, e="i32")],
        [T(6), T(6, e="i32")],
    )
    agree(text, floats(6), np.arange(6, dtype=np.int32))


def test_a_body_that_is_not_associative_is_applied_in_order():
    text = main(
        f"""
        %i = stablehlo.constant dense<0.5> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%arg0, %i) <{{window_dimensions = array<i64: 2, 3>,
          padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %x = stablehlo.subtract %a, %b : tensor<f32>
          stablehlo.return %x : tensor<f32>
        }}) : ({T(5, 6)}, tensor<f32>) -> {T(5, 5)}
        return %0 : {T(5, 5)}""",
        [T(5, 6)],
        [T(5, 5)],
    )
    agree(text, floats(5, 6))


@pytest.mark.parametrize(("pads", "reverse"), [("[[5, 0]]", False), ("[[0, 5]]", True)])
def test_running_sums_are_found(pads: str, reverse: bool):
    text = main(
        f"""
        %i = stablehlo.constant dense<0.0> : tensor<f32>
        %0 = "stablehlo.reduce_window"(%arg0, %i) <{{window_dimensions = array<i64: 6>,
          padding = dense<{pads}> : tensor<1x2xi64>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %x = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %x : tensor<f32>
        }}) : ({T(6)}, tensor<f32>) -> {T(6)}
        return %0 : {T(6)}""",
        [T(6)],
        [T(6)],
    )
    f = agree(text, floats(6))
    assert ops_of(f) == ["cumsum"] and f.program.equations[0].params["reverse"] is reverse


@pytest.mark.parametrize(("select", "combine"), [("GE", "add"), ("LE", "add"), ("LE", "multiply"), ("GT", "maximum")])
def test_select_and_scatter(select: str, combine: str):
    text = main(
        f"""
        %i = stablehlo.constant dense<{"0.0" if combine == "add" else "1.0"}> : tensor<f32>
        %0 = "stablehlo.select_and_scatter"(%arg0, %arg1, %i) <{{window_dimensions = array<i64: 3>,
          window_strides = array<i64: 2>, padding = dense<[[1, 0]]> : tensor<1x2xi64>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %p = stablehlo.compare {select}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        }}, {{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %p = stablehlo.{combine} %a, %b : tensor<f32>
          stablehlo.return %p : tensor<f32>
        }}) : ({T(8)}, {T(4)}, tensor<f32>) -> {T(8)}
        return %0 : {T(8)}""",
        [T(8), T(4)],
        [T(8)],
    )
    f = agree(text, floats(8), floats(4, seed=1))
    assert ("select_and_scatter_add" in ops_of(f)) == (combine == "add")
