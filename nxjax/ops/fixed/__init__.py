"""Integer arithmetic of quantized ops, exact, in NumPy: the meaning that every device is held against."""
