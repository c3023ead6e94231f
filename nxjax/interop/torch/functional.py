"""In-place operators of a graph rewritten as functions of values; programs in files may hold them.

What is written becomes a new value with the old one's name from there on. A view that is written goes back into what it
is a view of, and other views of that are made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

from nxjax.errors import InvalidFileError
from nxjax.interop.graphs.values import Refused
from nxjax.interop.torch.graph import BUFFER, CONSTANT, USER, NodeRef, TorchGraph, TorchNode

Back = Callable[[Any, Any, Sequence[Any]], tuple[str, list[Any]]]


def _scatter(target: str) -> Back:
    return lambda base, new, args: (target, [base, new, *args])


def _unpermuted(base: Any, new: Any, args: Sequence[Any]) -> tuple[str, list[Any]]:
    dims = [d % len(args[0]) for d in args[0]]
    return "aten.permute", [new, [dims.index(i) for i in range(len(dims))]]


_TURNED: Final[Back] = lambda base, new, args: ("aten.transpose.int", [new, *(args or (0, 1))])
_ITSELF: Final[Back] = lambda base, new, args: ("aten.alias", [new])
_SHAPED: Final[Back] = lambda base, new, args: ("aten.reshape_as", [new, base])
# These give their operand itself, unless they train.
_DROPS: Final = ("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout")
_PART: Final = "_operator.getitem"
_RESHAPED: Final = "view unsqueeze squeeze squeeze.dim squeeze.dims view_as unflatten.int"
# A view or a copy, by how the operand lies in memory; another kind of view; or several views.
_UNCLEAR: Final = """
    _autocast_to_full_precision _autocast_to_reduced_precision _conj _neg_view _reshape_alias adjoint as_strided
    atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to chunk conj contiguous dsplit.int dsplit.array einsum
    expand expand_as flatten.using_ints hsplit.array hsplit.int imag linalg_diagonal mH mT matrix_H meshgrid
    meshgrid.indexing moveaxis.int moveaxis.intlist movedim.int movedim.intlist narrow narrow.Tensor numpy_T positive
    ravel real reshape reshape_as resolve_conj resolve_neg split split.Tensor split.sizes split_with_sizes
    tensor_split.indices tensor_split.sections to.device to.dtype to.dtype_layout to.other type_as unbind.int unfold
    view.dtype view_as_complex view_as_real vsplit.array vsplit.int
"""
# What may give a view of its first operand, and how a written one goes back into that; None: that is refused.
VIEWS: Final[dict[str, Back | None]] = {
    **dict.fromkeys((_PART, *(f"aten.{name}" for name in _UNCLEAR.split()))),
    "aten.select.int": _scatter("aten.select_scatter"),
    "aten.slice.Tensor": _scatter("aten.slice_scatter"),
    "aten.diagonal": _scatter("aten.diagonal_scatter"),
    **dict.fromkeys(("aten.transpose.int", "aten.swapaxes", "aten.t"), _TURNED),
    **dict.fromkeys(("aten.alias", "aten.detach", "aten.lift_fresh", *_DROPS), _ITSELF),
    "aten.permute": _unpermuted,
    **dict.fromkeys((f"aten.{name}" for name in _RESHAPED.split()), _SHAPED),
}  # fmt: skip
_KINDS: Final = {BUFFER: "BUFFER_MUTATION", USER: "USER_INPUT_MUTATION"}


def functional(graph: TorchGraph, kinds: Sequence[tuple[str, str]]) -> tuple[TorchGraph, tuple[tuple[str, str], ...]]:
    """The graph without in-place operators, and which inputs were written: their new values are its first results.

    Raises:
        Refused: it cannot be said from the graph alone what an operator writes to.
        InvalidFileError: a name that two operators give, or that is read before one gives it.
    """
    if not any(_in_place(n.target) or n.target == "aten.batch_norm" for n in graph.nodes):
        return graph, ()
    _check_names(graph)
    rewriter = _Rewriter(graph)
    for i, node in enumerate(graph.nodes):
        rewriter.step(i, node)
    written: list[tuple[str, str]] = []
    first: list[Any] = []
    for name, (kind, target) in zip(graph.inputs, kinds, strict=True):
        if name in rewriter.current and kind != CONSTANT:
            if kind not in _KINDS:
                raise Refused("from_torch: an operator writes to a parameter", got=target)
            written.append((_KINDS[kind], target))
            first.append(NodeRef(rewriter.current[name]))
    outputs = tuple(rewriter.resolved(o) for o in graph.outputs)
    return TorchGraph(graph.inputs, tuple(rewriter.nodes), (*first, *outputs)), tuple(written)


def _check_names(graph: TorchGraph) -> None:
    """Each name is given once, and read after that: what is a view of what never goes in a circle."""
    known = set(graph.inputs)
    for node in graph.nodes:
        for ref in _references([*node.args, *node.kwargs.values()]):
            if ref.name not in known:
                raise InvalidFileError("from_torch: an operator reads a value that none before it gives", got=ref.name)
        for name in _given(node.output):
            if name in known:
                raise InvalidFileError("from_torch: two values have one name", got=name)
            known.add(name)


def _given(output: Any) -> list[str]:
    """The names in the structure of an operator's results."""
    if isinstance(output, (list, tuple)):
        return [name for x in output for name in _given(x)]
    return [output] if isinstance(output, str) else []


def _in_place(target: str) -> bool:
    parts = target.split(".")
    return len(parts) > 1 and parts[0] == "aten" and parts[1].endswith("_") and not parts[1].endswith("__")


@final
class _Rewriter:
    """One graph being rewritten.

    Attributes:
        current: the latest value of each name that was written.
        same: names that in-place operators gave to what they wrote.
        views: of each view, what it is a view of, and the node.
    """

    def __init__(self, graph: TorchGraph) -> None:
        self.nodes: list[TorchNode] = []
        self.current: dict[str, str] = {}
        self.same: dict[str, str] = {}
        self.views: dict[str, tuple[str, TorchNode]] = {}
        self._last: dict[str, int] = {}
        for i, node in enumerate(graph.nodes):
            self._use([*node.args, *node.kwargs.values()], i)
        self._use(list(graph.outputs), len(graph.nodes))

    def _use(self, x: Any, i: int) -> None:
        if isinstance(x, NodeRef):
            self._last[x.name] = i
        elif isinstance(x, list):
            for v in x:
                self._use(v, i)

    def _own(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def resolved(self, x: Any) -> Any:
        if isinstance(x, NodeRef):
            name = self._own(x.name)
            return NodeRef(self.current.get(name, name))
        return [self.resolved(v) for v in x] if isinstance(x, list) else x

    def _emit(self, target: str, args: Sequence[Any], like: TorchNode, output: Any, kwargs: Mapping[str, Any]) -> None:
        given = {k: self.resolved(v) for k, v in kwargs.items()}
        self.nodes.append(TorchNode(target, tuple(map(self.resolved, args)), given, output, like.where, like.module))

    def step(self, i: int, node: TorchNode) -> None:
        if (
            node.target == "aten.batch_norm"
            and len(node.args) > 5
            and node.args[5] is True
            and node.args[3] is not None
        ):
            new = [f"{node.output} {k}" for k in ("mean", "var")]
            made = (node.output, None, None, *new)
            self._emit("aten._native_batch_norm_legit_functional", node.args[:8], node, made, {})
            for ref, name in zip(node.args[3:5], new, strict=True):
                self._write(i, self._own(ref.name), name, node)
            return
        if not _in_place(node.target):
            self._emit(node.target, node.args, node, node.output, node.kwargs)
            if self._is_view(node):
                self._view(node)
            return
        space, name, *overload = node.target.split(".")
        written = self._own(_written(node).name)
        self._emit(".".join((space, name[:-1], *overload)), node.args, node, node.output, node.kwargs)
        # What is written keeps its dtype. The operator's own name stands for it from here on.
        value = f"{node.output} value"
        self._emit("aten.type_as", [NodeRef(node.output), NodeRef(written)], node, value, {})
        self.same[node.output] = written
        self._write(i, written, value, node)

    def _is_view(self, node: TorchNode) -> bool:
        if node.target == _PART:  # of a list of views, or of results that are new
            return isinstance(node.args[0], NodeRef) and self._own(node.args[0].name) in self.views
        return node.target in VIEWS and not (node.target in _DROPS and node.args[2:] != (False,))

    def _view(self, node: TorchNode) -> None:
        names = [node.output] if isinstance(node.output, str) else list(node.output)
        operands = [self._own(a.name) for a in _references(node.args)]
        if not isinstance(node.args[0], NodeRef):
            # Of several operands: whoever writes to one of them later is refused.
            names += [f"{names[0]} of {operand}" for operand in operands]
            self._last.update((name, len(self._last) + len(self.nodes) + (1 << 30)) for name in names)
        for i, name in enumerate(names):
            self.views[name] = (operands[max(i - len(names) + len(operands), 0)], node)

    def _write(self, i: int, name: str, value: str, node: TorchNode) -> None:
        chain = {name}
        self.current[name] = value
        while name in self.views:
            base, view = self.views[name]
            back = VIEWS[view.target]
            if back is None or view.kwargs:
                raise _unclear(node, view)
            target, args = back(NodeRef(base), NodeRef(name), view.args[1:])
            value = f"{base} after {value}"
            self._emit(target, args, node, value, {})
            self.current[base] = value
            name = base
            chain.add(name)
        for view, (base, made) in list(self.views.items()):
            if self._root(view) != name or view in chain:
                continue
            if VIEWS[made.target] is None:
                if any(self._last.get(v, -1) > i for v in self._names(view)):
                    raise _unclear(node, made)
                continue
            again = f"{view} after {value}"
            self._emit(made.target, [NodeRef(base), *made.args[1:]], made, again, made.kwargs)
            self.current[view] = again

    def _names(self, view: str) -> list[str]:
        return [view, *(k for k in self.same if self._own(k) == view)]

    def _root(self, name: str) -> str:
        while name in self.views:
            name = self.views[name][0]
        return name


def _references(x: Any) -> list[NodeRef]:
    if isinstance(x, (list, tuple)):
        return [r for v in x for r in _references(v)]
    return [x] if isinstance(x, NodeRef) else []


def _written(node: TorchNode) -> NodeRef:
    """What an in-place operator or a view reads first."""
    first: Any = node.args[0] if node.args else None
    if not isinstance(first, NodeRef):
        raise InvalidFileError("from_torch: an operator without its operand", got=node)
    return first


def _unclear(node: TorchNode, view: TorchNode) -> Refused:
    return Refused(
        f"from_torch: {node.target} writes in place to memory that {view.target} may share",
        got=node,
        fix="torch.export.save(exported.run_decompositions(), path) writes a file without in-place operators",
    )
