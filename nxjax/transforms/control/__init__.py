"""Control flow: ordinary ops that contain programs."""
