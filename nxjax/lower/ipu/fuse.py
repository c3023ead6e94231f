"""Elementwise work as late and as joined as possible: chains and graphs of ops of one shape become one vertex each.

A `LazyOp` value is an op on other values that no step computes yet. Who needs its elements forces it; then everything
lazy that it is made of is written, as one expression per connected part, and what others read of it is a result too.
Knows ops by name and the expression codelet; where the boxes lie is `spread`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from nxjax.kernels.ipu.expression import CodeletNode, literal, supported
from nxjax.lower.ipu import wide
from nxjax.lower.ipu.builder import Builder, UnsupportedEquation, no_dtype
from nxjax.lower.ipu.lazy import LazyOp, Value
from nxjax.lower.ipu.program import Group, VariableView
from nxjax.lower.ipu.spread import spread
from nxjax.trace.program import Equation

# A chain of more ops than this is cut: a vertex's code grows with it.
LONGEST: Final = 160
# Fields of one vertex.
MOST_LEAVES: Final = 24
MOST_NODES: Final = 800


@final
class Fuser:
    """Makes lazy values of elementwise equations, and steps of them when they are forced."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def elementwise(self, e: Equation, args: Sequence[Value]) -> LazyOp | None:
        """``e`` as a lazy value, if it is elementwise and tiles compute it in one expression."""
        if not supported(e.op.name, [a.type.dtype for a in e.inputs], e.outputs[0].type.dtype, e.params):
            return None
        out = e.outputs[0].type
        xs: list[Value] = []
        for x in args:
            if x.shape != out.shape:
                # A scalar beside arrays, as in clamp.
                x = self.force_one(x)
                x = VariableView(x.variable, x.offset, out.shape, (0,) * len(out.shape))
            xs.append(x)
        deep = [x for x in xs if isinstance(x, LazyOp) and x.view is None and x.depth >= LONGEST]
        if deep:
            self.force(deep)
        y = LazyOp(e.op.name, tuple(xs), e.params, out.shape, out.dtype, e.source or self.b.source, e.scope)
        for x in xs:
            if isinstance(x, LazyOp):
                x.refs += 1
        return y

    def force_one(self, value: Value) -> VariableView:
        """The elements of a value."""
        if isinstance(value, VariableView):
            return value
        if value.view is None:
            self.force([value])
        if value.view is None:
            raise UnsupportedEquation(*no_dtype(value.dtype))
        return value.view

    def force(self, values: Sequence[Value]) -> None:
        """Write what computes the values, in as few compute sets as their sizes and number allow."""
        pending = list(dict.fromkeys(x for x in values if isinstance(x, LazyOp) and x.view is None))
        self._write_all([x for x in pending if not wide.is_wide(x.dtype)])
        for x in pending:
            if wide.is_wide(x.dtype):
                self._cut_wide(x)

    def _cut_wide(self, x: LazyOp) -> None:
        """Of a 64-bit value nothing is written but what it is the conversion of."""
        narrow = wide.narrowed(self.b, x)
        if narrow is not None:
            view = self.force_one(narrow)
            name, xs, params = "convert_element_type", (view,), {"dtype": x.dtype}
        elif x.dtype in wide.INTEGERS:
            words = [wide.word(self.b, x, i) for i in range(2)]
            self._write_all(words)
            low, high = (self.force_one(w) for w in words)
            whole = wide.joined(self.b, low, high, x.dtype)
            name, xs, params = whole.name, whole.xs, whole.params
        else:
            raise UnsupportedEquation(*no_dtype(x.dtype))
        for y in x.xs:
            if isinstance(y, LazyOp):
                y.refs -= 1
        x.name, x.xs, x.params = name, xs, params
        x.depth = 1 + max((y.depth for y in xs if isinstance(y, LazyOp)), default=0)

    def _write_all(self, roots: list[LazyOp]) -> None:
        if not roots:
            return
        order = _ancestors(roots)
        parts = _parts(order)
        for part in parts:
            if _too_large(part):
                # Halve it: what the first half computes for the second is a result of its own.
                self._halve(part)
        groups: list[Group] = []
        done: list[tuple[LazyOp, VariableView]] = []
        for part in _parts(_ancestors([r for r in roots if r.view is None])):
            found, outputs = self._write(part, set(roots))
            groups += found
            done += outputs
        last = roots[-1]
        with self.b.at(last.name, last.source, last.scope):
            self.b.execute(groups, "+".join(dict.fromkeys(r.name for r in roots[:4])))
        for value, view in done:
            _settle(value, view)

    def _halve(self, part: list[LazyOp]) -> None:
        """Force the first nodes of a part, of as few leaves as a vertex may have."""
        count = max(1, min(len(part) // 2, MOST_NODES // 2))
        while count > 1 and len(_leaves(part[:count])) > MOST_LEAVES:
            count //= 2
        inside = set(part[:count])
        used = [x for y in part[count:] for x in y.xs if isinstance(x, LazyOp) and x in inside]
        self.force(used or part[:count])
        rest = [x for x in part if x.view is None]
        if rest and len(rest) < len(part):
            again = _ancestors([rest[-1]])
            if _too_large(again):
                self._halve(again)

    def _write(self, part: list[LazyOp], roots: set[LazyOp]) -> tuple[list[Group], list[tuple[LazyOp, VariableView]]]:
        """The vertices of one connected part, and the views of what it gives."""
        inside: dict[LazyOp, int] = dict.fromkeys(part, 0)
        for y in part:
            for x in y.xs:
                if isinstance(x, LazyOp) and x in inside:
                    inside[x] += 1
        # What nothing can hold is computed again where it is needed again.
        outputs = [y for y in part if y in roots or (y.refs > inside[y] and not wide.is_wide(y.dtype))]
        leaves: list[VariableView] = []
        nodes: list[CodeletNode] = []
        place: dict[Any, int] = {}
        for view in _leaves(part):
            value = self.b.uniform(view)
            if value is None:
                place[_key(view)] = len(leaves)
                leaves.append(view)
        for y in part:
            operands: list[int] = []
            for x in y.xs:
                view = x if isinstance(x, VariableView) else x.view
                if view is None:
                    operands.append(place[x])
                    continue
                key = _key(view)
                if key not in place:
                    place[key] = len(leaves) + len(nodes)
                    nodes.append(literal(self.b.uniform(view), view.dtype))
                operands.append(place[key])
            place[y] = len(leaves) + len(nodes)
            known = y.name == "literal"
            nodes.append(
                literal(y.params["value"], y.dtype)
                if known
                else CodeletNode(y.name, tuple(operands), y.dtype, y.params)
            )
        views: list[VariableView] = []
        for y in outputs:
            with self.b.at(y.name, y.source, y.scope):
                views.append(self.b.variable(y.shape, y.dtype, (), self.b.fresh(y.name)).view())
        groups = spread(self.b, leaves, nodes, [place[y] for y in outputs], views)
        return groups, list(zip(outputs, views, strict=True))


def _settle(value: LazyOp, view: VariableView) -> None:
    """The value is computed: what it was made of is not needed for it any more."""
    value.view = view
    stack = [value]
    while stack:
        y = stack.pop()
        xs, y.xs = y.xs, ()
        for x in xs:
            if isinstance(x, LazyOp):
                x.refs -= 1
                if x.refs == 0 and x.view is None:
                    stack.append(x)


def _ancestors(roots: Sequence[LazyOp]) -> list[LazyOp]:
    """The lazy values that the roots are made of, and they themselves, operands first."""
    order: dict[LazyOp, None] = {}
    stack: list[tuple[LazyOp, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        y, ready = stack.pop()
        if y in order or y.view is not None:
            continue
        if ready:
            order[y] = None
            continue
        stack.append((y, True))
        stack += [(x, False) for x in reversed(y.xs) if isinstance(x, LazyOp) and x.view is None and x not in order]
    return list(order)


def _parts(order: Sequence[LazyOp]) -> list[list[LazyOp]]:
    """Connected parts, each in the given order."""
    of: dict[LazyOp, int] = {}
    parts: dict[int, list[LazyOp]] = {}
    for i, y in enumerate(order):
        joined = sorted({of[x] for x in y.xs if isinstance(x, LazyOp) and x in of})
        part = joined[0] if joined else i
        members = parts.setdefault(part, [])
        for other in joined[1:]:
            moved = parts.pop(other)
            members += moved
            of.update(dict.fromkeys(moved, part))
        members.append(y)
        of[y] = part
    position = {y: i for i, y in enumerate(order)}
    return [sorted(p, key=position.__getitem__) for p in parts.values()]


def _too_large(part: Sequence[LazyOp]) -> bool:
    """Whether a part is more than one vertex should do. What one op takes, one vertex takes."""
    return len(part) > 1 and (len(part) > MOST_NODES or len(_leaves(part)) > MOST_LEAVES)


def _leaves(part: Sequence[LazyOp]) -> list[VariableView]:
    """The views that a part reads, each once."""
    found: dict[Any, VariableView] = {}
    for y in part:
        for x in y.xs:
            view = x if isinstance(x, VariableView) else x.view
            if view is not None:
                found.setdefault(_key(view), view)
    return list(found.values())


def _key(view: VariableView) -> Any:
    return id(view.variable), view.offset, view.strides
