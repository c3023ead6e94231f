"""Reductions of a tile's box [outer, depth, inner] over its middle: sums and the like, and where an extremum is.

Sums and products of halves are kept in float. A reduction over tiles takes two of these: partial results of each tile,
then those of all. Cycles: poplibs' ``getReduceCycleEstimate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, highest, lowest, unsigned

ReduceKind = Literal["add", "mul", "max", "min", "and", "or", "xor"]
UFUNCS: Final[dict[str, Any]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
# A row is summed up in so many lanes, which are then added in pairs: the order does not depend on the compiler.
LANES: Final = 8


def work_dtype(kind: str, dtype: str) -> str:
    """What is accumulated in."""
    return "float32" if dtype == "float16" else dtype


def join_text(kind: str, dtype: str) -> str:
    """C++ of one step on ``a`` and ``b`` of a dtype; halves do not come here."""
    if kind in ("add", "mul"):
        sign = "+" if kind == "add" else "*"
        if dtype == "float32":
            return f"a {sign} b"
        if dtype == "bool":
            return "a || b" if kind == "add" else "a && b"
        # Integers wrap.
        return f"unsigned(a) {sign} unsigned(b)"
    if kind in ("max", "min"):
        nan = " || a != a" if dtype == "float32" else ""
        return f"a {'>=' if kind == 'max' else '<='} b{nan} ? a : b"
    sign = {"and": "&", "or": "|", "xor": "^"}[kind]
    return f"a {sign} b"


def identity_text(kind: str, dtype: str) -> str:
    """C++ of the value that changes nothing."""
    if kind == "and":
        return "true" if dtype == "bool" else "-1"
    return {"add": "0", "or": "0", "xor": "0", "mul": "1", "max": lowest(dtype), "min": highest(dtype)}[kind]


def identity(kind: str, dtype: str) -> NDArray:
    """The value that changes nothing, of a dtype."""
    d = np.dtype(dtype)
    if kind in ("max", "min"):
        if d.kind == "f":
            return np.asarray(-np.inf if kind == "max" else np.inf, d)
        if d.kind == "b":
            return np.asarray(kind == "min")
        return np.asarray(np.iinfo(d).min if kind == "max" else np.iinfo(d).max, d)
    if kind == "and":
        return np.asarray(True) if d.kind == "b" else np.asarray(-1).astype(d)
    return np.asarray(1 if kind == "mul" else 0, d)


def _cycles(outputs: int, depth: int, source: str, target: str, chip: IpuChip) -> int:
    """poplibs' estimate: vectors of accumulators, ``depth`` loads into each, over the workers.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> _cycles(24, 10, "float32", "float32", BOW)  # one vector of four floats a worker, two loads of two each
    321
    """
    lanes, loads = {"float32": (4, 2), "float16": (8, 4)}.get(source, (1, 1))
    over = {("float32", "float32"): 8, ("float32", "float16"): 7, ("float16", "float32"): 10}.get((source, target), 9)
    # One result occupies its worker alone: its elements are lanes of one vector.
    vectors = -(-outputs // lanes)
    if outputs == 1:
        depth, vectors = -(-depth // lanes), 1
    each = lanes // loads * depth + over
    if lanes == 1:
        # Integers: a load, the step, the loop.
        each = 4 * depth + over
    return chip.workers * (20 + each * -(-vectors // chip.workers)) + 33


_REDUCE: Final = """
  static inline A join(A a, A b) { return static_cast<A>(@JOIN@); }

  // `width` neighbouring results; a constant where there are many, so that they are kept in registers.
  template <unsigned most>
  void columns(const T *from, O *to, unsigned depth, unsigned width) const {
    A sums[most];
    for (unsigned j = 0; j < width; ++j) sums[j] = static_cast<A>(@START@);
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned j = 0; j < width; ++j) sums[j] = join(sums[j], static_cast<A>(from[k * inner + j]));
    for (unsigned j = 0; j < width; ++j) to[j] = static_cast<O>(sums[j]);
  }

  bool compute(unsigned wid) {
    const unsigned total = outer * inner, depth = total ? x.size() / total : 0;
    const Range mine = share(total, 8 / sizeof(O), wid, numWorkers());
    const T *const in = &x[0];
    O *const out = &y[0];
    if (inner == 1) {
      for (unsigned i = mine.first; i < mine.last; ++i) {
        A sums[@LANES@];
        for (unsigned l = 0; l < @LANES@; ++l) sums[l] = static_cast<A>(@START@);
        const T *const row = in + i * depth;
        unsigned k = 0;
        for (; k + @LANES@ <= depth; k += @LANES@)
          for (unsigned l = 0; l < @LANES@; ++l) sums[l] = join(sums[l], static_cast<A>(row[k + l]));
        for (unsigned l = 0; k + l < depth; ++l) sums[l] = join(sums[l], static_cast<A>(row[k + l]));
        for (unsigned n = @LANES@ / 2; n; n /= 2)
          for (unsigned l = 0; l < n; ++l) sums[l] = join(sums[l], sums[l + n]);
        out[i] = static_cast<O>(sums[0]);
      }
      return true;
    }
    for (unsigned i = mine.first; i < mine.last;) {
      const unsigned o = i / inner, c = i - o * inner;
      unsigned width = inner - c < mine.last - i ? inner - c : mine.last - i;
      const T *const from = in + o * depth * inner + c;
      if (width >= 32) {
        width = 32;
        columns<32>(from, out + i, depth, 32);
      } else {
        columns<32>(from, out + i, depth, width);
      }
      i += width;
    }
    return true;
  }
"""


@final
class Reduce(TextCodelet):
    """``y[o, i]`` of ``x[o, :, i]``: fields ``x`` [outer, depth, inner] (any shape of that size), ``y`` [outer, inner].

    Args:
        kind: what is done.
        dtype: of ``x``.
        out: of ``y``: the same, or float32 for halves whose results are reduced again.
    """

    def __init__(self, kind: ReduceKind, dtype: str, out: str) -> None:
        self.op = kind
        self.dtype = dtype
        self.out = out

    @property
    def label(self) -> str:
        return f"Reduce_{self.op}_{self.dtype}_{self.out}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": work_dtype(self.op, self.dtype), "O": self.out}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", self.dtype), Field("y", "out", self.out))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("outer", "inner")

    @property
    def body(self) -> str:
        work = work_dtype(self.op, self.dtype)
        text = _REDUCE.replace("@JOIN@", join_text(self.op, work)).replace("@LANES@", str(LANES))
        return text.replace("@START@", identity_text(self.op, work))

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x, y = arrays["x"], arrays["y"]
        n, work = len(x), work_dtype(self.op, self.dtype)
        outer, inner = int(np.max(attributes["outer"])), int(np.max(attributes["inner"]))
        x = x.reshape(n, outer, x.size // max(1, n * outer * inner) if x.size else 0, inner).astype(work)
        ufunc, start = UFUNCS[self.op], identity(self.op, work)
        if inner > 1:
            return {"y": _in_order(ufunc, x, 2, start).astype(self.out).reshape(y.shape)}
        depth = x.shape[2]
        padded = np.full((n, outer, -(-depth // LANES) * LANES), start, work)
        padded[:, :, :depth] = x[..., 0]
        sums = _in_order(ufunc, padded.reshape(n, outer, -1, LANES), 2, start)
        lanes = LANES
        while lanes > 1:
            lanes //= 2
            sums = ufunc(sums[..., :lanes], sums[..., lanes : 2 * lanes])
        return {"y": sums.astype(self.out).reshape(y.shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        outputs = int(np.prod(sizes["y"]))
        depth = int(np.prod(sizes["x"])) // max(1, outputs)
        return _cycles(outputs, depth, self.dtype, self.out, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return int(np.prod(sizes["x"])) if np.dtype(self.dtype).kind == "f" else 0

    def code_bytes(self, chip: IpuChip) -> int:
        return 400


def _in_order(ufunc: Any, x: NDArray, axis: int, start: NDArray) -> NDArray:
    """The reduction along ``axis``, one element after the other from ``start``."""
    total = np.broadcast_to(start, (*x.shape[:axis], *x.shape[axis + 1 :])).astype(x.dtype)
    for k in range(x.shape[axis]):
        total = ufunc(total, x[(slice(None),) * axis + (k,)])
    return total


_ARG: Final = """
  // Whether (a, i) comes before (b, j): the better value, a NaN before all others, the first of equals.
  static inline bool before(A a, int i, A b, int j) {
@NAN@    return a @BETTER@ b || (a == b && i < j);
  }

  bool compute(unsigned wid) {
    const unsigned total = outer * inner, depth = total ? x.size() / total : 0;
    const Range mine = share(total, 8 / sizeof(T), wid, numWorkers());
    for (unsigned i = mine.first; i < mine.last; ++i) {
      const unsigned o = i / inner, c = i - o * inner;
      A best = static_cast<A>(x[o * depth * inner + c]);
      int place = @FIRST@;
      for (unsigned k = 1; k < depth; ++k) {
        const A value = static_cast<A>(x[(o * depth + k) * inner + c]);
        const int here = @HERE@;
        if (before(value, here, best, place)) {
          best = value;
          place = here;
        }
      }
      y[i] = static_cast<T>(best);
      index[i] = place;
    }
    return true;
  }
"""


@final
class ArgReduce(TextCodelet):
    """The extremum of ``x[o, :, i]`` and where it is; a NaN counts as the extremum, of equals the first wins.

    Fields: ``x`` [outer, depth, inner], ``y`` and ``index`` (int32) [outer, inner]. Indices count from the attribute
    ``first``; with ``indexed`` there is a field ``places`` of the shape of ``x`` instead, which holds them: the second
    stage of a reduction over tiles.
    """

    def __init__(self, largest: bool, dtype: str, indexed: bool = False) -> None:
        self.largest = largest
        self.dtype = dtype
        self.indexed = indexed

    @property
    def label(self) -> str:
        return f"Arg{'Max' if self.largest else 'Min'}_{self.dtype}{'_indexed' if self.indexed else ''}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": work_dtype("max", self.dtype)}

    @property
    def fields(self) -> tuple[Field, ...]:
        places = (Field("places", "in", "int32"),) if self.indexed else ()
        return (Field("x", "in", self.dtype), *places, Field("y", "out", self.dtype), Field("index", "out", "int32"))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("outer", "inner") + (() if self.indexed else (Attribute("first", "int"),))

    @property
    def body(self) -> str:
        first, here = ("first", "first + static_cast<int>(k)")
        if self.indexed:
            first, here = "places[o * depth * inner + c]", "places[(o * depth + k) * inner + c]"
        nan = "    if (a != a || b != b) return a != a && (b == b || i < j);\n"
        text = _ARG.replace("@NAN@", nan if work_dtype("max", self.dtype) == "float32" else "")
        text = text.replace("@FIRST@", first).replace("@HERE@", here)
        return text.replace("@BETTER@", ">" if self.largest else "<")

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x = arrays["x"]
        n = len(x)
        outer, inner = int(np.max(attributes["outer"])), int(np.max(attributes["inner"]))
        x = x.reshape(n, outer, -1, inner)
        if self.indexed:
            # In the order of their places, so that the first of equals wins.
            places = arrays["places"].reshape(x.shape)
            order = np.argsort(places, 2, kind="stable")
            x, places = np.take_along_axis(x, order, 2), np.take_along_axis(places, order, 2)
        else:
            first = np.asarray(attributes["first"]).reshape(-1, 1, 1, 1)
            places = np.broadcast_to(first + np.arange(x.shape[2]).reshape(1, 1, -1, 1), x.shape)
        at = np.expand_dims((np.argmax if self.largest else np.argmin)(x, 2), 2)
        value, index = np.take_along_axis(x, at, 2), np.take_along_axis(places, at, 2)
        return {
            "y": value.reshape(arrays["y"].shape),
            "index": index.astype(np.int32).reshape(arrays["index"].shape),
        }

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        outputs = int(np.prod(sizes["y"]))
        depth = int(np.prod(sizes["x"])) // max(1, outputs)
        # A load, a comparison, two moves and the loop; no vector instruction keeps an index.
        return chip.workers * (30 + -(-outputs // chip.workers) * (12 + 6 * depth)) + 33

    def code_bytes(self, chip: IpuChip) -> int:
        return 300
