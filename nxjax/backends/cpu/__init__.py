"""nxjax's own executor for the CPU: machine code by LLVM, memory, threads and the call path."""
