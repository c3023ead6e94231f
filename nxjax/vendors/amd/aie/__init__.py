"""AMD's array as targets: AIE MLIR, its compiler, our model of the array."""
