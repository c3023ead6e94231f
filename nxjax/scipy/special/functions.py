"""Functions that are an op, made from what the op says of itself."""

from __future__ import annotations

import functools
from typing import Any

from nxjax.errors import DtypeError
from nxjax.numpy.documented import COMPLEX, named, taking
from nxjax.numpy.promotion import inexact_operands
from nxjax.ops import vocabulary
from nxjax.scipy.special.operands import described_text, reals
from nxjax.trace import dtypes


def _made(op: Any, name: str) -> Any:
    _, line, (args, shown), outside = op.public()["scipy.special"]
    arguments = op.arguments.split()
    only_real = op.allowed == dtypes.FLOAT
    several = "arrays, which broadcast" if len(arguments) > 1 else "array of any shape"
    takes = f"real {several}" if only_real else f"{several}, also complex"
    read = functools.partial(reals, error=DtypeError) if only_real else inexact_operands
    text = described_text(line, arguments, takes, outside and f", {outside}")
    if only_real:
        text += f"\n\nRaises:\n    {COMPLEX}"
    text += f"\n\n>>> print(round(float({name}({args})), 4))\n{shown}\n"
    return named(name, text)(taking(arguments, lambda *xs: op(*read(name, *xs))))


__getattr__ = vocabulary.functions("scipy.special", __name__, globals(), _made)
