"""What only XLA's CPU client can answer: LAPACK for linear algebra, Python callbacks. Op name -> row."""

from __future__ import annotations

from typing import Any, Final

from nxjax.backends.xla.callbacks import emit_callback
from nxjax.lower.stablehlo.builder import Row
from nxjax.trace.core import OPS


def callback(name: str) -> Row:
    """A row for an op with a method ``host(*arrays, **params)`` that gives its results as NumPy arrays."""

    def row(b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        op: Any = OPS[name]
        return emit_callback(b, lambda *arrays: op.host(*arrays, **params), xs, tuple(out))

    return row


ROWS: Final[dict[str, Row]] = {name: callback(name) for name in ("pure_callback", "io_callback", "debug_callback")}
