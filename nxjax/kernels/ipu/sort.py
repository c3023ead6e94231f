"""Sorting on a tile: whole rows, and one step between two sorted blocks, of which networks over tiles are made.

Order: by the first keys in turn, NaNs last, -0 equal to 0, stable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.reduce import work_dtype
from nxjax.kernels.ipu.spec import Attribute, Field, Io, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

_LESS: Final = """template <typename A>
inline int compared(A a, A b) {
  if (a < b) return -1;
  return b < a;
}
inline int compared(float a, float b) {
  if (a < b) return -1;
  if (b < a) return 1;
  return (a != a) - (b != b);
}
"""

_SORT: Final = """
  // Whether element j of a row comes before element i, which comes first in the row.
  bool later(unsigned long row, int i, int j) const {
    int c = 0;
@COMPARE@
    return c > 0;
  }

  void merge(unsigned long row, const int *from, int *to, unsigned first, unsigned middle, unsigned last) const {
    unsigned i = first, j = middle;
    for (unsigned k = first; k < last; ++k) {
      const bool second = i == middle || (j < last && later(row, from[i], from[j]));
      to[k] = second ? from[j++] : from[i++];
    }
  }

  bool compute(unsigned wid) {
    const unsigned rows = n ? order.size() / n : 0;
    const Range mine = share(rows, @GRAIN@, wid, numWorkers());
    for (unsigned r = mine.first; r < mine.last; ++r) {
      const unsigned long row = static_cast<unsigned long>(r) * n;
      int *from = &order[row], *to = &scratch[row];
      for (unsigned i = 0; i < n; ++i) from[i] = static_cast<int>(i);
      for (unsigned run = 1; run < n; run *= 2) {
        for (unsigned first = 0; first < n; first += 2 * run) {
          const unsigned middle = first + run < n ? first + run : n;
          merge(row, from, to, first, middle, middle + run < n ? middle + run : n);
        }
        int *const other = from;
        from = to;
        to = other;
      }
      if (from != &order[row])
        for (unsigned i = 0; i < n; ++i) order[row + i] = from[i];
      for (unsigned i = 0; i < n; ++i) {
        const unsigned long at = row + static_cast<unsigned>(order[row + i]);
@MOVE@
      }
    }
    return true;
  }
"""

_MERGE: Final = """
  static bool less(@ARGUMENTS@) {
    int c = 0;
@COMPARE@
    return c < 0;
  }

  // The lower half comes from the fronts of both blocks, the upper one from their ends; one worker a row.
  bool compute(unsigned wid) {
    const unsigned rows = n ? x0.size() / n : 0;
    const Range mine = share(rows, @GRAIN@, wid, numWorkers());
    for (unsigned r = mine.first; r < mine.last; ++r) {
      const unsigned long row = static_cast<unsigned long>(r) * n;
      unsigned i = upper ? n : 0, j = upper ? n : 0;
      for (unsigned k = 0; k < n; ++k) {
        const unsigned long to = row + (upper ? n - 1 - k : k);
        const unsigned long a = row + (upper ? i - 1 : i), b = row + (upper ? j - 1 : j);
        // Of equals the own block's come first.
        const bool other = upper ? !less(@B_A@) : less(@B_A@);
        if (other) {
@TAKE_Z@
        } else {
@TAKE_X@
        }
        unsigned &moved = other ? j : i;
        moved = upper ? moved - 1 : moved + 1;
      }
    }
    return true;
  }
"""


class _Ordered(TextCodelet):
    """Several operands of one shape, ordered by the first of them."""

    def __init__(self, dtypes: Sequence[str], keys: int) -> None:
        self.dtypes = tuple(dtypes)
        self.keys = keys

    @property
    def types(self) -> dict[str, str]:
        return {f"T{i}": d for i, d in enumerate(self.dtypes)}

    @property
    def helpers(self) -> str:
        return _LESS

    @property
    def _grain(self) -> str:
        return f"grainOf(n, {min(np.dtype(d).itemsize for d in self.dtypes)})"

    def _compare(self, left: str, right: str, indent: str) -> str:
        """C++ that sets ``c``; @ in the operands is the number of the key."""
        lines: list[str] = []
        for i, d in enumerate(self.dtypes[: self.keys]):
            cast = "float" if work_dtype("max", d) == "float32" else f"T{i}"
            a, b = left.replace("@", str(i)), right.replace("@", str(i))
            lines.append(f"{indent}if (c == 0) c = compared(static_cast<{cast}>({a}), static_cast<{cast}>({b}));")
        return "\n".join(lines)


@final
class SortRows(_Ordered):
    """Sorts rows: ``x0``, ``x1``, ... [rows, n] to ``y0``, ``y1``, ..., by the first ``keys`` of them, stably.

    ``order`` int32 [rows, n] becomes the sorting permutation; ``scratch`` is as large.
    """

    @property
    def label(self) -> str:
        return f"SortRows_{'_'.join(self.dtypes)}_by_{self.keys}"

    @property
    def fields(self) -> tuple[Field, ...]:
        ins = tuple(Field(f"x{i}", "in", d) for i, d in enumerate(self.dtypes))
        outs = tuple(Field(f"y{i}", "out", d) for i, d in enumerate(self.dtypes))
        return (*ins, *outs, Field("order", "out", "int32"), Field("scratch", "out", "int32"))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("order",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("n")

    @property
    def body(self) -> str:
        moves = "\n".join(f"        y{i}[row + i] = x{i}[at];" for i in range(len(self.dtypes)))
        compare = self._compare("x@[row + static_cast<unsigned>(i)]", "x@[row + static_cast<unsigned>(j)]", "    ")
        return _SORT.replace("@COMPARE@", compare).replace("@MOVE@", moves).replace("@GRAIN@", self._grain)

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        shape, n = arrays["order"].shape, int(np.max(attributes["n"]))
        rows = [arrays[f"x{i}"].reshape(-1, n) for i in range(len(self.dtypes))]
        order = _order(rows[: self.keys])
        found = {f"y{i}": np.take_along_axis(x, order, 1).reshape(shape) for i, x in enumerate(rows)}
        # What is left in the scratch memory is nobody's business.
        return {**found, "order": order.astype(np.int32).reshape(shape), "scratch": arrays["scratch"]}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n = int(np.max(attributes["n"]))
        rows = int(np.prod(sizes["order"])) // max(1, n)
        passes = max(0, (n - 1).bit_length())
        row = n * passes * (14 + 8 * self.keys) + n * (6 + 5 * len(self.dtypes))
        return chip.workers * (40 + -(-rows // chip.workers) * (20 + row)) + 11

    def code_bytes(self, chip: IpuChip) -> int:
        return 500 + 40 * len(self.dtypes)


@final
class MergeBlocks(_Ordered):
    """One side of a comparison of two sorted blocks: the lower (``upper`` 0) or the upper half of both together.

    Fields: the own block ``x0``, ``x1``, ... and the other ``z0``, ``z1``, ... [rows, n], sorted by the first ``keys``;
    ``y0``, ``y1``, ... the kept half, sorted. Both sides together keep each element once only if no keys are equal: let
    the last key be a number of the element.
    """

    @property
    def label(self) -> str:
        return f"MergeBlocks_{'_'.join(self.dtypes)}_by_{self.keys}"

    @property
    def fields(self) -> tuple[Field, ...]:
        groups: tuple[tuple[str, Io], ...] = (("x", "in"), ("z", "in"), ("y", "out"))
        return tuple(Field(f"{g}{i}", io, d) for g, io in groups for i, d in enumerate(self.dtypes))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x0",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("n", "upper")

    @property
    def body(self) -> str:
        keys, every = range(self.keys), range(len(self.dtypes))
        arguments = ", ".join([*(f"T{i} a{i}" for i in keys), *(f"T{i} b{i}" for i in keys)])
        text = _MERGE.replace("@ARGUMENTS@", arguments).replace("@COMPARE@", self._compare("a@", "b@", "    "))
        text = text.replace("@B_A@", ", ".join([*(f"z{i}[b]" for i in keys), *(f"x{i}[a]" for i in keys)]))
        text = text.replace("@TAKE_Z@", "\n".join(f"          y{i}[to] = z{i}[b];" for i in every))
        return text.replace("@TAKE_X@", "\n".join(f"          y{i}[to] = x{i}[a];" for i in every)).replace(
            "@GRAIN@", self._grain
        )

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        shape, n = arrays["y0"].shape, int(np.max(attributes["n"]))
        both = [
            np.concatenate([arrays[f"x{i}"].reshape(-1, n), arrays[f"z{i}"].reshape(-1, n)], 1)
            for i in range(len(self.dtypes))
        ]
        order = _order(both[: self.keys])
        rows = len(order) // len(arrays["y0"]) if len(arrays["y0"]) else 0
        upper = np.repeat(np.broadcast_to(np.asarray(attributes["upper"]), len(arrays["y0"])), rows)[:, None] != 0
        kept = np.where(upper, order[:, n:], order[:, :n])
        return {f"y{i}": np.take_along_axis(v, kept, 1).reshape(shape) for i, v in enumerate(both)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n = int(np.max(attributes["n"]))
        rows = int(np.prod(sizes["y0"])) // max(1, n)
        each = 12 + 8 * self.keys + 5 * len(self.dtypes)
        return chip.workers * (40 + -(-rows // chip.workers) * (20 + n * each)) + 11

    def code_bytes(self, chip: IpuChip) -> int:
        return 400 + 60 * len(self.dtypes)


def _order(keys: Sequence[NDArray]) -> NDArray:
    """The stable sorting permutation of rows by several keys."""
    order = np.broadcast_to(np.arange(keys[0].shape[1]), keys[0].shape)
    for k in reversed(keys):
        step = np.argsort(np.take_along_axis(k, order, 1), 1, kind="stable")
        order = np.take_along_axis(order, step, 1)
    return order
