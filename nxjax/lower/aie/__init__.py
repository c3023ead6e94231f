"""Graphs lowered to designs of AMD's AI Engine array, as textual AIE MLIR."""
