"""Chips as programs that name them see them: what is here, why it is not, and a simulator in its place."""
