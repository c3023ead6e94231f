"""Kernels of AMD's AI Engine cores: what one call of a core computes, its C++ source, and its cycles."""
