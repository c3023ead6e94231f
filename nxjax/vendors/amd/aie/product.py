"""Single designs for AMD's XDNA arrays: a matrix product of any size as AIE MLIR, with its kernels, model and picture.

What `nx.compile` with the targets ``aie-npu1`` and ``aie-npu2`` makes of every product of a program, here by itself,
and with results of 32 bits too. See docs/xdna.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, final

import numpy as np

from nxjax.backends.evidence import Label, Record, digest, label
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.kernels.aie.chip import ARRAYS
from nxjax.kernels.aie.spec import source_file
from nxjax.lower.aie.build import matmul_design
from nxjax.lower.aie.cycles import Cycles, matmul_cycles, matmul_kernels
from nxjax.lower.aie.design import Design
from nxjax.lower.aie.parse import parse
from nxjax.lower.aie.plan import MatmulPlan, MatmulProblem
from nxjax.lower.aie.planner import matmul_plan
from nxjax.lower.aie.text import mlir
from nxjax.lower.aie.verify import verify
from nxjax.ops.base import NDArray
from nxjax.vendors.amd.aie import model
from nxjax.vendors.amd.aie.model import SimulatedRun
from nxjax.vendors.amd.aie.picture import svg

__all__ = ["MatmulDesign", "matmul"]


@final
class MatmulDesign:
    """A product as a design that was verified.

    Attributes:
        mlir: AIE MLIR text.
        source: the cores' kernels, C++ against the AIE API.
        plan: how it is cut over the array; ``plan.why`` says why.
        cycles: by the model in closed form, with what bounds them.
        evidence: what ran it, once a result was the product.
    """

    def __init__(self, plan: MatmulPlan) -> None:
        p = plan.problem
        kernels = matmul_kernels(p.element, p.result, p.relu, plan.m, plan.k, plan.n, plan.array)
        self.plan = plan
        self.mlir: str = mlir(matmul_design(plan))
        self.source: str = source_file(kernels)
        self.cycles: Cycles = matmul_cycles(plan)
        self._design: Design = verify(parse(self.mlir))
        self.trace: SimulatedRun | None = None
        self.evidence: list[Record] = []

    @property
    def label(self) -> Label:
        """How far towards silicon it went, by the records."""
        return label(self.evidence, {"design.mlir": self.mlir.encode()}, None)

    def run(self, a: Any, b: Any) -> np.ndarray[Any, Any]:
        """``a [m, k] @ b [k, n]`` by our model of the array, which runs the text; `trace` then has its cycles.

        Args:
            a, b: int8, or anything that is rounded to bfloat16, as the design's operands are.

        Returns:
            int32 [m, n], or bfloat16 [m, n].
        """
        p, (mp, kp, np_) = self.plan.problem, self.plan.padded
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != (p.m, p.k) or b.shape != (p.k, p.n):
            raise ShapeError("aie: operands", got=f"{a.shape}, {b.shape}", expected=f"{(p.m, p.k)}, {(p.k, p.n)}")
        if p.element == "i8" and (a.dtype != np.int8 or b.dtype != np.int8):
            raise DtypeError("aie: operands", got=f"{a.dtype}, {b.dtype}", expected="int8")
        buffers = {name: np.zeros(t.size, t.dtype) for name, t in self._design.sequence.arguments}
        buffers["a"].reshape(mp, kp)[: p.m, : p.k] = a.astype(buffers["a"].dtype)
        buffers["b"].reshape(kp, np_)[: p.k, : p.n] = b.astype(buffers["b"].dtype)
        self.trace = model.run(self._design, buffers)
        c = buffers["c"].reshape(mp, np_)[: p.m, : p.n].copy()
        if not self.evidence and self._is_product(a, b, c):
            took = (digest(self.mlir.encode()),)
            self.evidence.append(Record("ran", "own-model", f"nxjax array model of {self.plan.array.name}", took=took))
        return c

    def _is_product(self, a: NDArray, b: NDArray, c: NDArray) -> bool:
        """Whether a result is the product: integers exactly, bfloat16 within the rounding of operands and sums."""
        left, right = a.astype(np.float64), b.astype(np.float64)
        wanted = left @ right
        wanted = np.maximum(wanted, 0) if self.plan.problem.relu else wanted
        within = 0.0 if self.plan.problem.element == "i8" else 2.0**-6 * (abs(left) @ abs(right))
        return bool(np.all(abs(c.astype(np.float64) - wanted) <= within))

    def svg(self) -> str:
        """The placed design."""
        return svg(self._design, str(self.plan))

    def _repr_html_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return "\n".join(self.plan.why or (str(self.plan),))


def matmul(
    m: int,
    k: int,
    n: int,
    *,
    array: str = "npu1",
    dtype: Literal["int8", "bfloat16"] = "int8",
    relu: bool = False,
    columns: int | None = None,
    tile: tuple[int, int, int] | None = None,
) -> MatmulDesign:
    """A product [m, k] x [k, n] for one of AMD's arrays: int8 to int32, or bfloat16 to bfloat16.

    Args:
        array: "npu1" (XDNA) or "npu2" (XDNA 2).
        relu: of a bfloat16 result.
        columns: of the array, not the planner's choice.
        tile: (m, k, n) of a core's tiles, not the planner's choice.

    Raises:
        LoweringError: a limit of the array that no plan holds, or that ``tile`` breaks; the message names it.
        ParameterError: an array, dtype or number of columns that there is not.

    >>> design = matmul(20, 30, 40, columns=1)
    >>> a, b = np.ones((20, 30), np.int8), np.ones((30, 40), np.int8)
    >>> int(design.run(a, b)[0, 0])
    30
    """
    if array not in ARRAYS:
        raise ParameterError("aie: array", got=repr(array), expected=" or ".join(map(repr, ARRAYS)))
    if dtype not in ("int8", "bfloat16"):
        raise ParameterError("aie: dtype", got=repr(dtype), expected="'int8' or 'bfloat16'")
    problem = MatmulProblem(m, k, n) if dtype == "int8" else MatmulProblem(m, k, n, "bf16", "bf16")
    return MatmulDesign(matmul_plan(replace(problem, relu=relu), ARRAYS[array], columns=columns, tile=tile))
