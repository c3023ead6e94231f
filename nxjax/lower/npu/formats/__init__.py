"""File formats that NPU tools read: one writer each, from `NpuGraph` alone; they share nothing else."""
