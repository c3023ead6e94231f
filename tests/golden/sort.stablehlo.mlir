module @sort {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
    %0 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x3xui64>
    %1 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
    %2 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
    %3 = stablehlo.compare EQ, %arg0, %2, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %4 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
    %5 = "stablehlo.select"(%3, %4, %arg0) : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %6 = "stablehlo.bitcast_convert"(%5) : (tensor<2x3xf32>) -> tensor<2x3xi32>
    %7 = stablehlo.constant dense<0> : tensor<i32>
    %8 = "stablehlo.broadcast_in_dim"(%7) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
    %9 = stablehlo.compare LT, %6, %8, SIGNED : (tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi1>
    %10 = stablehlo.constant dense<-2147483648> : tensor<i32>
    %11 = "stablehlo.broadcast_in_dim"(%10) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
    %12 = stablehlo.subtract %11, %6 : tensor<2x3xi32>
    %13 = "stablehlo.select"(%9, %12, %6) : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %14 = stablehlo.compare NE, %5, %5, FLOAT : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    %15 = stablehlo.constant dense<2147483647> : tensor<i32>
    %16 = "stablehlo.broadcast_in_dim"(%15) {broadcast_dimensions = array<i64>} : (tensor<i32>) -> tensor<2x3xi32>
    %17 = "stablehlo.select"(%14, %16, %13) : (tensor<2x3xi1>, tensor<2x3xi32>, tensor<2x3xi32>) -> tensor<2x3xi32>
    %18 = "stablehlo.bitcast_convert"(%17) : (tensor<2x3xi32>) -> tensor<2x3xui32>
    %19 = stablehlo.constant dense<2147483648> : tensor<ui32>
    %20 = "stablehlo.broadcast_in_dim"(%19) {broadcast_dimensions = array<i64>} : (tensor<ui32>) -> tensor<2x3xui32>
    %21 = stablehlo.xor %18, %20 : tensor<2x3xui32>
    %22 = "stablehlo.convert"(%21) : (tensor<2x3xui32>) -> tensor<2x3xui64>
    %23 = stablehlo.constant dense<2> : tensor<ui64>
    %24 = "stablehlo.broadcast_in_dim"(%23) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
    %25 = stablehlo.shift_left %22, %24 : tensor<2x3xui64>
    %26 = stablehlo.or %0, %25 : tensor<2x3xui64>
    %27 = "stablehlo.sort"(%26) ({
    ^bb0(%28: tensor<ui64>, %29: tensor<ui64>):
      %30 = stablehlo.compare LT, %28, %29, UNSIGNED : (tensor<ui64>, tensor<ui64>) -> tensor<i1>
      "stablehlo.return"(%30) : (tensor<i1>) -> ()
    }) {dimension = 1 : i64, is_stable = true} : (tensor<2x3xui64>) -> tensor<2x3xui64>
    %31 = stablehlo.constant dense<3> : tensor<ui64>
    %32 = "stablehlo.broadcast_in_dim"(%31) {broadcast_dimensions = array<i64>} : (tensor<ui64>) -> tensor<2x3xui64>
    %33 = stablehlo.and %27, %32 : tensor<2x3xui64>
    %34 = "stablehlo.convert"(%33) : (tensor<2x3xui64>) -> tensor<2x3xui32>
    %35 = stablehlo.reshape %34 : (tensor<2x3xui32>) -> tensor<2x3x1xui32>
    %36 = "stablehlo.gather"(%arg0, %35) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>, indices_are_sorted = false} : (tensor<2x3xf32>, tensor<2x3x1xui32>) -> tensor<2x3xf32>
    return %36 : tensor<2x3xf32>
  }
}
