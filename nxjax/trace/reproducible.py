"""What Python and NumPy may not compute for a program while `config.reproducible` promises the same bits everywhere.

Numbers that are made while a program is written down: the last bits of NumPy's functions hang on the processor. And
what was compiled before the promise was asked for.
"""

from __future__ import annotations

from nxjax.config import config
from nxjax.errors import LoweringError


def check_transcendental(name: str) -> None:
    """Raise for the function ``name``, whose numbers NumPy's transcendental functions make, if these are promised."""
    if config.reproducible:
        raise LoweringError(
            f"{name}: no promise of the same bits everywhere",
            got="numbers that NumPy computes on the host",
            expected="ops with kernels of the CPU compiler, while nx.config.reproducible is True",
            fix="compute this outside, under `nx.config.using(reproducible=False)`, and pass the result in",
        )


def check_compiled(promised: bool) -> None:
    """Raise for a call of what was compiled ahead, ``promised`` or not, if it would not give the bits of everywhere."""
    if config.reproducible and not promised:
        raise LoweringError(
            "compiled call: no promise of the same bits everywhere",
            got="a function that was compiled while nx.config.reproducible was False, and a call while it is True",
            expected="both under one setting",
            fix="`jitted.lower(...).compile()` again, under `nx.config.using(reproducible=True)`",
        )
