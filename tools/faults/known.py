"""Faults that nobody can notice, each with the reason: they change no result, no memory that is read, and no error.

By the fault's number, which is that of its text, not of its line. A new row says what the code does with the fault, and
why that is the same.
"""

from typing import Final

EQUIVALENT: Final[dict[str, str]] = {}
