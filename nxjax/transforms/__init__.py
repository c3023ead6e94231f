"""Transforms of functions and programs, one per file."""
