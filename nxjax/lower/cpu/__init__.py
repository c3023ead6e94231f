"""Program -> tape of CPU kernels: simplification, fusion, layout, memory plan. Knows no machine code and no runtime."""
