"""Choosing among ways to compile one program by measuring them on the user's machine. Knows no kernel."""
