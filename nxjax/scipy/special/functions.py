"""Functions that are an op, made from what the op says of itself."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from nxjax.errors import DtypeError
from nxjax.numpy.documented import COMPLEX, named
from nxjax.numpy.promotion import inexact_operands
from nxjax.ops import vocabulary
from nxjax.scipy.special.operands import described_text, reals
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def _made(op: Any) -> Any:
    name, line, (args, shown), beyond = op.public()["scipy.special"]
    arguments = op.arguments.split()
    only_real = op.allowed == dtypes.FLOAT
    several = "arrays, which broadcast" if len(arguments) > 1 else "array of any shape"
    takes = f"real {several}" if only_real else f"{several}, also complex"
    read = functools.partial(reals, error=DtypeError) if only_real else inexact_operands
    text = described_text(line, arguments, takes, beyond and f", {beyond}")
    if only_real:
        text += f"\n\nRaises:\n    {COMPLEX}"
    mark = named(name, f"{text}\n\n>>> print(round(float({name}({args})), 4))\n{shown}\n")

    def function(x: Any) -> Array:
        return op(*read(name, x))

    if len(arguments) == 1:
        return mark(function)
    same = inspect.signature(function)
    one = same.parameters["x"]
    signature = same.replace(parameters=[one.replace(name=argument) for argument in arguments])

    def of_several(*xs: Any, **others: Any) -> Array:
        return op(*read(name, *signature.bind(*xs, **others).args))

    made: Any = of_several
    made.__signature__ = signature
    return mark(made)


__getattr__ = vocabulary.functions("scipy.special", __name__, globals(), _made)
