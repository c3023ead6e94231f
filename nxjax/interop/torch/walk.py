"""Walks a program of `torch.export` and does what it says with nxjax's functions, one rule per operator.

A rule is a Python function with the operator's signature: the names, order and defaults of ATen's schema, without
device, layout and memory format, which mean nothing here. Rules are in the files beside this one; this file names no
operator. What depends on no argument is computed while the graph is walked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from nxjax import random
from nxjax.errors import InvalidFileError
from nxjax.interop.graphs.values import Refused, applied
from nxjax.interop.torch.graph import NodeRef, TorchGraph, TorchNode

_PLACES: Final = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking"))


@final
@dataclass(frozen=True)
class TorchRule:
    """How one operator is done.

    Attributes:
        function: of its arguments.
        kept: whether a program in memory keeps the operator whole, where torch could split it up.
        walker: whether the function also takes the walker.
    """

    function: Callable[..., Any]
    kept: bool
    walker: bool


RULES: Final[dict[str, TorchRule]] = {}


def rule(*names: str, kept: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the rule of the operators of these names, which are in ``aten`` unless they say another space."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        walker = "walker" in inspect.signature(function).parameters
        for name in names:
            full = name if name.split(".")[0] in SPACES else f"aten.{name}"
            assert full not in RULES, full
            RULES[full] = TorchRule(function, kept, walker)
        return function

    return add


SPACES: Final = frozenset((
    "aten", "higher_order", "torchvision", "_operator", "math", "torch", "builtins", "prims", "quantized_decomposed",
    "transformers",
))  # fmt: skip


@final
class TorchWalker:
    """One program being walked.

    Attributes:
        key: of what random operators draw; None: they are refused.
    """

    def __init__(self, key: Any) -> None:
        self._key, self._draws = key, 0

    def key(self, node: str) -> Any:
        """The key of a random operator: another for each one of a walk."""
        if self._key is None:
            raise Refused(
                f"from_torch: {node} draws random numbers",
                got="no key",
                fix="call the function with key=nx.random.key(0), or export the module after .eval()",
            )
        self._draws += 1
        return random.fold_in(self._key, self._draws)

    def run(self, graph: TorchGraph, xs: Sequence[Any]) -> list[Any]:
        """The results of a graph for these inputs."""
        if len(xs) != len(graph.inputs):
            raise InvalidFileError(f"from_torch: a graph got {len(xs)} inputs", expected=str(len(graph.inputs)))
        values: dict[str, Any] = dict(zip(graph.inputs, xs, strict=True))
        for node in graph.nodes:
            _bind(values, node.output, self.apply(node, values), node)
        return [_filled(o, values) for o in graph.outputs]

    def function(self, graph: TorchGraph) -> Callable[..., list[Any]]:
        """A graph in the program as a Python function."""
        return lambda *xs: self.run(graph, xs)

    def apply(self, node: TorchNode, values: Mapping[str, Any]) -> Any:
        found = RULES.get(node.target)
        if found is None:
            raise Refused(
                f"from_torch: no rule for operator {node.target}",
                got=f"{node}{f', at {node.where}' if node.where else ''}",
                fix="write the module without it, or exported.run_decompositions() into operators that have rules",
            )
        args = [_filled(a, values) for a in node.args]
        kwargs = {k: _filled(v, values) for k, v in node.kwargs.items() if k not in _PLACES}
        if found.walker:
            kwargs["walker"] = self
        shown = f"{node.target}{f' at {node.where}' if node.where else ''}"
        known = [*args, *kwargs.values()]
        rule = lambda: (found.function(*args, **kwargs),)
        return applied("from_torch", node.target, shown, node.scope, known, rule)[0]


def _filled(x: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(x, NodeRef):
        if x.name not in values:
            raise InvalidFileError("from_torch: a value is used before it is made", got=x.name)
        return values[x.name]
    return [_filled(v, values) for v in x] if isinstance(x, list) else x


def _bind(values: dict[str, Any], output: Any, made: Any, node: TorchNode) -> None:
    if isinstance(output, str):
        values[output] = made
    elif output is not None:
        if not isinstance(made, (list, tuple)):
            raise InvalidFileError(f"from_torch: {node} has one result", expected=f"{len(output)} of them")
        for o, y in zip(output, made, strict=False):
            _bind(values, o, y, node)
