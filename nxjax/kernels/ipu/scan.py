"""Running sums and the like, along the middle of a tile's box [outer, depth, inner].

Halves are accumulated in float. A scan over tiles takes the last elements of each tile's part and adds what is before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.reduce import UFUNCS, join_text, work_dtype
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

ScanKind = Literal["add", "mul", "max", "min", "logsumexp"]

# log(e^a + e^b) as NumPy's logaddexp has it.
_LOGSUMEXP: Final = """inline float logAddExp(float a, float b) {
  if (a == b) return a + 0.693147180559945309417f;
  const float d = a - b;
  if (d > 0) return a + std::log1p(std::exp(-d));
  return d <= 0 ? b + std::log1p(std::exp(d)) : d;
}
"""

_BODY: Final = """
  static inline A join(A a, A b) { return static_cast<A>(@JOIN@); }

  void columns(unsigned o, unsigned depth, unsigned first, unsigned last) const {
    const unsigned start = @REVERSE@ ? (o * depth + depth - 1) * inner : o * depth * inner;
    for (unsigned c = first; c < last; ++c) {
      unsigned at = start + c;
      A sum = static_cast<A>(x[at]);
      y[at] = x[at];
      for (unsigned k = 1; k < depth; ++k) {
        at = @REVERSE@ ? at - inner : at + inner;
        sum = join(sum, static_cast<A>(x[at]));
        y[at] = static_cast<T>(sum);
      }
    }
  }

  bool compute(unsigned wid) {
    const unsigned total = outer * inner, depth = total ? x.size() / total : 0;
    if (depth == 0) return true;
    if (inner * sizeof(T) % 8 == 0) {
      const Range mine = share(inner, 8 / sizeof(T), wid, numWorkers());
      for (unsigned o = 0; o < outer; ++o) columns(o, depth, mine.first, mine.last);
    } else {
      const Range mine = share(outer, grainOf(depth * inner, sizeof(T)), wid, numWorkers());
      for (unsigned o = mine.first; o < mine.last; ++o) columns(o, depth, 0, inner);
    }
    return true;
  }
"""


@final
class Cumulative(TextCodelet):
    """``y[o, k, i]`` of ``x[o, :k + 1, i]``, or of ``x[o, k:, i]`` if ``reverse``: fields of one shape."""

    def __init__(self, kind: ScanKind, dtype: str, reverse: bool = False) -> None:
        self.op = kind
        self.dtype = dtype
        self.reverse = reverse

    @property
    def label(self) -> str:
        return f"Cumulative_{self.op}_{self.dtype}{'_reverse' if self.reverse else ''}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": work_dtype("add", self.dtype)}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", self.dtype), Field("y", "out", self.dtype))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("outer", "inner")

    @property
    def helpers(self) -> str:
        return _LOGSUMEXP if self.op == "logsumexp" else ""

    @property
    def body(self) -> str:
        work = work_dtype("add", self.dtype)
        join = "logAddExp(a, b)" if self.op == "logsumexp" else join_text(self.op, work)
        return _BODY.replace("@JOIN@", join).replace("@REVERSE@", str(self.reverse).lower())

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x = arrays["x"]
        outer, inner = int(np.max(attributes["outer"])), int(np.max(attributes["inner"]))
        if not x.size:
            return {"y": arrays["y"]}
        wide = x.reshape(len(x), outer, -1, inner).astype(work_dtype("add", self.dtype))
        if self.reverse:
            wide = np.flip(wide, 2)
        ufunc = np.logaddexp if self.op == "logsumexp" else UFUNCS[self.op]
        y = ufunc.accumulate(wide, 2, dtype=wide.dtype)
        return {"y": (np.flip(y, 2) if self.reverse else y).astype(x.dtype).reshape(x.shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        count = int(np.prod(sizes["x"]))
        columns = int(np.max(attributes["outer"])) * int(np.max(attributes["inner"]))
        depth = count // max(1, columns)
        # A load, the step, a store and the loop; logarithms as poplibs counts them.
        each = 5 if self.op != "logsumexp" else 45
        return chip.workers * (30 + -(-columns // chip.workers) * (10 + each * depth)) + 11

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return int(np.prod(sizes["x"])) if np.dtype(self.dtype).kind == "f" else 0

    def code_bytes(self, chip: IpuChip) -> int:
        return 300
