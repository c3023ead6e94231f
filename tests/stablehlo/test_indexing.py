"""gather and scatter: dimension numbers that JAX does not write, update computations that are no scatter here."""

import numpy as np

from tests.stablehlo.modules import T, agree, floats, ints, main


def test_scatter_with_any_computation_and_indices_out_of_bounds():
    text = main(
        f"""
        %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{{scatter_dimension_numbers = #stablehlo.scatter<
          update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1],
          index_vector_dim = 0>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %c = stablehlo.constant dense<2.0> : tensor<f32>
          %x = stablehlo.multiply %a, %c : tensor<f32>
          %p = stablehlo.subtract %b, %x : tensor<f32>
          stablehlo.return %p : tensor<f32>
        }}) : ({T(5, 4)}, {T(2, 6, e="i32")}, {T(6, 2)}) -> {T(5, 4)}
        return %0 : {T(5, 4)}""",
        [T(5, 4), T(2, 6, e="i32"), T(6, 2)],
        [T(5, 4)],
    )
    agree(text, floats(5, 4), ints(-1, 6, 2, 6), floats(6, 2, seed=1))


def test_scatter_of_operands_that_meet():
    text = main(
        f"""
        %0:2 = "stablehlo.scatter"(%arg0, %arg3, %arg1, %arg2, %arg2) <{{scatter_dimension_numbers =
          #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
          index_vector_dim = 1>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
          %x = stablehlo.add %a, %c : tensor<f32>
          %p = stablehlo.multiply %d, %a : tensor<f32>
          stablehlo.return %x, %p : tensor<f32>, tensor<f32>
        }}) : ({T(5)}, {T(5)}, {T(4, 1, e="i32")}, {T(4)}, {T(4)}) -> ({T(5)}, {T(5)})
        return %0#0, %0#1 : {T(5)}, {T(5)}""",
        [T(5), T(4, 1, e="i32"), T(4), T(5)],
        [T(5), T(5)],
    )
    agree(text, floats(5), ints(0, 5, 4, 1), floats(4, seed=1), floats(5, seed=2))


def test_scatter_with_batching_dimensions_and_any_computation():
    text = main(
        f"""
        %0 = "stablehlo.scatter"(%arg0, %arg1, %arg2) <{{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0],
          scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}}> ({{
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %x = stablehlo.multiply %a, %b : tensor<f32>
          %p = stablehlo.add %x, %b : tensor<f32>
          stablehlo.return %p : tensor<f32>
        }}) : ({T(3, 4)}, {T(3, 5, 1, e="i32")}, {T(3, 5)}) -> {T(3, 4)}
        return %0 : {T(3, 4)}""",
        [T(3, 4), T(3, 5, 1, e="i32"), T(3, 5)],
        [T(3, 4)],
    )
    agree(text, floats(3, 4), ints(0, 4, 3, 5, 1), floats(3, 5, seed=1))


def test_gather_without_an_index_vector_dimension():
    text = main(
        f"""
        %0 = "stablehlo.gather"(%arg0, %arg1) <{{dimension_numbers = #stablehlo.gather<offset_dims = [0],
          collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
          slice_sizes = array<i64: 4, 1>}}> : ({T(4, 5)}, {T(3, e="i32")}) -> {T(4, 3)}
        return %0 : {T(4, 3)}""",
        [T(4, 5), T(3, e="i32")],
        [T(4, 3)],
    )
    # Windows out of bounds are moved inside.
    agree(text, floats(4, 5), np.array([-3, 2, 77], np.int32))


def test_torch_index_select():
    text = main(
        f"""
        %0 = "stablehlo.torch_index_select"(%arg0, %arg1) <{{dim = 1 : i64, batch_dims = 1 : i64}}> :
          ({T(2, 5, 4)}, {T(2, 3, e="i32")}) -> {T(2, 3, 4)}
        return %0 : {T(2, 3, 4)}""",
        [T(2, 5, 4), T(2, 3, e="i32")],
        [T(2, 3, 4)],
    )
    agree(text, floats(2, 5, 4), ints(0, 5, 2, 3))
