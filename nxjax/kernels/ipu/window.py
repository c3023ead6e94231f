"""Windows over a tile's box: pooling, and its transpose for the extremum.

Boxes are [batch, depth, height, width, channels]. What a window reaches beyond the box does not count: padding takes no
memory. Its size before the box is an attribute of the vertex: tiles in the middle and at the edge share a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.reduce import UFUNCS, identity, identity_text, join_text, work_dtype
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

WindowKind = Literal["add", "mul", "max", "min"]

_SIZES: Final = ("channels", "batch", "id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw")
# Strides, dilations, padding before the box (negative: the box begins before the first window).
_STEPS: Final = ("sd", "sh", "sw", "dd", "dh", "dw", "pd", "ph", "pw")

_PLACE: Final = """
  // The element of the box that tap (td, th, tw) of window (a, b, c) meets, or -1.
  long place(unsigned n, unsigned a, unsigned b, unsigned c, unsigned td, unsigned th, unsigned tw) const {
    const int d = int(a) * sd + int(td) * dd - pd, h = int(b) * sh + int(th) * dh - ph;
    const int w = int(c) * sw + int(tw) * dw - pw;
    if (d < 0 || h < 0 || w < 0 || d >= int(id) || h >= int(ih) || w >= int(iw)) return -1;
    return (((static_cast<long>(n) * id + d) * ih + h) * iw + w) * channels;
  }
"""

_REDUCE: Final = (
    _PLACE
    + """
  static inline A join(A a, A b) { return static_cast<A>(@JOIN@); }

  bool compute(unsigned wid) {
    const unsigned rows = batch * od * oh * ow;
    const Range mine = share(rows, grainOf(channels, sizeof(T)), wid, numWorkers());
    for (unsigned row = mine.first; row < mine.last; ++row) {
      const unsigned c = row % ow, b = row / ow % oh, a = row / (ow * oh) % od, n = row / (ow * oh * od);
      for (unsigned first = 0; first < channels; first += 16) {
        const unsigned count = channels - first < 16 ? channels - first : 16;
        A sums[16];
        for (unsigned j = 0; j < count; ++j) sums[j] = static_cast<A>(@START@);
        for (unsigned td = 0; td < kd; ++td)
          for (unsigned th = 0; th < kh; ++th)
            for (unsigned tw = 0; tw < kw; ++tw) {
              const long at = place(n, a, b, c, td, th, tw);
              if (at < 0) continue;
              for (unsigned j = 0; j < count; ++j) sums[j] = join(sums[j], static_cast<A>(x[at + first + j]));
            }
        for (unsigned j = 0; j < count; ++j) y[row * channels + first + j] = static_cast<T>(sums[j]);
      }
    }
    return true;
  }
"""
)

_SCATTER: Final = (
    _PLACE
    + """
  // Windows overlap, so a worker has channels, and adds in the order of the windows.
  bool compute(unsigned wid) {
    const unsigned grain = channels * sizeof(O) % 8 == 0 ? 8 / sizeof(O) : channels;
    const Range mine = share(channels, grain ? grain : 1, wid, numWorkers());
    for (unsigned i = 0; i < batch * id * ih * iw; ++i)
      for (unsigned j = mine.first; j < mine.last; ++j) y[i * channels + j] = O(0);
    for (unsigned row = 0; row < batch * od * oh * ow; ++row) {
      const unsigned c = row % ow, b = row / ow % oh, a = row / (ow * oh) % od, n = row / (ow * oh * od);
      for (unsigned j = mine.first; j < mine.last; ++j) {
        long chosen = -1;
        A best = A(0);
        for (unsigned td = 0; td < kd; ++td)
          for (unsigned th = 0; th < kh; ++th)
            for (unsigned tw = 0; tw < kw; ++tw) {
              const long at = place(n, a, b, c, td, th, tw);
              if (at < 0) continue;
              const A value = static_cast<A>(x[at + j]);
              if (chosen < 0 || !(best @KEEPS@ value)) {
                best = value;
                chosen = at;
              }
            }
        if (chosen >= 0) {
          O &to = y[chosen + j];
          to = static_cast<O>(to + static_cast<A>(source[row * channels + j]));
        }
      }
    }
    return true;
  }
"""
)


def _attributes() -> tuple[Attribute, ...]:
    return (*unsigned(*_SIZES), *(Attribute(n, "int") for n in _STEPS))


def _numbers(attributes: Mapping[str, Any], names: str, v: int) -> list[int]:
    """Three attributes of vertex ``v``."""
    found: list[int] = []
    for name in names.split():
        value = np.asarray(attributes[name])
        found.append(int(value.reshape(-1)[v if value.size > 1 else 0]))
    return found


def _taps(
    attributes: Mapping[str, Any], v: int
) -> Iterator[tuple[tuple[slice, slice, slice], tuple[slice, slice, slice]]]:
    """Per tap of the window, in order: the windows that meet the box there, and what they meet."""
    box, out, kernel = (_numbers(attributes, n, v) for n in ("id ih iw", "od oh ow", "kd kh kw"))
    steps, holes, before = (_numbers(attributes, n, v) for n in ("sd sh sw", "dd dh dw", "pd ph pw"))
    for tap in np.ndindex(*kernel):
        windows: list[slice] = []
        places: list[slice] = []
        for t, n, m, s, d, p in zip(tap, box, out, steps, holes, before, strict=True):
            start = t * d - p
            first = max(0, -(start // s))
            last = min(m, (n - 1 - start) // s + 1)
            windows.append(slice(first, max(first, last)))
            places.append(
                slice(start + first * s, start + max(last - 1, first) * s + 1, s) if last > first else slice(0, 0)
            )
        if all(w.stop > w.start for w in windows):
            yield (windows[0], windows[1], windows[2]), (places[0], places[1], places[2])


@final
class ReduceWindow(TextCodelet):
    """Each window of ``x`` [batch, id, ih, iw, channels] reduced: ``y`` [batch, od, oh, ow, channels]."""

    def __init__(self, kind: WindowKind, dtype: str) -> None:
        self.op = kind
        self.dtype = dtype

    @property
    def label(self) -> str:
        return f"ReduceWindow_{self.op}_{self.dtype}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": work_dtype(self.op, self.dtype)}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", self.dtype), Field("y", "out", self.dtype))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return _attributes()

    @property
    def body(self) -> str:
        work = work_dtype(self.op, self.dtype)
        return _REDUCE.replace("@JOIN@", join_text(self.op, work)).replace("@START@", identity_text(self.op, work))

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        y, work = arrays["y"], work_dtype(self.op, self.dtype)
        total = np.full(y.shape, identity(self.op, work), work)
        x = arrays["x"].astype(work)
        for v in range(len(y)):
            for windows, places in _taps(attributes, v):
                part = total[(v, slice(None), *windows)]
                UFUNCS[self.op](part, x[(v, slice(None), *places)], out=part)
        return {"y": total.astype(y.dtype)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        return _cycles(sizes["y"], attributes, self.dtype, 2, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        taps = int(np.prod(_numbers(attributes, "kd kh kw", 0)))
        return int(np.prod(sizes["y"])) * taps if np.dtype(self.dtype).kind == "f" else 0

    def code_bytes(self, chip: IpuChip) -> int:
        return 600


def _cycles(out: tuple[int, ...], attributes: Mapping[str, Any], dtype: str, each: int, chip: IpuChip) -> int:
    """A count of instructions, no published figure: a vector's load and step per tap, 12 around a tap's channels."""
    *rows, channels = out
    lanes = {"float32": 2, "float16": 4}.get(dtype, 1)
    taps = int(np.prod(_numbers(attributes, "kd kh kw", 0)))
    busiest = -(-int(np.prod(rows)) // chip.workers)
    return chip.workers * (60 + busiest * (20 + taps * (12 + each * -(-channels // lanes)))) + 11


@final
class SelectAndScatterAdd(TextCodelet):
    """Each element of ``source`` added where its window of ``x`` has its first largest (``greatest``) or smallest one.

    Fields: ``source`` [batch, od, oh, ow, channels], ``x`` and ``y`` [batch, id, ih, iw, channels]. Sums of halves are
    given in float: where tiles share elements, their parts are added before they are rounded.
    """

    def __init__(self, greatest: bool, dtype: str) -> None:
        self.greatest = greatest
        self.dtype = dtype

    @property
    def out(self) -> str:
        """The dtype of ``y``."""
        return work_dtype("add", self.dtype)

    @property
    def label(self) -> str:
        return f"Scatter{'Largest' if self.greatest else 'Smallest'}_{self.dtype}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype, "A": self.out, "O": self.out}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("source", "in", self.dtype), Field("x", "in", self.dtype), Field("y", "out", self.out))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return _attributes()

    @property
    def body(self) -> str:
        return _SCATTER.replace("@KEEPS@", ">=" if self.greatest else "<=")

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x, source = arrays["x"], arrays["source"]
        keeps = np.greater_equal if self.greatest else np.less_equal
        y = np.zeros(arrays["y"].shape, self.out)
        for v in range(len(x)):
            best = np.zeros(source.shape[1:], x.dtype)
            winner = np.full(source.shape[1:], -1)
            taps = list(_taps(attributes, v))
            for i, (windows, places) in enumerate(taps):
                at = (slice(None), *windows)
                value = x[(v, slice(None), *places)]
                taken = (winner[at] < 0) | ~keeps(best[at], value)
                best[at] = np.where(taken, value, best[at])
                winner[at] = np.where(taken, i, winner[at])
            for i, (windows, places) in enumerate(taps):
                at = (slice(None), *windows)
                chosen = np.where(winner[at] == i, source[v][at], 0).astype(self.out)
                y[(v, slice(None), *places)] += chosen
        return {"y": y}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        *rows, channels = sizes["source"]
        taps = int(np.prod(_numbers(attributes, "kd kh kw", 0)))
        # Not a vector instruction in it: a load, a comparison, two moves per tap; the windows one after the other.
        mine = -(-channels // chip.workers)
        return chip.workers * (60 + int(np.prod(rows)) * (20 + mine * (10 + taps * 10))) + 11

    def code_bytes(self, chip: IpuChip) -> int:
        return 700
