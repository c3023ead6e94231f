"""Rows of a table, read and written at computed places.

Places outside of a tile's piece of the table are left out: a table over several tiles is served by each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.reduce import UFUNCS, join_text, work_dtype
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

PutKind = Literal["set", "add", "sub", "mul", "max", "min"]

_TAKE: Final = """
  bool compute(unsigned wid) {
    const unsigned lookups = index.size(), width = groups && lookups ? y.size() / lookups : 0;
    const unsigned count = groups ? lookups / groups : 0;
    const Range mine = share(lookups, grainOf(width, sizeof(T)), wid, numWorkers());
    for (unsigned i = mine.first; i < mine.last; ++i) {
      const unsigned row = static_cast<unsigned>(index[i] - first);
      T *const to = &y[i * width];
      if (row < rows) {
        const T *const from = &table[(i / count * rows + row) * width];
        for (unsigned j = 0; j < width; ++j) to[j] = from[j];
      } else {
        for (unsigned j = 0; j < width; ++j) to[j] = T(0);
      }
    }
    return true;
  }
"""

_PUT: Final = """
  static inline T join(T before, T now) {
    const A a = static_cast<A>(before), b = static_cast<A>(now);
    (void)a;
    return static_cast<T>(static_cast<A>(@JOIN@));
  }

  // Workers own columns, so that updates of one row come one after the other.
  bool compute(unsigned wid) {
    const unsigned lookups = index.size(), width = groups && rows ? table.size() / (groups * rows) : 0;
    const unsigned count = groups ? lookups / groups : 0;
    // Where columns are no whole words, one worker does them all.
    const bool whole = width * sizeof(T) % 8 == 0;
    const Range mine = whole ? share(width, 8 / sizeof(T), wid, numWorkers()) : Range{0, wid == 0 ? width : 0};
    for (unsigned i = 0; i < lookups; ++i) {
      const unsigned row = static_cast<unsigned>(index[i] - first);
      if (row >= rows) continue;
      T *const to = &table[(i / count * rows + row) * width];
      const T *const from = &updates[i * width];
      for (unsigned j = mine.first; j < mine.last; ++j) to[j] = join(to[j], from[j]);
    }
    return true;
  }
"""


@final
class Take(TextCodelet):
    """Rows of a table by number; those outside are zero.

    Fields: ``table`` [groups, rows, width], ``index`` int32 [groups, count], ``y`` [groups, count, width]. Attribute
    ``first`` is the number of the piece's first row.
    """

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    @property
    def label(self) -> str:
        return f"Take_{self.dtype}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("table", "in", self.dtype), Field("index", "in", "int32"), Field("y", "out", self.dtype))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("index", "y")

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return (*unsigned("groups", "rows"), Attribute("first", "int"))

    @property
    def body(self) -> str:
        return _TAKE

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        y = arrays["y"]
        n, groups, rows = len(y), int(np.max(attributes["groups"])), int(np.max(attributes["rows"]))
        table = arrays["table"].reshape(n, groups, rows, -1)
        first = np.asarray(attributes["first"]).astype(np.int64).reshape(-1, 1, 1)
        index = arrays["index"].reshape(n, groups, -1) - first
        inside = (index >= 0) & (index < rows)
        found = np.take_along_axis(table, np.where(inside, index, 0)[..., None], 2)
        return {"y": np.where(inside[..., None], found, np.zeros((), y.dtype)).reshape(y.shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        lookups = int(np.prod(sizes["index"]))
        words = -(-int(np.prod(sizes["y"])) // max(1, lookups) * np.dtype(self.dtype).itemsize // 4)
        # A count of instructions, no published figure: about two cycles a word, and 25 a row.
        return chip.workers * (30 + -(-lookups // chip.workers) * (25 + 2 * words)) + 11

    def code_bytes(self, chip: IpuChip) -> int:
        return 250


@final
class Put(TextCodelet):
    """Updates of a table's rows by number, one after the other; those outside are left out.

    Fields: ``table`` [groups, rows, width], changed; ``index`` int32 [groups, count]; ``updates`` [groups, count,
    width].
    """

    def __init__(self, kind: PutKind, dtype: str) -> None:
        self.op = kind
        self.dtype = dtype

    @property
    def label(self) -> str:
        return f"Put_{self.op}_{self.dtype}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": work_dtype("add", self.dtype)}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (
            Field("table", "inout", self.dtype),
            Field("index", "in", "int32"),
            Field("updates", "in", self.dtype),
        )

    @property
    def spans(self) -> tuple[str, ...]:
        return ("table", "index")

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return (*unsigned("groups", "rows"), Attribute("first", "int"))

    @property
    def body(self) -> str:
        work = work_dtype("add", self.dtype)
        if self.op == "set":
            return _PUT.replace("@JOIN@", "b")
        if self.op == "sub":
            return _PUT.replace("@JOIN@", "a - b" if work == "float32" else "unsigned(a) - unsigned(b)")
        return _PUT.replace("@JOIN@", join_text(self.op, work))

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        table = arrays["table"].copy()
        n, groups, rows = len(table), int(np.max(attributes["groups"])), int(np.max(attributes["rows"]))
        view = table.reshape(n, groups, rows, -1)
        first = np.asarray(attributes["first"]).astype(np.int64).reshape(-1, 1, 1)
        index = arrays["index"].reshape(n, groups, -1) - first
        updates = arrays["updates"].reshape(n, groups, index.shape[2], -1)
        vertex, group = np.meshgrid(np.arange(n), np.arange(groups), indexing="ij")
        for k in range(index.shape[2]):
            inside = (index[:, :, k] >= 0) & (index[:, :, k] < rows)
            place = vertex[inside], group[inside], index[:, :, k][inside]
            now = updates[:, :, k][inside]
            if self.op == "set":
                view[place] = now
            else:
                ufunc = np.subtract if self.op == "sub" else UFUNCS[self.op]
                view[place] = ufunc(view[place], now)
        return {"table": table}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        lookups = int(np.prod(sizes["index"]))
        width = int(np.prod(sizes["updates"])) // max(1, lookups)
        itemsize = np.dtype(self.dtype).itemsize
        mine = -(-width // chip.workers) if width * itemsize % 8 == 0 else width
        words = -(-mine * itemsize // 4)
        each = 2 * words if self.op == "set" else 4 * words
        return chip.workers * (30 + lookups * (20 + each)) + 11

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        arithmetic = self.op in ("add", "sub", "mul") and np.dtype(self.dtype).kind == "f"
        return int(np.prod(sizes["updates"])) if arithmetic else 0

    def code_bytes(self, chip: IpuChip) -> int:
        return 300
