"""NpuGraph -> dispatches of the array: which nodes its kernels compute, each a design with its packed constants.

int8 nodes have the bits of the integer meaning (`nxjax.lower.npu.interpret`), which their tables and factors are made
from and held against here. Float nodes are computed in bfloat16, the array's floating-point type. Every dispatch is a
design of its own, and buffers go through the host's memory between them. Knows no file format and no run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import ml_dtypes
import numpy as np

from nxjax.errors import LoweringError, NxError
from nxjax.kernels.aie.chip import AieArray
from nxjax.kernels.aie.elementwise import ENTRIES, Bfloat, ElementwiseAdd, ElementwiseMul, Function, Lookup
from nxjax.kernels.aie.matmul import tiled
from nxjax.kernels.aie.spec import CoreKernel, NDArray, source_file
from nxjax.lower.aie.build import elementwise_design, matmul_design
from nxjax.lower.aie.cycles import Cycles, elementwise_cycles, matmul_cycles, matmul_kernels
from nxjax.lower.aie.design import Design
from nxjax.lower.aie.plan import ElementwisePlan, MatmulPlan, MatmulProblem
from nxjax.lower.aie.planner import elementwise_plan, matmul_plan
from nxjax.lower.aie.requantize import Columns, columns
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.placement import YES, Verdict
from nxjax.ops.fixed.elementwise import centred, scale_of
from nxjax.ops.fixed.point import quantize_multiplier, rescale, wrap32
from nxjax.ops.fixed.product import factor, requantize_products
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

# Functions of one int8 number, which are tables.
UNARY: Final = frozenset({
    "relu", "relu6", "relu_n1_to_1", "logistic", "tanh", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs",
    "neg", "square", "sin", "cos", "floor", "ceil", "round", "sign", "leaky_relu", "gelu", "erf", "table", "quantize",
})  # fmt: skip
_SUMS: Final = ("add", "sub")


@final
@dataclass(frozen=True)
class AieOptions:
    """What the user may say about plans: so many columns, tile sizes (m, k, n) of products."""

    columns: int | None = None
    tile: tuple[int, int, int] | None = None


@final
@dataclass(frozen=True, eq=False)
class Dispatch:
    """One node as a design.

    Attributes:
        node: what it computes.
        plan: how it is cut.
        kernels: functions of its cores.
        design: the objects; their text is the artifact.
        constants: host buffers that are known, by argument: packed weights.
        names: arguments that are made from the node's operands, in their order.
    """

    node: Node
    plan: MatmulPlan | ElementwisePlan
    kernels: tuple[CoreKernel, ...]
    design: Design
    constants: Mapping[str, NDArray]
    names: tuple[str, ...]

    @property
    def cycles(self) -> Cycles:
        if isinstance(self.plan, MatmulPlan):
            return matmul_cycles(self.plan)
        return elementwise_cycles(self.plan, self.kernels[0].cycles(self.plan.array))

    @property
    def source(self) -> str:
        """The kernels in C++."""
        return source_file(self.kernels)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for dispatches that can share one design."""
        buffers = tuple(b.values for b in self.design.buffers)
        return (self.design.device, tuple(k.name for k in self.kernels), self.design.sequence, buffers)

    def operand(self, argument: str) -> int | None:
        """Which of the node's operands a buffer is made from; None for weights and the result."""
        if argument not in self.names:
            return None
        if isinstance(self.plan, MatmulPlan):
            return self.names.index(argument)
        return [i for i, t in enumerate(self.node.operands) if not scalar(t)][self.names.index(argument)]

    def buffers(self, operands: Sequence[NDArray]) -> dict[str, NDArray]:
        """Host buffers for the values of the node's operands; the result's is zeros."""
        made = {name: np.zeros(t.size, t.dtype) for name, t in self.design.sequence.arguments}
        made.update(self.constants)
        if isinstance(self.plan, MatmulPlan):
            self._product_buffers(self.plan, operands, made)
        else:
            given = [x for x, t in zip(operands, self.node.operands, strict=True) if not scalar(t)]
            for name, x in zip(self.names, given, strict=True):
                made[name][: x.size] = x.reshape(-1).astype(made[name].dtype)
        return made

    def _product_buffers(self, plan: MatmulPlan, operands: Sequence[NDArray], made: dict[str, NDArray]) -> None:
        p, (mp, kp, np_) = plan.problem, plan.padded
        x = operands[0]
        if self.node.attrs.get("adj_x"):
            x = x.swapaxes(-1, -2)
        a = made["a"].reshape(mp, kp)
        flat = x.reshape(p.m, -1)
        a[: p.m, : flat.shape[1]] = flat.astype(a.dtype)
        if flat.shape[1] < p.k:
            # The bias is one more row of the second operand.
            a[: p.m, flat.shape[1]] = 1
        if "b" not in self.constants:
            y = operands[1].swapaxes(-1, -2) if self.node.attrs.get("adj_y") else operands[1]
            b = made["b"].reshape(kp, np_)
            b[: p.k, : p.n] = y.reshape(p.k, p.n).astype(b.dtype)

    def result(self, buffers: Mapping[str, NDArray]) -> NDArray:
        """The node's result in its tensor's dtype and shape."""
        out = self.node.output
        if isinstance(self.plan, MatmulPlan):
            p, (mp, _, np_) = self.plan.problem, self.plan.padded
            y = buffers["c"].reshape(mp, np_)[: p.m, : p.n]
        else:
            y = buffers["z"][: out.size]
        return y.astype(out.dtype).reshape(out.shape)


def scalar(t: Tensor) -> bool:
    """Whether a tensor is one known number: what is computed with it is a function of the other operand."""
    return t.constant and t.size == 1


def verdict(node: Node, array: AieArray, rounding: Rounding = "double", settings: AieOptions | None = None) -> Verdict:
    """Whether the array's kernels compute a node; the reason where they do not."""
    refused = _kind(node)
    if refused:
        return refused
    try:
        dispatch(node, array, rounding, settings or AieOptions())
    except NxError as error:
        return Verdict(False, f"{error.what}: {error.got}", error.fix or "")
    return YES


def dispatch(node: Node, array: AieArray, rounding: Rounding, settings: AieOptions) -> Dispatch:
    """The design of a node; `LoweringError` where a limit does not hold or no kernel has its bits."""
    refused = _kind(node)
    if refused:
        raise LoweringError(f"AIE: {node.op} has no kernel here", got=refused.reason, source=node.source)
    if node.op in ("fully_connected", "batch_matmul"):
        return _integer_product(node, array, rounding, settings) if node.output.grid else _product(
            node, array, settings
        )  # fmt: skip
    if node.output.grid is None:
        return _float_elementwise(node, array, settings)
    if node.op in UNARY or any(map(scalar, node.operands)):
        return _table(node, array, rounding, settings)
    return _sum(node, array, rounding, settings) if node.op in _SUMS else _multiply(node, array, rounding, settings)


def _kind(node: Node) -> Verdict | None:
    """Why no kernel is for such a node, without looking at sizes."""
    out, given = node.output, node.operands
    if len(node.outputs) != 1:
        return Verdict(False, "kernels here have one result")
    integer = out.grid is not None
    for t in (*given[:2], out):
        if integer and (t.grid is None or t.dtype != dtypes.int8):
            return Verdict(False, f"{t.name} is {t.dtype}: integer kernels here take and give int8")
        if not integer and (t.grid is not None or t.dtype != dtypes.float32):
            return Verdict(False, f"{t.name} is {t.dtype}: kernels here are for int8 and for floats as bfloat16")
    if node.op == "fully_connected":
        if any(t is not None and not t.constant for t in node.inputs[1:]):
            return Verdict(False, "weights and bias that are not constants", "make them part of the artifact")
        return None
    if node.op == "batch_matmul":
        if integer:
            return Verdict(
                False,
                "a product of two activations has no weights for its requantization to come with",
                "keep this product in floats (bfloat16 on the array)",
            )
        if any(n != 1 for t in given for n in t.shape[:-2]):
            return Verdict(False, "products of several matrices at once", "multiply them one by one")
        return None
    if node.op in (*_SUMS, "mul"):
        if node.op == "sub" and not integer:
            return Verdict(False, "bfloat16 kernels here are add, mul and relu", "add the negative")
        if integer and len(given) == 2 and any(map(scalar, given)):
            same = [t.shape == out.shape for t in given if not scalar(t)]
            return None if same == [True] else Verdict(False, "an operation on known numbers only")
        if any(t.shape != out.shape for t in given):
            return Verdict(False, "operands of different shapes", "broadcast the smaller one before")
        if not integer and any(map(scalar, given)):
            return Verdict(False, "bfloat16 kernels here take two arrays, and this is one known number")
        if not integer and node.attrs.get("activation") is not None:
            return Verdict(False, "bfloat16 sums and products with a fused activation")
        return None
    if integer and node.op in UNARY:
        return None
    if not integer and node.op == "relu":
        return None
    if "conv" in node.op:
        return Verdict(False, "windows have no kernel here", "write 1x1 convolutions as matrix products over pixels")
    return Verdict(False, "no kernel of the array here computes it")


# --- products ---


def _matrix(t: Tensor, transposed: bool = False) -> tuple[int, int]:
    rows, last = t.size // t.shape[-1], t.shape[-1]
    return (last, rows) if transposed else (rows, last)


def _integer_product(node: Node, array: AieArray, rounding: Rounding, settings: AieOptions) -> Dispatch:
    x, w = node.operand(0), node.operand(1)
    assert w.data is not None
    m, k = _matrix(x)
    n = w.shape[0]
    problem = MatmulProblem(m, k, n, "i8", "i8", packed=True)
    plan = matmul_plan(problem, array, columns=settings.columns, tile=settings.tile)
    numbers = _columns(node, rounding)
    return _dispatch(node, plan, {"b": packed(plan, w.data.T, numbers)}, ("a",))


def _columns(node: Node, rounding: Rounding) -> Columns:
    x, w, out = node.operand(0), node.operand(1), node.output
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    assert x.grid is not None and w.grid is not None and out.grid is not None and w.data is not None
    grid = out.grid
    weights = w.data.astype(np.int64)
    added = np.zeros(w.shape[0], np.int64) if bias is None or bias.data is None else bias.data.astype(np.int64)
    added = added - x.grid.zero_point * weights.sum(1)
    if np.abs(added).max(initial=0) >= 2**31:
        raise LoweringError("AIE requantize: a bias leaves 32 bits", got=int(np.abs(added).max()))
    bound = np.abs(weights).sum(1) * 128 + np.abs(added)
    scale = np.broadcast_to(np.asarray(w.grid.scale, np.float32), (w.shape[0],))
    least, greatest = _limits(node, rounding)
    x_scale = float(scale_of(x.grid))

    def meaning(sums: NDArray) -> NDArray:
        return requantize_products(sums, x_scale, scale, grid, least, greatest, rounding, "dense")

    real = factor(x_scale, scale, grid, "dense")
    if rounding == "single":
        # This meaning is a fixed-point product: its factor is the one that is left of the real one in 31 bits.
        multiplier, shift = quantize_multiplier(real, "single")
        real = multiplier * 2.0 ** (shift - 31)
    return columns(meaning, real, added, bound, grid.zero_point, least, greatest)


def _limits(node: Node, rounding: Rounding) -> tuple[int, int]:
    """The stored results that the node's activation lets through: what sums of the greatest magnitude become."""
    out = node.output
    assert out.grid is not None
    unit = Grid(dtypes.int8, float(out.grid.scale) if not isinstance(out.grid.scale, tuple) else 1.0, 0)
    one = Grid(dtypes.int8, 1.0, 0)
    ends: list[int] = []
    for sum_ in (-(2**24), 2**24):
        a = Tensor("x", (1, 1), dtypes.int8, one)
        w = Tensor("w", (1, 1), dtypes.int8, unit, np.zeros((1, 1), np.int8))
        b = Tensor("b", (1,), dtypes.int32, Grid(dtypes.int32, 1.0, 0), np.array([sum_], np.int32))
        y = Tensor("y", (1, 1), dtypes.int8, out.grid)
        alone = Node("fully_connected", (a, w, b), (y,), {"activation": node.attrs.get("activation")})
        ends.append(int(interpret(NpuGraph("", [a], [y], [alone], rounding), [np.zeros((1, 1), np.int8)])[0][0, 0]))
    return ends[0], ends[1]


def packed(plan: MatmulPlan, b: NDArray, numbers: Columns | None = None) -> NDArray:
    """A constant second operand [k, n] as it is streamed: by column of the array, tile by tile, each with its tail."""
    p, i, (_, kp, np_) = plan.problem, plan.array.intrinsics[plan.problem.element], plan.padded
    dtype = np.dtype(np.int8) if p.element == "i8" else np.dtype(ml_dtypes.bfloat16)
    whole = np.zeros((kp, np_), dtype)
    whole[: b.shape[0], : b.shape[1]] = b.astype(dtype)
    parts: list[bytes] = []
    for column in range(plan.columns):
        for block in range(plan.column_blocks):
            left = (block * plan.columns + column) * plan.n
            tail = numbers.block(left, plan.n) if numbers is not None else b""
            for step in range(plan.steps):
                tile = whole[step * plan.k : (step + 1) * plan.k, left : left + plan.n]
                parts += [tiled(tile, i.k, i.n).tobytes(), tail]
    return np.frombuffer(b"".join(parts), dtype)


def _product(node: Node, array: AieArray, settings: AieOptions) -> Dispatch:
    x, y = node.operand(0), node.operand(1)
    m, k = _matrix(x, bool(node.attrs.get("adj_x")))
    activation = node.attrs.get("activation")
    if activation not in (None, "relu"):
        raise LoweringError("AIE: a bfloat16 product's activation", got=activation, expected="relu or none")
    constants: dict[str, NDArray] = {}
    if node.op == "fully_connected":
        assert y.data is not None
        b = y.data.astype(np.float32).T
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is not None and bias.data is not None:
            b = np.concatenate([b, bias.data.astype(np.float32)[None]])
            k += 1
        problem = MatmulProblem(m, k, b.shape[1], "bf16", "bf16", packed=True, relu=activation == "relu")
        plan = matmul_plan(problem, array, columns=settings.columns, tile=settings.tile)
        constants["b"] = packed(plan, b)
    else:
        n = _matrix(y, bool(node.attrs.get("adj_y")))[1]
        problem = MatmulProblem(m, k, n, "bf16", "bf16", relu=activation == "relu")
        plan = matmul_plan(problem, array, columns=settings.columns, tile=settings.tile)
    return _dispatch(node, plan, constants, ("a",) if constants else ("a", "b"))


def _dispatch(node: Node, plan: MatmulPlan, constants: Mapping[str, NDArray], names: tuple[str, ...]) -> Dispatch:
    p = plan.problem
    kernels = matmul_kernels(p.element, p.result, p.relu, plan.m, plan.k, plan.n, plan.array)
    return Dispatch(node, plan, kernels, matmul_design(plan), constants, names)


# --- elementwise ---


def _elementwise(
    node: Node, array: AieArray, kernel: Callable[[int], CoreKernel], constants: bytes | None, settings: AieOptions
) -> Dispatch:
    names = ("x", "y")[: sum(not scalar(t) for t in node.operands)]
    width = kernel(64).arguments[0].dtype.itemsize
    cycles = lambda size: kernel(size).cycles(array)
    plan = elementwise_plan(node.output.size, len(names), width, array, cycles, columns=settings.columns)
    made = kernel(plan.size)
    return Dispatch(node, plan, (made,), elementwise_design(plan, made, constants), {}, names)


def _everything(node: Node, rounding: Rounding) -> NDArray:
    """The meaning of a node for every int8 number, or every pair of them."""
    varying = [t for t in node.operands if not scalar(t)]
    count = ENTRIES ** len(varying)
    grid = np.stack(np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * len(varying), indexing="ij"))
    inputs = [Tensor(f"x{i}", (count,), t.dtype, t.grid) for i, t in enumerate(varying)]
    taken = iter(inputs)
    given = [_flat(t) if scalar(t) else next(taken) for t in node.operands]
    out = Tensor("y", (count,), node.output.dtype, node.output.grid)
    alone = replace(node, inputs=tuple(given), outputs=(out,))
    return interpret(NpuGraph("", inputs, [out], [alone], rounding), [g.reshape(-1) for g in grid])[0]


def _flat(t: Tensor) -> Tensor:
    assert t.data is not None
    return Tensor(t.name, (1,), t.dtype, t.grid, t.data.reshape(1))


def _proved(
    node: Node,
    array: AieArray,
    kernel: type[ElementwiseAdd] | type[ElementwiseMul],
    constants: NDArray,
    wanted: NDArray,
    settings: AieOptions,
) -> Dispatch:
    """The dispatch, if its kernel is equal to the meaning for all pairs of numbers."""
    x, y = (g.reshape(-1) for g in np.meshgrid(*[np.arange(-128, 128, dtype=np.int8)] * 2, indexing="ij"))
    found = np.empty(x.size, np.int8)
    kernel(x.size).meaning([x, y, constants, found])
    if not np.array_equal(found, wanted):
        raise LoweringError("AIE: the integer kernel is not equal to the meaning", got=int((found != wanted).sum()))
    return _elementwise(node, array, kernel, constants.tobytes(), settings)


def _table(node: Node, array: AieArray, rounding: Rounding, settings: AieOptions) -> Dispatch:
    return _elementwise(node, array, Lookup, _everything(node, rounding).tobytes(), settings)


def _sum(node: Node, array: AieArray, rounding: Rounding, settings: AieOptions) -> Dispatch:
    grids = [t.grid for t in (*node.operands, node.output)]
    x, y, out = (g for g in grids if g is not None)
    wanted = _everything(node, rounding)
    twice = np.float64(np.float32(2) * max(scale_of(x), scale_of(y)))
    numbers = np.arange(-128, 128, dtype=np.int8)
    tables = [
        rescale(wrap32(centred(numbers, g) << 20), *quantize_multiplier(np.float64(scale_of(g)) / twice, rounding),
                rounding) * sign
        for g, sign in ((x, 1), (y, -1 if node.op == "sub" else 1))
    ]  # fmt: skip
    multiplier, shift = quantize_multiplier(twice / np.float64(np.float32(2**20) * scale_of(out)), rounding)
    head = [out.zero_point, wanted.min(), wanted.max(), multiplier, shift, rounding == "single", 0, 0]
    constants = np.concatenate([np.array(head, np.int64), *tables]).astype(np.int32)
    return _proved(node, array, ElementwiseAdd, constants, wanted, settings)


def _multiply(node: Node, array: AieArray, rounding: Rounding, settings: AieOptions) -> Dispatch:
    grids = [t.grid for t in (*node.operands, node.output)]
    x, y, out = (g for g in grids if g is not None)
    wanted = _everything(node, rounding)
    with np.errstate(under="ignore"):
        real = scale_of(x) * scale_of(y) / scale_of(out)
    multiplier, shift = quantize_multiplier(real, rounding)
    head = [out.zero_point, wanted.min(), wanted.max(), multiplier, shift, rounding == "single"]
    constants = np.array([*head, x.zero_point, y.zero_point], np.int64).astype(np.int32)
    return _proved(node, array, ElementwiseMul, constants, wanted, settings)


def _float_elementwise(node: Node, array: AieArray, settings: AieOptions) -> Dispatch:
    function: Function = "relu" if node.op == "relu" else "mul" if node.op == "mul" else "add"
    return _elementwise(node, array, lambda size: Bfloat(function, size), None, settings)
