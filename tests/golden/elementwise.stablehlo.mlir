module @elementwise {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<2x3xf32>
    %1 = stablehlo.constant dense<2.000000000e+00> : tensor<f32>
    %2 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
    %3 = stablehlo.multiply %0, %2 : tensor<2x3xf32>
    %4 = stablehlo.constant dense<1.000000000e+00> : tensor<f32>
    %5 = "stablehlo.broadcast_in_dim"(%4) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<2x3xf32>
    %6 = stablehlo.add %3, %5 : tensor<2x3xf32>
    return %6 : tensor<2x3xf32>
  }
}
