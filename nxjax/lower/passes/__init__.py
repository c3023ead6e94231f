"""Passes: Program -> Program."""
