"""Functions that are an op, made from what the op says of itself."""

from __future__ import annotations

from typing import Any

from nxjax.numpy.documented import named
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops.vocabulary import functions
from nxjax.scipy.special.operands import described_text, real
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def _made(op: Any) -> Any:
    name, line, (args, shown), beyond = op.public()["scipy.special"]
    only_real = op.allowed == dtypes.FLOAT
    takes = "real array of any shape" if only_real else "array of any shape, also complex"

    text = described_text(line, "x", takes, beyond and f", {beyond}")

    @named(name, f"{text}\n\n>>> print(round(float({name}({args})), 4))\n{shown}\n")
    def function(x: Any) -> Array:
        return op(real(name, x)) if only_real else op(*promote_inexact(name, x))

    return function


__getattr__ = functions("scipy.special", __name__, globals(), _made)
