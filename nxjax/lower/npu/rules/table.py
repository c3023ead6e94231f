"""All lowering rules by the name of the op."""

from __future__ import annotations

from typing import Final

from nxjax.lower.npu.builder import Rule
from nxjax.lower.npu.rules import (
    composite,
    control,
    convolution,
    elementwise,
    move,
    products,
    quantized,
    reduce,
    refused,
    resize,
    window,
)

RULES: Final[dict[str, Rule]] = {
    **elementwise.RULES,
    **composite.RULES,
    **control.RULES,
    **move.RULES,
    **reduce.RULES,
    **products.RULES,
    **convolution.RULES,
    **window.RULES,
    **quantized.RULES,
    **resize.RULES,
    **refused.RULES,
}
