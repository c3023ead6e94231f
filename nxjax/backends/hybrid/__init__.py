"""Several units as one: a program cut over them, scheduled, run, and redone elsewhere when one fails."""
