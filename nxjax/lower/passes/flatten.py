"""One flat program: calls written out, composites as the ops they are made of, choices that are known made.

What a device matches whole, it names. Programs held by loops and choices stay where they are; `lower.passes.simplify`
goes into them. Expansions are staged once per op, operand types and parameters, whatever the number of equal layers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from nxjax.ops.identity import IdentityOp, optimization_barrier
from nxjax.ops.select import choose
from nxjax.trace.core import Array
from nxjax.trace.program import Atom, Equation, Program
from nxjax.transforms.inline import Inliner, Rule


def flattened(program: Program, opaque: Collection[str] = ()) -> Program:
    """``program`` with calls and composites written out, but for ops named in ``opaque``. Kept with ``program``.

    Equations keep the user's source line and scope; those of a composite get its.

    >>> p = nx.make_jaxpr(nx.jit(lambda x: nx.nn.relu(x) + 1.0))(0.5)
    >>> [e.op.name for e in flattened(p).equations]
    ['max', 'add']
    """
    kept = frozenset(opaque)

    def composite(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
        if isinstance(e.op, IdentityOp):  # on one device a layout is one of them
            return e.inputs[:1]
        if e.op.effect or e.op.name in kept:
            return None
        if e.op.has("called"):
            return flat.call(e)
        return flat.expand(e, e.op.expand) if e.op.has("expand") else None

    def loop(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
        return flat.unrolled(e) if e.params["loop"].length == 1 else composite(flat, e)

    return program.derive(("flat", kept), lambda: Inliner(program, {**_RULES, "scan": loop}, composite).result())


def _recomputed(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
    if e.params["differentiated"] and e.params["prevent_cse"] and e.inputs:
        # What is computed again must not be found to be known already.
        e = e.replaced(flat.emit(e, optimization_barrier, e.inputs), e.outputs)
    return flat.call(e)


def _choice(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
    return flat.expand(e, _every_branch) if e.inputs[0].type.shape else flat.known_branch(e)


def _every_branch(
    index: Array, *xs: Array, branches: tuple[Program, ...], shared: tuple[bool, ...] = ()
) -> tuple[Array, ...]:
    """A choice made for each element: all branches, and of each result the elements that were chosen."""
    columns = zip(*(branch(*xs) for branch in branches), strict=True)
    return tuple(choose(index, column) for column in columns)


_RULES: Final[dict[str, Rule]] = {
    "checkpoint": _recomputed,
    "cond": _choice,
}
