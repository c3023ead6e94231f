"""A state among the arguments of a compiled function: where it goes in and comes out, and the file that keeps it.

A function of a state gives the new one first: ``state, *results = f(state, *args)``. Formats with variables get a file
in which each leaf is one, and every function that works on them a signature; in others the state stays an argument and
a result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax.backends.target import Build, NpuTarget, Target, blamed
from nxjax.deploy.trace import BoundFunction, Subject, stored_inputs
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lower.npu.formats.tflite_variables import RESTORE, SAVE, StatefulGraph, StateVariable
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.quant.function import Quantized
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.types import ShapeDtypeStruct

_FIX: Final = "return the new state first: def step(state, *args): ...; return state, loss"


@final
@dataclass(frozen=True)
class StateUse:
    """Which inputs and results of a graph are the state, leaf by leaf.

    Attributes:
        names: of the leaves, such as "state/w".
        inputs: places among the inputs.
        outputs: places among the results; none where a function only reads the state.
    """

    names: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def position(fun: object, given: int | None, args: Sequence[Any]) -> int | None:
    """Which argument is the state: what was said, else what `quantize` was told.

    Raises:
        ParameterError: there is no such argument, or it has no values.
    """
    if given is None:
        given = fun.state if isinstance(fun, Quantized) else None
    if given is None:
        return None
    try:
        n = operator.index(given)
    except TypeError:
        raise ParameterError("compile: state is the position of an argument", got=given, expected="0") from None
    if not -len(args) <= n < len(args):
        raise ParameterError("compile: state names no argument", got=n, expected=f"below {len(args)}")
    leaves = tree.leaves(args[n])
    if not leaves:
        raise ParameterError("compile: the state has no arrays", got=args[n], expected="a tree of arrays")
    if any(isinstance(x, ShapeDtypeStruct) for x in leaves):
        raise ParameterError("compile: the state has no values to begin with", got="types", expected="arrays")
    return n % len(args)


def use(bound: BoundFunction, place: int, returned: bool = True) -> StateUse:
    """Where the state at the ``place``-th argument is in what was traced.

    Raises:
        ParameterError: it is a constant; or the function does not return it first, in the same structure.
        ShapeError, DtypeError: a leaf comes out in another shape or dtype.
    """
    if place in bound.constants:
        raise ParameterError("compile: the state cannot be a constant", got=f"argument {place} in constants and state")
    sizes = [0 if n in bound.constants else len(leaves) for n, (leaves, _) in enumerate(bound.in_trees)]
    leaves, structure = bound.in_trees[place]
    inputs = tuple(range(sum(sizes[:place]), sum(sizes[: place + 1])))
    paths = tree.path_names(tree.unflatten(structure, leaves), "state")
    # "state[0]['w']" as "state/0/w", the names that TFLite's own files have.
    names = tuple(re.sub(r"[^\w]+", "/", path).strip("/") for path in paths)
    if len(set(names)) < len(names):
        names = tuple(f"{name}/{i}" for i, name in enumerate(names))
    if not returned:
        return StateUse(names, inputs, ())
    results = bound.program.outputs
    whole = tree.unflatten(bound.out_tree, range(len(results)))
    new = whole if bound.out_tree == structure else whole[0] if isinstance(whole, tuple) and whole else whole
    outputs, found = tree.flatten(new)
    if found != structure:
        raise ParameterError(
            f"compile: {bound.name} does not return the state that it takes", got=found, expected=structure, fix=_FIX
        )
    for path, i, o in zip(paths, inputs, outputs, strict=True):
        old, made = bound.program.inputs[i].type, results[o].type
        what = f"compile: {bound.name} returns {path} in another"
        if made.shape != old.shape:
            raise ShapeError(f"{what} shape", got=made.shape, expected=old.shape, fix="reshape it")
        if made.dtype != old.dtype:
            short = dtypes.short_name(old.dtype)
            got = dtypes.short_name(made.dtype)
            raise DtypeError(f"{what} dtype", got=got, expected=short, fix=f".astype({old.dtype.name!r})")
    return StateUse(names, inputs, tuple(outputs))


def settled(subject: Subject, places: StateUse) -> Subject:
    """The subject with each leaf of the state on one grid: what comes out is what goes in next, bit for bit.

    A leaf whose ends differ is stored as float32.
    """
    graph = subject.form
    if not isinstance(graph, NpuGraph):
        return subject
    for i, o in zip(places.inputs, places.outputs, strict=True):
        if graph.inputs[i].kind != graph.outputs[o].kind:
            graph = _taking(_giving(graph, o), i, Tensor("", graph.inputs[i].shape, dtypes.float32))
    return replace(subject, form=graph, inputs=graph.inputs, outputs=graph.outputs, meaning=partial(interpret, graph))


def reading(subject: Subject, places: StateUse, stored: Sequence[Tensor]) -> Subject:
    """The subject of a function that reads a state as another one stores it."""
    graph = subject.form
    if not isinstance(graph, NpuGraph):
        return subject
    for i, variable in zip(places.inputs, stored, strict=True):
        if graph.inputs[i].kind != variable.kind:
            graph = _taking(graph, i, variable)
    return replace(subject, form=graph, inputs=graph.inputs, meaning=partial(interpret, graph))


def _taking(graph: NpuGraph, i: int, as_stored: Tensor) -> NpuGraph:
    """``graph`` with another type of its ``i``-th input, which it converts first."""
    old = graph.inputs[i]
    new = Tensor(f"{old.name}_stored", old.shape, as_stored.dtype, as_stored.grid)
    if old.kind == new.kind:
        return graph
    nodes: list[Node] = []
    real = new
    if new.grid is not None and old.grid is None:
        nodes.append(Node("dequantize", (new,), (old,), name=f"{old.name}_read"))
    else:
        nodes.append(Node("quantize", (real,), (old,), name=f"{old.name}_read"))
    inputs = [new if t is old else t for t in graph.inputs]
    return NpuGraph(graph.name, inputs, graph.outputs, [*nodes, *graph.nodes], graph.rounding).check()


def _giving(graph: NpuGraph, o: int) -> NpuGraph:
    """``graph`` with its ``o``-th result in float32."""
    old = graph.outputs[o]
    if old.grid is None:
        return graph
    new = Tensor(f"{old.name}_real", old.shape, dtypes.float32)
    outputs = [new if n == o else t for n, t in enumerate(graph.outputs)]
    node = Node("dequantize", (old,), (new,), name=f"{old.name}_real")
    return NpuGraph(graph.name, graph.inputs, outputs, [*graph.nodes, node], graph.rounding).check()


@final
@dataclass(frozen=True)
class Stated:
    """A function that works on a state: what it is compiled from, and where the state is in that."""

    subject: Subject
    places: StateUse

    @staticmethod
    def of(bound: BoundFunction, subject: Subject, place: int) -> Stated:
        """A function that takes and returns the state."""
        places = use(bound, place)
        return Stated(settled(subject, places), places)

    def read_by(self, bound: BoundFunction, subject: Subject, place: int) -> Stated:
        """A function that takes the state as this one stores it."""
        places = use(bound, place, returned=False)
        return Stated(reading(subject, places, [self.subject.inputs[i] for i in self.places.inputs]), places)

    def graph(self, name: str) -> StatefulGraph | None:
        """As a signature of a file; None if it is written from no graph."""
        graph = self.subject.form
        numbered = lambda places: {place: number for number, place in enumerate(places)}
        if not isinstance(graph, NpuGraph):
            return None
        return StatefulGraph(name, graph, numbered(self.places.inputs), numbered(self.places.outputs))


@final
@dataclass(frozen=True)
class Kept:
    """The state of a file: its functions, the main one first, and its leaves."""

    graphs: Sequence[StatefulGraph]
    variables: Sequence[StateVariable]

    def put_into(self, build: Build, target: Target[Any], options: dict[str, object]) -> None:
        """Add the file with variables where the target's format has such; else a note."""
        if isinstance(target, NpuTarget) and target.variables:
            with blamed(target.name):
                target.keeping(build, self.graphs, self.variables, options)
        else:
            build.notes.append(
                f"files for {target.name} have no variables: the state is an argument and a result of every call"
            )


def keeping(main: Stated, more: Mapping[str, Stated], bound: BoundFunction, place: int) -> Kept:
    """What is kept between calls of ``main``, whose first values are the arguments that it was traced with."""
    tensors = [main.subject.inputs[i] for i in main.places.inputs]
    leaves = tree.leaves(bound.args[place])
    first = stored_inputs(tensors, [np.asarray(as_value(x, "compile").numpy()) for x in leaves])
    variables = [StateVariable(name, t, x) for name, t, x in zip(main.places.names, tensors, first, strict=True)]
    graphs = [s.graph(name) for name, s in {bound.name: main, **more}.items()]
    return Kept([g for g in graphs if g is not None], variables)


def examples(
    signatures: Mapping[str, Any] | None, fun: object, place: int | None
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """The other functions of an artifact, checked: each with its example arguments but for the state."""
    if not signatures:
        return {}
    if place is None:
        raise ParameterError(
            "compile: signatures share a state", got="no state", fix="say which argument is the state: state=0"
        )
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for key, given in signatures.items():
        called, *args = given if isinstance(given, tuple) else (given,)
        if not callable(called):
            raise ParameterError(
                f"compile: signature {key!r}", got=given, expected="a function and its arguments without the state"
            )
        if key in (getattr(fun, "__name__", ""), SAVE, RESTORE):
            raise ParameterError("compile: a signature of this name is there already", got=key)
        found[key] = called, tuple(args)
    return found
