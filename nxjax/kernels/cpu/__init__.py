"""CPU kernels: each a meaning (NumPy), its constraints and an emitter of LLVM IR. Knows no program and no thread."""
