"""Compile time: from a Program to something else."""
