"""Result types of nodes, for graphs that come from files and cannot be trusted: a walk that asks every node's op.

An op gives the shapes that a node's operands and attributes imply, or refuses operands that fit no result at all; the
dtypes and grids of a node go together or are refused. Knows no file: the reader says which one an error is about.
"""

from __future__ import annotations

from nxjax.errors import ShapeError
from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.ops.base import need


def check(node: Node) -> None:
    """Refuse a node whose results are not what its operands make.

    Raises:
        ShapeError, DtypeError: of what its results, dtypes or grids are, and what they would have to be.
    """
    need(all(0 not in t.shape for t in [*node.operands, *node.outputs]), f"{node.op} of tensors without elements")
    stated, expected = [t.shape for t in node.outputs], op_of(node).shapes(node)
    if stated != expected:
        raise ShapeError(
            f"graph: a result of {node.op} whose shape does not follow from its operands", got=stated, expected=expected
        )
    op_of(node).check_types(node)
