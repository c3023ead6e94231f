"""A program cut into regions, each a program of its own, for units that can run different parts of it."""
