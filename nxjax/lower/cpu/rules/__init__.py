"""How each op becomes kernels; one file per family. A file registers its rules when it is imported."""
