"""All lowering rules by the name of the op."""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.builder import Rule
from nxjax.lower.npu.rules import (
    control,
    convolution,
    elementwise,
    move,
    products,
    quantized,
    reduce,
    refused,
    resize,
    sort,
    window,
)

_MODULES: Final = (
    elementwise, control, move, reduce, products, convolution, window, quantized, resize, sort, refused,
)  # fmt: skip
RULES: Final[dict[str, Rule]] = {op: rule for module in _MODULES for op, rule in module.RULES.items()}
