"""What an op of an NPU graph must answer: one class per op, all of whose questions are on this screen.

`interpret` asks for the meaning, `infer` for the types, `layout` for what a transpose in front of it does to it,
`memory` for whose bytes it may take, `cost` for its work. Knows no file format: writers and readers have a row per op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

from nxjax.errors import DtypeError, ShapeError
from nxjax.lower.npu.attributes import SCHEMAS, AttributeKind
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops.run import NodeRun
from nxjax.lower.npu.permutation import Perm
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.types import Shape


class NpuOp(ABC):
    """An op: what its nodes are checked by, what they mean, and what passes and the cost model may do with them.

    Attributes:
        attributes: its schema.
        roles: what its operands are called.
        elementwise: element i of the result depends on element i of the operands alone, which broadcast; so the result
            may take the bytes of an operand of its shape that nobody reads any more.
        view: the result is the operand's bytes under another shape.
        picks: every element of the result is one of the operands', or 0.
        movable: a transpose in front of it may go behind it.
        together: a transpose in front of it has to be in front of all operands.
        swaps: the flag of each operand that swaps its last two dimensions.
        weighted: a product of a value with weights, and a bias: operands 1 and 2.
        shares_terms: an array of multipliers gives the same terms to many outputs.
        passing: there only while a graph is made: no format has it.
        real: a function of real numbers, which integers that mean themselves do not have.
    """

    attributes: ClassVar[Mapping[str, AttributeKind]] = {}
    roles: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    elementwise: ClassVar[bool] = False
    view: ClassVar[bool] = False
    movable: ClassVar[bool] = False
    together: ClassVar[bool] = False
    swaps: ClassVar[tuple[str, ...]] = ()
    weighted: ClassVar[bool] = False
    shares_terms: ClassVar[bool] = True
    passing: ClassVar[bool] = False
    picks: bool = False
    real: bool = False

    def __init__(self, name: str) -> None:
        self.name = name

    # Types.

    @abstractmethod
    def shape(self, node: Node) -> Shape:
        """The shape of the result that the operands and attributes make; `ShapeError` if they make none."""

    def shapes(self, node: Node) -> list[Shape]:
        """The shapes of all results."""
        return [self.shape(node)]

    def values(self, node: Node) -> Sequence[Tensor]:
        """The operands that it computes with or moves: of one dtype with the results, and on grids if these are."""
        return node.operands

    def check_types(self, node: Node) -> None:
        """Raise `DtypeError` unless the node's dtypes go together, and all of its values are on grids or none is."""
        first, *rest = [*self.values(node), *node.outputs]
        plain = self.real and first.grid is None and first.dtype not in dtypes.FLOAT
        agree(node, not plain and all(t.dtype == first.dtype for t in rest))
        same_kind(node, [first, *rest])

    # Meaning.

    @abstractmethod
    def eval(self, run: NodeRun, *xs: Any) -> NDArray | list[NDArray]:
        """The results of a node on stored values: of tensors on grids, bit for bit as LiteRT's reference kernels."""

    # Passes and writers.

    def under(self, node: Node, perm: Perm) -> tuple[dict[str, Any], Perm] | None:
        """What becomes of ``f(transpose(x, perm))``: the attributes of ``f(x)`` and the permutation of its results.

        None if the op needs the order that it has.
        """
        if not self.movable:
            return None
        return {key: self.attributes[key].turned(value, perm) for key, value in node.attrs.items()}, perm

    def lands(self, node: Node, result: Tensor) -> bool:
        """Whether real values that it computes lie on a result's grid without being rounded to it."""
        clamped = node.attrs.get("activation") not in (None, "relu")
        return self.picks and not clamped and all(t.grid == result.grid for t in node.operands if t.grid is not None)

    def idle(self, node: Node) -> bool:
        """Whether it gives back its operand if the result is of the same type."""
        return False

    # Work.

    def macs(self, node: Node) -> int:
        """Multiply-accumulates of one run; 0 for ops that multiply nothing with weights or each other."""
        return 0


# Ops by name.
OPS: Final[dict[str, NpuOp]] = {}
Kind = TypeVar("Kind", bound=NpuOp)


def op(*names: str) -> Callable[[type[Kind]], type[Kind]]:
    """Register a class of ops under their names."""

    def register(kind: type[Kind]) -> type[Kind]:
        for name in names:
            OPS[name] = kind(name)
            SCHEMAS[name] = kind.attributes
        return kind

    return register


def op_of(node: Node) -> NpuOp:
    """What is known of a node's op."""
    return OPS[node.op]


def those(can: Callable[[NpuOp], Any]) -> tuple[str, ...]:
    """The names of the ops for which ``can`` holds.

    >>> those(lambda op: op.swaps)
    ('batch_matmul',)
    """
    return tuple(name for name, op in OPS.items() if can(op))


# What checks share.


def need(condition: bool, why: str) -> None:
    if not condition:
        raise ShapeError(f"graph: {why}")


def shape_of(node: Node, i: int = 0) -> Shape:
    """The shape of an operand, which must be there."""
    t = node.inputs[i]
    if t is None:
        raise ShapeError(f"graph: {node.op} lacks operand {i}")
    return t.shape


def need_axes(node: Node, rank: int, *axes: int) -> None:
    good = all(0 <= a < rank for a in axes) and len(set(axes)) == len(axes)
    need(good, f"{node.op}: axes {tuple(axes)} of {rank} dimensions")


def agree(node: Node, condition: bool) -> None:
    if not condition:
        short = [dtypes.short_name(t.dtype) for t in [*node.operands, *node.outputs]]
        raise DtypeError(f"graph: {node.op}: dtypes that do not go together", got=", ".join(short))


def same_kind(node: Node, tensors: Sequence[Tensor]) -> None:
    """Refuse a node where only some of the values that it computes with are on grids."""
    if len({t.grid is None for t in tensors}) > 1:
        without = ", ".join(t.name for t in tensors if t.grid is None)
        raise DtypeError(f"graph: {node.op}: some values are on grids and some are not", got=f"not: {without}")
