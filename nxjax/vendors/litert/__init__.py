"""TFLite files: LiteRT on the host, and phones' compilers behind it."""
