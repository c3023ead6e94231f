"""Control flow: ordinary ops that hold programs."""
