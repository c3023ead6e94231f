"""NPU targets: constraint tables joined to the vendors' own compilers and runtimes, each a thin adapter."""
