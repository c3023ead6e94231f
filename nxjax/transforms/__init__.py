"""Transforms of functions and programs: one transform, one file."""
