module @scan {
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<3xf32>, tensor<2x3xf32>) {
    %0 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
    %1 = "stablehlo.broadcast_in_dim"(%0) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
    %2 = stablehlo.constant dense<0.000000000e+00> : tensor<2x3xf32>
    %3 = stablehlo.constant dense<0> : tensor<i32>
    %4:3 = "stablehlo.while"(%3, %1, %2) ({
    ^bb0(%5: tensor<i32>, %6: tensor<3xf32>, %7: tensor<2x3xf32>):
      %8 = stablehlo.constant dense<2> : tensor<i32>
      %9 = stablehlo.compare LT, %5, %8, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      "stablehlo.return"(%9) : (tensor<i1>) -> ()
    }, {
    ^bb0(%10: tensor<i32>, %11: tensor<3xf32>, %12: tensor<2x3xf32>):
      %13 = stablehlo.constant dense<1> : tensor<i32>
      %14 = stablehlo.constant dense<0> : tensor<i32>
      %15 = "stablehlo.dynamic_slice"(%arg0, %10, %14) {slice_sizes = array<i64: 1, 3>} : (tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<1x3xf32>
      %16 = stablehlo.reshape %15 : (tensor<1x3xf32>) -> tensor<3xf32>
      %17 = stablehlo.add %11, %16 : tensor<3xf32>
      %18 = stablehlo.constant dense<2.000000000e+00> : tensor<f32>
      %19 = "stablehlo.broadcast_in_dim"(%18) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<3xf32>
      %20 = stablehlo.multiply %16, %19 : tensor<3xf32>
      %21 = stablehlo.reshape %20 : (tensor<3xf32>) -> tensor<1x3xf32>
      %22 = "stablehlo.dynamic_update_slice"(%12, %21, %10, %14) : (tensor<2x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
      %23 = stablehlo.add %10, %13 : tensor<i32>
      "stablehlo.return"(%23, %17, %22) : (tensor<i32>, tensor<3xf32>, tensor<2x3xf32>) -> ()
    }) : (tensor<i32>, tensor<3xf32>, tensor<2x3xf32>) -> (tensor<i32>, tensor<3xf32>, tensor<2x3xf32>)
    %24 = stablehlo.constant dense<1> : tensor<i32>
    return %4#1, %4#2 : tensor<3xf32>, tensor<2x3xf32>
  }
}
