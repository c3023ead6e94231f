"""NumPy: the meaning of every op, run as it is written. Eager execution and the oracle."""
