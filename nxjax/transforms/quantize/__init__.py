"""Quantization as a transform: plan which equations compute on integers, observe ranges, interpret on grids."""
