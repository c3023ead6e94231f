"""A program of `torch.export` as plain data: nodes in order, what each input and result is, containers of arguments.

Knows neither the torch package nor any operator: `exported` makes these from a program in memory, `archive` from a
file.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.errors import ParameterError
from nxjax.interop.graphs.values import ValueInfo

# What an input of a program is.
PARAMETER: Final = "parameter"
BUFFER: Final = "buffer"
CONSTANT: Final = "constant"
USER: Final = "user"


@final
@dataclass(frozen=True)
class NodeRef:
    """A value that an earlier node made, or an input, as an argument of a node."""

    name: str


@final
@dataclass(frozen=True, eq=False)
class TorchNode:
    """One call.

    Attributes:
        target: ``aten.add.Tensor``; the overload ``default`` is left out.
        args, kwargs: Python values, `NodeRef`, `TorchGraph`, and lists of these.
        output: the name of the result, or names in the structure of its parts.
        where: the user's line, if it was kept.
        module: the path of the submodule that made it, as ``layer1.0.conv1``; empty in the module itself.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any
    where: str = ""
    module: str = ""

    @property
    def scope(self) -> str:
        """The submodule, or the name of the result where the module itself made it."""
        # A result may itself be a list or a tuple.
        return self.module or (self.output if isinstance(self.output, str) else self.target)

    def __str__(self) -> str:
        return f"{self.target} -> {self.output}"[:120]


@final
@dataclass(frozen=True, eq=False)
class TorchGraph:
    """Nodes in the order in which they run; ``outputs`` are `NodeRef`, Python values or None."""

    inputs: tuple[str, ...]
    nodes: tuple[TorchNode, ...]
    outputs: tuple[Any, ...]


@final
@dataclass(frozen=True)
class Container:
    """How leaves lie in tuples, lists and dicts.

    Attributes:
        kind: ``leaf``, ``none``, ``tuple``, ``list`` or ``dict``.
        keys: of a dict, one for each child.
    """

    kind: str
    children: tuple[Container, ...] = ()
    keys: tuple[Any, ...] = ()

    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind == "leaf" else sum(c.count() for c in self.children)

    def built(self, leaves: Sequence[Any]) -> Any:
        """Leaves in their containers."""
        rest = iter(leaves)
        return self._built(rest)

    def _built(self, rest: Any) -> Any:
        if self.kind == "leaf":
            return next(rest)
        if self.kind == "none":
            return None
        made = [c._built(rest) for c in self.children]
        if self.kind == "dict":
            return dict(zip(self.keys, made, strict=True))
        return made if self.kind == "list" else tuple(made)

    def leaves(self, x: Any, where: str) -> list[Any]:
        """The leaves of a value of this structure.

        Raises:
            ParameterError: a value of another structure.
        """
        if self.kind == "leaf":
            return [x]
        if self.kind == "none":
            if x is not None:
                raise ParameterError(f"{where}: was None when the module was exported", got=type(x).__name__)
            return []
        if self.kind == "dict":
            given = x if isinstance(x, Mapping) else {k: getattr(x, k) for k in self.keys if hasattr(x, str(k))}
            if set(given) != set(self.keys):
                raise ParameterError(f"{where}: other keys", got=sorted(map(str, given)), expected=list(self.keys))
            parts = [given[k] for k in self.keys]
        else:
            parts = list(x) if isinstance(x, (list, tuple)) else [x]
            if not isinstance(x, (list, tuple)) or len(parts) != len(self.children):
                got = f"{len(parts)} of them" if isinstance(x, (list, tuple)) else type(x).__name__
                raise ParameterError(
                    f"{where}: not what was exported", got=got, expected=f"{len(self.children)} values"
                )
        names = self.keys or range(len(parts))
        return [
            leaf for c, p, n in zip(self.children, parts, names, strict=True) for leaf in c.leaves(p, f"{where}[{n!r}]")
        ]


def module_path(text: str) -> str:
    """A submodule's path as its parameters have it: tracers put ``L['self'].`` in front."""
    return text.removeprefix("L['self']").lstrip(".")


def field_names(context: Any, count: int) -> tuple[Any, ...]:
    """Names of fields in what a class says of its structure: a list of them, somewhere near its top."""
    if isinstance(context, (list, tuple)) and len(context) == count and all(isinstance(k, (str, int)) for k in context):
        return tuple(context)
    inner = context.values() if isinstance(context, Mapping) else context if isinstance(context, (list, tuple)) else ()
    return next((found for part in inner if (found := field_names(part, count))), ())


_ARITHMETIC: Final[dict[type, Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluated(text: str, sizes: Mapping[str, int]) -> int | None:
    """A symbolic size such as ``2*batch + 1``; None: it has a name or an operation that is not known."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            return _ARITHMETIC[type(node.op)](value(node.left), value(node.right))
        return sizes[node.id] if isinstance(node, ast.Name) else int(ast.literal_eval(node))

    try:
        return value(ast.parse(text, mode="eval").body)
    except (SyntaxError, KeyError, ValueError, TypeError, ZeroDivisionError, RecursionError):
        return None


LEAF: Final = Container("leaf")


@final
@dataclass(frozen=True, eq=False)
class FileBytes:
    """The bytes of a program's file, as `TorchProgram.file` gives them."""

    data: Any

    def __call__(self) -> memoryview:
        return self.data.data


@final
@dataclass(frozen=True, eq=False)
class TorchProgram:
    """An exported module.

    Attributes:
        kinds: of each input of ``graph``: what it is, and the name that the module has for it.
        ports: of each user input that is an array; Python values that the module was exported with stand as they are.
        written: of each of the graph's first outputs: whether a buffer or an input gets it, and its name.
        arguments, results: the containers of the module's ``(args, kwargs)`` and results.
        ranges: least and greatest sizes of symbolic dimensions.
        arrays: parameters, buffers and constants by their names.
        names: of the module's positional arguments, where they are known.
        saved: names in the module's state dict, and that which ``arrays`` has for each.
        file: the bytes that `torch.export.save` writes of it, or wrote.
    """

    name: str
    graph: TorchGraph
    kinds: tuple[tuple[str, str], ...]
    ports: tuple[ValueInfo | Any, ...]
    written: tuple[tuple[str, str], ...]
    outputs: tuple[ValueInfo, ...]
    arguments: Container
    results: Container
    arrays: Mapping[str, Any]
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    names: tuple[str, ...] = ()
    saved: Mapping[str, str] = field(default_factory=dict[str, str])
    file: Callable[[], memoryview] = field(default=lambda: memoryview(b""))
