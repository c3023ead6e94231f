"""Factorizations of small matrices, several on a tile: Cholesky, LU with partial pivoting, triangular systems.

In single precision, row-major; a worker has whole matrices. The meanings are those of the ops of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip
from nxjax.kernels.ipu.spec import Attribute, Field, NDArray
from nxjax.kernels.ipu.text import TextCodelet, unsigned

_CHOLESKY: Final = """
  bool compute(unsigned wid) {
    const unsigned size = n * n, count = size ? x.size() / size : 0;
    const Range mine = share(count, grainOf(size, 4), wid, numWorkers());
    for (unsigned m = mine.first; m < mine.last; ++m) {
      const float *const a = &x[m * size];
      float *const l = &y[m * size];
      bool definite = true;
      for (unsigned i = 0; i < n; ++i) {
        for (unsigned j = 0; j <= i; ++j) {
          float sum = a[i * n + j];
          for (unsigned k = 0; k < j; ++k) sum -= l[i * n + k] * l[j * n + k];
          if (i == j) {
            definite = definite && sum > 0;
            l[i * n + i] = std::sqrt(sum);
          } else {
            l[i * n + j] = sum / l[j * n + j];
          }
        }
        for (unsigned j = i + 1; j < n; ++j) l[i * n + j] = 0;
      }
      if (!definite)
        for (unsigned i = 0; i < n; ++i)
          for (unsigned j = 0; j <= i; ++j) l[i * n + j] = __builtin_nanf("");
    }
    return true;
  }
"""

_SOLVE: Final = """
  bool compute(unsigned wid) {
    const unsigned size = n * k, count = n ? a.size() / (n * n) : 0;
    const Range mine = share(count, grainOf(size, 4), wid, numWorkers());
    for (unsigned m = mine.first; m < mine.last; ++m) {
      const float *const t = &a[m * n * n];
      const float *const from = &b[m * size];
      float *const to = &y[m * size];
      for (unsigned step = 0; step < n; ++step) {
        const unsigned i = @LOWER@ ? step : n - 1 - step;
        const unsigned first = @LOWER@ ? 0 : i + 1, last = @LOWER@ ? i : n;
        for (unsigned c = 0; c < k; ++c) {
          float sum = 0;
          for (unsigned j = first; j < last; ++j) sum += t[@A@] * to[@XJ@];
          const float value = from[@XI@] - sum;
          to[@XI@] = @DIVIDED@;
        }
      }
    }
    return true;
  }
"""

_LU: Final = """
  static float magnitude(float v) { return v < 0 ? -v : v; }

  bool compute(unsigned wid) {
    const unsigned size = rows * columns, steps = rows < columns ? rows : columns;
    const unsigned count = size ? x.size() / size : 0;
    const Range mine = share(count, 2, wid, numWorkers());
    for (unsigned m = mine.first; m < mine.last; ++m) {
      float *const a = &y[m * size];
      for (unsigned i = 0; i < size; ++i) a[i] = x[m * size + i];
      int *const order = &permutation[m * rows];
      for (unsigned i = 0; i < rows; ++i) order[i] = static_cast<int>(i);
      for (unsigned k = 0; k < steps; ++k) {
        unsigned p = k;
        float best = magnitude(a[k * columns + k]);
        for (unsigned i = k + 1; i < rows && best == best; ++i) {
          const float value = magnitude(a[i * columns + k]);
          if (value > best || value != value) {
            best = value;
            p = i;
          }
        }
        pivots[m * steps + k] = static_cast<int>(p);
        if (p != k) {
          for (unsigned j = 0; j < columns; ++j) {
            const float kept = a[k * columns + j];
            a[k * columns + j] = a[p * columns + j];
            a[p * columns + j] = kept;
          }
          const int kept = order[k];
          order[k] = order[p];
          order[p] = kept;
        }
        const float pivot = a[k * columns + k];
        for (unsigned i = k + 1; i < rows; ++i) {
          const float factor = pivot == 0 ? a[i * columns + k] : a[i * columns + k] / pivot;
          a[i * columns + k] = factor;
          for (unsigned j = k + 1; j < columns; ++j) a[i * columns + j] -= factor * a[k * columns + j];
        }
      }
    }
    return true;
  }
"""


def _busy(matrices: int, flops: int, chip: IpuChip) -> int:
    """Cycles: a worker's matrices one after the other, two loads, a product and a sum for each pair of operations."""
    return chip.workers * (40 + -(-matrices // chip.workers) * (60 + 2 * flops)) + 11


class _Factorization(TextCodelet):
    @property
    def types(self) -> dict[str, str]:
        return {"T": "float32"}

    @property
    def spans(self) -> tuple[str, ...]:
        return ("x",)

    def code_bytes(self, chip: IpuChip) -> int:
        return 600


@final
class Cholesky(_Factorization):
    """The lower triangular factor of ``x`` [count, n, n] in ``y``; NaN where it is not positive definite."""

    @property
    def label(self) -> str:
        return "Cholesky_float32"

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("x", "in", "float32"), Field("y", "out", "float32"))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("n")

    @property
    def body(self) -> str:
        return _CHOLESKY

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        n = int(np.max(attributes["n"]))
        a = arrays["x"].reshape(-1, n, n)
        y = np.zeros_like(a)
        definite = np.ones(len(a), bool)
        for j in range(n):
            pivot = a[:, j, j] - (y[:, j, :j] ** 2).sum(1)
            definite &= pivot > 0
            y[:, j, j] = np.sqrt(pivot)
            y[:, j + 1 :, j] = a[:, j + 1 :, j] - (y[:, j + 1 :, :j] * y[:, j, None, :j]).sum(2)
            y[:, j + 1 :, j] /= y[:, j, j, None]
        y[~definite] = np.tril(np.full((n, n), np.nan, y.dtype))
        return {"y": y.reshape(arrays["y"].shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n = int(np.max(attributes["n"]))
        return _busy(int(np.prod(sizes["x"])) // max(1, n * n), n**3 // 3 + 10 * n, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return int(np.prod(sizes["x"])) * int(np.max(attributes["n"])) // 3


@final
class TriangularSolve(_Factorization):
    """Solves op(a) y = b, or y op(a) = b unless ``left``.

    Fields ``a`` [count, n, n], ``b`` and ``y`` [count, n, k], or [count, k, n] unless ``left``.
    """

    def __init__(self, left: bool, lower: bool, transpose: bool, unit: bool) -> None:
        self.left = left
        self.lower = lower
        self.transpose = transpose
        self.unit = unit

    @property
    def label(self) -> str:
        names = [("Left", "Right"), ("Lower", "Upper"), ("Transposed", ""), ("Unit", "")]
        flags = (self.left, self.lower, self.transpose, self.unit)
        return "Solve" + "".join(yes if flag else no for flag, (yes, no) in zip(flags, names, strict=True))

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("a", "in", "float32"), Field("b", "in", "float32"), Field("y", "out", "float32"))

    @property
    def spans(self) -> tuple[str, ...]:
        return ("a",)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("n", "k")

    @property
    def body(self) -> str:
        # A system from the right is one of transposes from the left.
        turned = self.transpose != (not self.left)
        text = _SOLVE.replace("@LOWER@", str(self.lower != turned).lower())
        text = text.replace("@A@", "j * n + i" if turned else "i * n + j")
        text = text.replace("@XJ@", "j * k + c" if self.left else "c * n + j")
        text = text.replace("@XI@", "i * k + c" if self.left else "c * n + i")
        return text.replace("@DIVIDED@", "value" if self.unit else "value / t[i * n + i]")

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        n = int(np.max(attributes["n"]))
        a, b = arrays["a"].reshape(-1, n, n), arrays["b"]
        b = b.reshape(len(a), n, -1) if self.left else b.reshape(len(a), -1, n).swapaxes(1, 2)
        turned = self.transpose != (not self.left)
        a, lower = (a.swapaxes(1, 2), not self.lower) if turned else (a, self.lower)
        x = np.array(b)
        for i in range(n) if lower else range(n - 1, -1, -1):
            known = slice(0, i) if lower else slice(i + 1, n)
            x[:, i] -= (a[:, i, known, None] * x[:, known]).sum(1)
            if not self.unit:
                x[:, i] /= a[:, i, i, None]
        return {"y": (x if self.left else x.swapaxes(1, 2)).reshape(arrays["y"].shape)}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        n, k = int(np.max(attributes["n"])), int(np.max(attributes["k"]))
        return _busy(int(np.prod(sizes["a"])) // max(1, n * n), n * n * k + 6 * n * k, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        return int(np.prod(sizes["a"])) * int(np.max(attributes["k"]))


@final
class Lu(_Factorization):
    """P x = L U of ``x`` [count, rows, columns]: ``y`` both factors, ``pivots`` int32 [count, min], ``permutation``."""

    @property
    def label(self) -> str:
        return "Lu_float32"

    @property
    def fields(self) -> tuple[Field, ...]:
        return (
            Field("x", "in", "float32"),
            Field("y", "out", "float32"),
            Field("pivots", "out", "int32"),
            Field("permutation", "out", "int32"),
        )

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return unsigned("rows", "columns")

    @property
    def body(self) -> str:
        return _LU

    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        m, n = int(np.max(attributes["rows"])), int(np.max(attributes["columns"]))
        a = arrays["x"].reshape(-1, m, n).copy()
        every = np.arange(len(a))
        pivots = np.zeros((len(a), min(m, n)), np.int32)
        permutation = np.tile(np.arange(m, dtype=np.int32), (len(a), 1))
        for k in range(min(m, n)):
            p = k + np.argmax(np.abs(a[:, k:, k]), axis=1)
            pivots[:, k] = p
            a[every, k], a[every, p] = a[every, p], a[every, k]
            permutation[every, k], permutation[every, p] = permutation[every, p], permutation[every, k]
            pivot = a[:, k, k]
            a[:, k + 1 :, k] /= np.where(pivot == 0, 1, pivot)[:, None]
            a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]
        found = {"y": a, "pivots": pivots, "permutation": permutation}
        return {name: v.reshape(arrays[name].shape) for name, v in found.items()}

    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        m, n = int(np.max(attributes["rows"])), int(np.max(attributes["columns"]))
        return _busy(int(np.prod(sizes["x"])) // max(1, m * n), 2 * m * n * min(m, n) // 3 + 20 * m, chip)

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        m, n = int(np.max(attributes["rows"])), int(np.max(attributes["columns"]))
        return int(np.prod(sizes["x"])) * min(m, n) * 2 // 3
