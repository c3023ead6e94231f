"""Whole rows at once: softmax and its kin, and normalization. In float inside, halves rounded once at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

SoftmaxKind = Literal["softmax", "log_softmax", "logsumexp"]
NormKind = Literal["layer_norm", "rms_norm"]

_SUM: Final = """// In eight lanes, added in pairs: the order does not depend on the compiler.
template <typename F>
inline float sumOf(unsigned n, F term) {
  float sums[8] = {};
  unsigned i = 0;
  for (; i + 8 <= n; i += 8)
    for (unsigned l = 0; l < 8; ++l) sums[l] += term(i + l);
  for (unsigned l = 0; i + l < n; ++l) sums[l] += term(i + l);
  for (unsigned k = 4; k; k /= 2)
    for (unsigned l = 0; l < k; ++l) sums[l] += sums[l + k];
  return sums[0];
}
"""

_SOFTMAX: Final = """
  bool compute(unsigned wid) {
    const unsigned rows = n ? x.size() / n : 0;
    const Range mine = share(rows, @GRAIN@, wid, numWorkers());
    for (unsigned r = mine.first; r < mine.last; ++r) {
      const T *const in = &x[r * n];
      float top = -__builtin_inff();
      for (unsigned i = 0; i < n; ++i) {
        const float v = float(in[i]);
        top = v >= top || v != v ? v : top;
        if (top != top) break;
      }
@FINISH@
    }
    return true;
  }
"""
_FINISH: Final = {
    "softmax": """      T *const out = &y[r * n];
      const float sum = sumOf(n, [=](unsigned i) { return std::exp(float(in[i]) - top); });
      for (unsigned i = 0; i < n; ++i) out[i] = static_cast<T>(std::exp(float(in[i]) - top) / sum);""",
    "log_softmax": """      T *const out = &y[r * n];
      const float sum = std::log(sumOf(n, [=](unsigned i) { return std::exp(float(in[i]) - top); }));
      for (unsigned i = 0; i < n; ++i) out[i] = static_cast<T>(float(in[i]) - top - sum);""",
    # Of infinities there is nothing to subtract.
    "logsumexp": """      const float shift = top - top == 0 ? top : 0.0f;
      const float sum = sumOf(n, [=](unsigned i) { return std::exp(float(in[i]) - shift); });
      y[r] = static_cast<T>(std::log(sum) + shift);""",
}

_NORM: Final = """
  bool compute(unsigned wid) {
    const unsigned rows = n ? x.size() / n : 0;
    const Range mine = share(rows, grainOf(n, sizeof(T)), wid, numWorkers());
    const float each = 1.0f / static_cast<float>(n);
    for (unsigned r = mine.first; r < mine.last; ++r) {
      const T *const in = &x[r * n];
      T *const out = &y[r * n];
      const float mean = @MEAN@;
      const float variance = sumOf(n, [=](unsigned i) {
        const float d = float(in[i]) - mean;
        return d * d;
      }) * each;
      const float factor = 1.0f / std::sqrt(variance + epsilon);
      for (unsigned i = 0; i < n; ++i)
        out[i] = static_cast<T>((float(in[i]) - mean) * factor * float(scale[i])@BIAS@);
    }
    return true;
  }
"""


def _summed(x: NDArray) -> NDArray:
    """Sums of rows, in the order of the C++."""
    padded = np.zeros((*x.shape[:-1], -(-x.shape[-1] // 8) * 8), np.float32)
    padded[..., : x.shape[-1]] = x
    sums = np.zeros((*x.shape[:-1], 8), np.float32)
    for i in range(0, padded.shape[-1], 8):
        sums = sums + padded[..., i : i + 8]
    for k in (4, 2, 1):
        sums = sums[..., :k] + sums[..., k : 2 * k]
    return sums


@final
class Softmax(TextCodelet):
    """softmax, log_softmax ([rows, n] to [rows, n]) or logsumexp ([rows, n] to [rows]) of rows."""

    def __init__(self, kind: SoftmaxKind, dtype: str) -> None:
        self.op = kind
        self.dtype = dtype

    @property
    def label(self) -> str:
        return f"Rows_{self.op}_{self.dtype}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype}

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", self.dtype), Field("y", "out", self.dtype))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("n")

    @property
    def helpers(self) -> str:
        return _SUM

    @property
    def body(self) -> str:
        grain = "8 / sizeof(T)" if self.op == "logsumexp" else "grainOf(n, sizeof(T))"
        return _SOFTMAX.replace("@GRAIN@", grain).replace("@FINISH@", _FINISH[self.op])

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        y = arrays["y"]
        x = arrays["x"].astype(np.float32).reshape(len(y), -1, int(np.max(attributes["n"])))
        top = x.max(-1, keepdims=True, initial=-np.inf)
        if self.op == "logsumexp":
            top = np.where(np.isfinite(top), top, 0).astype(np.float32)
        powers = np.exp(x - top)
        total = _summed(powers)
        if self.op == "softmax":
            found = powers / total
        elif self.op == "log_softmax":
            found = x - top - np.log(total)
        else:
            found = np.log(total) + top
        return {"y": found.astype(y.dtype).reshape(y.shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n = int(np.max(attributes["n"]))
        rows = int(np.prod(sizes["x"])) // max(1, n)
        # Per float: a comparison, twice a subtraction and poplibs' exponential (three cycles), a division, loads.
        each = {"softmax": 17, "log_softmax": 10, "logsumexp": 8}[self.op]
        return chip.workers * (40 + -(-rows // chip.workers) * (60 + each * n)) + 11

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return 4 * int(np.prod(sizes["x"]))

    def code_bytes(self, chip: IpuChip) -> int:
        return 500


@final
class Norm(TextCodelet):
    """layer_norm (with a bias) or rms_norm of rows: ``x`` and ``y`` [rows, n], ``scale`` and ``bias`` [n]."""

    def __init__(self, kind: NormKind, dtype: str, parameters: str | None = None) -> None:
        self.op = kind
        self.dtype = dtype
        self.parameters = parameters or dtype

    @property
    def label(self) -> str:
        return f"Rows_{self.op}_{self.dtype}_{self.parameters}"

    @property
    def types(self) -> dict[str, str]:
        return {"T": self.dtype}

    @property
    def fields(self) -> tuple[Field, ...]:
        bias = (Field("bias", "in", self.parameters),) if self.op == "layer_norm" else ()
        scale = Field("scale", "in", self.parameters)
        return (Field("x", "in", self.dtype), scale, *bias, Field("y", "out", self.dtype))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return (*unsigned("n"), Attribute("epsilon", "float"))

    @property
    def helpers(self) -> str:
        return _SUM

    @property
    def body(self) -> str:
        centred = self.op == "layer_norm"
        mean = "sumOf(n, [=](unsigned i) { return float(in[i]); }) * each" if centred else "0"
        return _NORM.replace("@MEAN@", mean).replace("@BIAS@", " + float(bias[i])" if centred else "")

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        y, n = arrays["y"], int(np.max(attributes["n"]))
        x = arrays["x"].astype(np.float32).reshape(len(y), -1, n)
        each = np.float32(1) / np.float32(n)
        if self.op == "layer_norm":
            x = x - _summed(x) * each
        epsilon = np.asarray(attributes["epsilon"], np.float32).reshape(-1, 1, 1)
        factor = np.float32(1) / np.sqrt(_summed(x * x) * each + epsilon)
        found = x * factor * arrays["scale"].astype(np.float32).reshape(len(y), 1, n)
        if self.op == "layer_norm":
            found = found + arrays["bias"].astype(np.float32).reshape(len(y), 1, n)
        return {"y": found.astype(y.dtype).reshape(y.shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n = int(np.max(attributes["n"]))
        rows = int(np.prod(sizes["x"])) // max(1, n)
        return chip.workers * (40 + -(-rows // chip.workers) * (80 + 7 * n)) + 11

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return 7 * int(np.prod(sizes["x"]))

    def code_bytes(self, chip: IpuChip) -> int:
        return 450
