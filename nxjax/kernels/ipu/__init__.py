"""Codelets: what one IPU tile computes, in C++ against Poplar's vertex interface, with a NumPy meaning beside each."""
