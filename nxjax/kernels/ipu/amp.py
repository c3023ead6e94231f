"""Codelets of products: the accumulating (AMP) unit for floats, one channel each (depthwise), and integers.

All of them are convolutions of a tile's box; a matrix product is one with a kernel of one element. Operands come in
blocks of channels, as the unit takes them; who cuts and pads them so is not known here.

Numerics of the AMP unit, after Graphcore's instruction set: products of a block of input channels (16 halves, 8 floats)
are summed in single precision; between blocks the sum is held as the type of the partials. Half partials are therefore
rounded once per block and kernel element, not once per product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu import amp_cycles
from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.spec import CTYPES, Attribute, Codelet, Field, NDArray

# Spatial dimensions of a box; a product has sizes 1, 1 and its rows.
SPATIAL: Final = 3

_HEADER: Final = """#include <poplar/HalfFloat.hpp>
#include <poplar/Vertex.hpp>
"""

_MEMBERS: Final = """
  poplar::Input<poplar::Vector<T, poplar::VectorLayout::ONE_PTR, 8>> x;
  poplar::Input<poplar::Vector<T, poplar::VectorLayout::ONE_PTR, 16, true>> w;
  poplar::Output<poplar::Vector<A, poplar::VectorLayout::ONE_PTR, 16, true>> y;
  // Boxes: x [groups][inGroups][batch][id][ih][iw][depth], y [groups][outGroups][batch][od][oh][ow][units],
  // w [groups][outGroups][inGroups][kd][kh][kw][units][depth].
  const unsigned groups, inGroups, outGroups, batch;
  const unsigned id, ih, iw, od, oh, ow, kd, kh, kw;
  const int sd, sh, sw;  // strides
  const int dd, dh, dw;  // dilations of the kernel
"""

_AMP: Final = (
    _HEADER
    + """
namespace nx {

template <typename T, typename A, typename Sum, unsigned units, unsigned depth>
class Amp : public poplar::MultiVertex {
 public:
"""
    + _MEMBERS
    + """
  bool compute(unsigned wid) {
    // Lanes keep the order of the sum independent of how the host's compiler vectorizes it: over the units of a part.
    constexpr unsigned lanes = depth < 8 ? depth : 8, wide = units < 8 ? units : 8, parts = units / wide;
    static_assert(units % wide == 0, "whole vectors");
    typedef Sum Wide __attribute__((vector_size(wide * sizeof(Sum))));
    const unsigned rows = batch * od * oh * ow;
    const unsigned begin = rows * wid / numWorkers(), end = rows * (wid + 1) / numWorkers();
    const unsigned taps = kd * kh * kw;
    Wide weights[parts][depth];  // turned: the units of one input channel side by side
    for (unsigned g = 0; g < groups; ++g) {
      for (unsigned o = 0; o < outGroups; ++o) {
        A *const __restrict out = &y[(g * outGroups + o) * rows * units];
        for (unsigned i = begin * units; i < end * units; ++i) out[i] = A(0);
        for (unsigned i = 0; i < inGroups; ++i) {
          const T *const in = &x[(g * inGroups + i) * batch * id * ih * iw * depth];
          for (unsigned tap = 0; tap < taps; ++tap) {
            const T *const block = &w[(((g * outGroups + o) * inGroups + i) * taps + tap) * units * depth];
            for (unsigned u = 0; u < units; ++u)
              for (unsigned j = 0; j < depth; ++j) weights[u / wide][j][u % wide] = Sum(block[u * depth + j]);
            const unsigned td = tap / (kh * kw), th = tap / kw % kh, tw = tap % kw;
            for (unsigned row = begin; row < end; ++row) {
              const unsigned c = row % ow, b = row / ow % oh, a = row / (ow * oh) % od, n = row / (ow * oh * od);
              const unsigned place =
                  ((n * id + a * sd + td * dd) * ih + b * sh + th * dh) * iw + c * sw + tw * dw;
              Sum values[depth];
              for (unsigned j = 0; j < depth; ++j) values[j] = Sum(in[place * depth + j]);
              for (unsigned v = 0; v < parts; ++v) {
                Wide part[lanes];
                for (unsigned l = 0; l < lanes; ++l) part[l] = values[l] * weights[v][l];
                for (unsigned j = lanes; j < depth; j += lanes)
                  for (unsigned l = 0; l < lanes; ++l) part[l] += values[j + l] * weights[v][j + l];
                for (unsigned half_ = lanes / 2; half_ > 0; half_ /= 2)
                  for (unsigned l = 0; l < half_; ++l) part[l] += part[l + half_];
                A *const to = out + row * units + v * wide;
                for (unsigned u = 0; u < wide; ++u) to[u] = A(Sum(to[u]) + part[0][u]);
              }
            }
          }
        }
      }
    }
    return true;
  }
};

"""
)

_DEPTHWISE: Final = (
    _HEADER
    + """
namespace nx {

template <typename T, typename A, typename Sum>
class Depthwise : public poplar::MultiVertex {
 public:
  poplar::Input<poplar::Vector<T, poplar::VectorLayout::ONE_PTR, 8>> x;
  poplar::Input<poplar::Vector<T, poplar::VectorLayout::ONE_PTR, 8>> w;
  poplar::Output<poplar::Vector<A, poplar::VectorLayout::ONE_PTR, 8>> y;
  // Boxes: x [batch][id][ih][iw][channels], w [kd][kh][kw][channels], y [batch][od][oh][ow][channels].
  const unsigned channels, batch;
  const unsigned id, ih, iw, od, oh, ow, kd, kh, kw;
  const int sd, sh, sw;
  const int dd, dh, dw;

  bool compute(unsigned wid) {
    const unsigned rows = batch * od * oh * ow;
    const unsigned begin = rows * wid / numWorkers(), end = rows * (wid + 1) / numWorkers();
    for (unsigned row = begin; row < end; ++row) {
      const unsigned c = row % ow, b = row / ow % oh, a = row / (ow * oh) % od, n = row / (ow * oh * od);
      for (unsigned j = 0; j < channels; ++j) {
        Sum sum = 0;
        for (unsigned td = 0; td < kd; ++td)
          for (unsigned th = 0; th < kh; ++th)
            for (unsigned tw = 0; tw < kw; ++tw) {
              const unsigned place =
                  ((n * id + a * sd + td * dd) * ih + b * sh + th * dh) * iw + c * sw + tw * dw;
              sum += Sum(x[place * channels + j]) * Sum(w[((td * kh + th) * kw + tw) * channels + j]);
            }
        y[row * channels + j] = A(sum);
      }
    }
    return true;
  }
};

"""
)

_BOX: Final = ("id", "ih", "iw", "od", "oh", "ow", "kd", "kh", "kw")
_STEPS: Final = ("sd", "sh", "sw", "dd", "dh", "dw")


def _attributes(*first: str) -> tuple[Attribute, ...]:
    sizes = tuple(Attribute(n, "unsigned") for n in (*first, *_BOX))
    return (*sizes, *(Attribute(n, "int") for n in _STEPS))


def _windows(x: NDArray, tap: tuple[int, ...], out: tuple[int, ...], attributes: Mapping[str, Any], at: int) -> NDArray:
    """The part of ``x`` that one kernel element meets; spatial dimensions begin at ``at``."""
    index: list[slice] = [slice(None)] * x.ndim
    for d, (t, n) in enumerate(zip(tap, out, strict=True)):
        step, hole = int(attributes[("sd", "sh", "sw")[d]]), int(attributes[("dd", "dh", "dw")[d]])
        index[at + d] = slice(t * hole, t * hole + (n - 1) * step + 1, step)
    return x[tuple(index)]


@final
class Amp(Codelet):
    """Products on the accumulating unit (floats), or on the integer unit: a box of a grouped convolution.

    Fields: ``x`` [groups, in_groups, batch, id, ih, iw, depth], ``w`` [groups, out_groups, in_groups, kd, kh, kw,
    units, depth], ``y`` [groups, out_groups, batch, od, oh, ow, units]. Input positions beyond the box do not occur:
    padding and holes are in the box.
    """

    def __init__(self, dtype: str, partials: str, units: int, depth: int) -> None:
        self.dtype = dtype
        self.partials = partials
        self.units = units
        self.depth = depth

    @property
    def name(self) -> str:
        return f"nx::Amp<{CTYPES[self.dtype]},{CTYPES[self.partials]},{self._sum},{self.units},{self.depth}>"

    @property
    def integer(self) -> bool:
        return self.partials == "int32"

    @property
    def _sum(self) -> str:
        # Unsigned sums wrap around, as integers of arrays do.
        return "unsigned int" if self.integer else "float"

    @property
    def fields(self) -> tuple[Field, ...]:
        return (
            Field("x", "in", self.dtype),
            Field("w", "in", self.dtype, 16, True),
            Field("y", "out", self.partials, 16, True),
        )

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return _attributes("groups", "inGroups", "outGroups", "batch")

    @property
    def source(self) -> str:
        return f"{_AMP}template class {self.name.removeprefix('nx::')};\n\n}}  // namespace nx\n"

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x, w, y = arrays["x"], arrays["w"], arrays["y"]
        work, partials = (np.int32, np.int32) if self.integer else (np.float32, y.dtype)
        x, w = x.astype(work), w.astype(work)
        total = np.zeros(y.shape, partials)
        kernel = w.shape[4:7]
        with np.errstate(all="ignore"):
            for i in range(x.shape[2]):
                for tap in np.ndindex(*kernel):
                    part = _windows(x[:, :, i], tap, y.shape[4:7], attributes, 3)
                    block = w[(slice(None), slice(None), slice(None), i, *tap)]
                    # [v, g, b, d, h, w, k] times [v, g, o, u, k]: rows times units, for each vertex and group.
                    rows = part.reshape(*part.shape[:2], 1, -1, self.depth)
                    sums = rows @ np.swapaxes(block, -1, -2)
                    total = (total.astype(work) + sums.reshape(y.shape)).astype(partials)
        return {"y": total}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        groups, out_groups, batch, *out, _ = sizes["y"]
        kernel = sizes["w"][3:6]
        steps = [int(attributes[s]) for s in ("sd", "sh", "sw")]
        return int(self.estimate(groups, sizes["x"][1], out_groups, batch, out, kernel, steps, chip))

    def estimate(
        self,
        groups: Any,
        in_groups: Any,
        out_groups: Any,
        batch: Any,
        out: Any,
        kernel: tuple[int, ...],
        steps: Any,
        chip: IpuChip,
    ) -> Any:
        """`cycles` of boxes of these sizes; each may be an array."""
        rows = np.asarray(batch) * out[0] * out[1]
        taps = kernel[0] * kernel[1] * kernel[2]
        if self.integer:
            outputs = np.asarray(groups) * out_groups * self.units * rows * out[2]
            return amp_cycles.integer(outputs * in_groups * self.depth * taps, outputs, chip)
        halves, half_partials = self.dtype == "float16", self.partials == "float16"
        if taps == 1 and all(s == 1 for s in steps):
            return amp_cycles.product(rows * out[2], in_groups, out_groups, groups, halves, half_partials, chip)
        return amp_cycles.convolution(
            rows, out[2], taps, kernel[0] * kernel[1], in_groups, out_groups, groups, halves, half_partials, chip
        )

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        outputs = int(np.prod(sizes["y"]))
        return 0 if self.integer else 2 * outputs * sizes["x"][1] * self.depth * int(np.prod(sizes["w"][3:6]))

    def code_bytes(self, chip: IpuChip) -> int:
        # Of the order of poplibs' assembly of this vertex.
        return 1500


@final
class Depthwise(Codelet):
    """A convolution in which every channel has its own kernel and meets no other one.

    Fields: ``x`` [batch, id, ih, iw, channels], ``w`` [kd, kh, kw, channels], ``y`` [batch, od, oh, ow, channels].
    """

    def __init__(self, dtype: str, partials: str) -> None:
        self.dtype = dtype
        self.partials = partials

    @property
    def name(self) -> str:
        return (
            f"nx::Depthwise<{CTYPES[self.dtype]},{CTYPES[self.partials]},{'unsigned int' if self.integer else 'float'}>"
        )

    @property
    def integer(self) -> bool:
        return self.partials == "int32"

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", self.dtype), Field("w", "in", self.dtype), Field("y", "out", self.partials))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return _attributes("channels", "batch")

    @property
    def source(self) -> str:
        return f"{_DEPTHWISE}template class {self.name.removeprefix('nx::')};\n\n}}  // namespace nx\n"

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        x, w, y = arrays["x"], arrays["w"], arrays["y"]
        work = np.int32 if self.integer else np.float32
        total = np.zeros(y.shape, work)
        with np.errstate(all="ignore"):
            for tap in np.ndindex(*w.shape[1:4]):
                part = _windows(x, tap, y.shape[2:5], attributes, 2).astype(work)
                total += part * w[(slice(None), *tap)].astype(work)[:, None, None, None, None]
            return {"y": total.astype(y.dtype)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        batch, *out, channels = sizes["y"]
        return int(self.estimate(batch, out, channels, sizes["w"][:3], chip))

    def estimate(self, batch: Any, out: Any, channels: Any, kernel: tuple[int, ...], chip: IpuChip) -> Any:
        """`cycles` of boxes of these sizes; each may be an array."""
        positions = np.asarray(batch) * out[0] * out[1] * out[2]
        taps = kernel[0] * kernel[1] * kernel[2]
        if self.integer:
            return amp_cycles.integer(positions * channels * taps, positions * channels, chip)
        return amp_cycles.depthwise(positions, channels, taps, self.dtype == "float16", chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return 0 if self.integer else 2 * int(np.prod(sizes["y"])) * int(np.prod(sizes["w"][:3]))

    def code_bytes(self, chip: IpuChip) -> int:
        return 800
