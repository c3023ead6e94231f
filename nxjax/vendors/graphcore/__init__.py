"""Graphcore through PopART."""
