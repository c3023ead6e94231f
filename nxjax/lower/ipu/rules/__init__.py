"""Op name -> rule, one file per family. A device row: what is not here is written as its expansion."""

from __future__ import annotations

from typing import Final

from nxjax.lower.ipu.rules import (
    bitcast,
    composite,
    control,
    conv,
    cumulative,
    dot,
    linalg,
    portable,
    reduce,
    shape,
    sort,
    spmd,
    take,
    window,
)
from nxjax.lower.ipu.rules.table import Rule

RULES: Final[dict[str, Rule]] = {
    **shape.RULES,
    **reduce.RULES,
    **take.RULES,
    **window.RULES,
    **sort.RULES,
    **control.RULES,
    **portable.RULES,
    **bitcast.RULES,
    **linalg.RULES,
    **composite.RULES,
    **cumulative.RULES,
    **spmd.RULES,
    **dot.RULES,
    **conv.RULES,
}
