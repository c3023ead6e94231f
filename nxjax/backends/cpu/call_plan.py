"""Plans: a call that was seen, as words for the machine code of `native.objects_call`.

A plan says how arguments like those of that call are recognized and where their elements are, what runs, and what tree
its results make. Knows where nothing lies in an object; that is `call_layout`'s and the machine code's.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np
import optree

from nxjax.backends.cpu.native import objects_tree as words
from nxjax.backends.cpu.native.objects_call import PLAN, SCOPE
from nxjax.config import current_settings
from nxjax.trace import dtypes, tree
from nxjax.trace.array import DeviceArray
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.mesh import current_mesh
from nxjax.transforms.jit_stages import Repeated

Kind = optree.PyTreeKind
_NUMBERS: Final = {
    (float, dtypes.float32): words.FLOAT32,
    (float, dtypes.float64): words.FLOAT64,
    (int, dtypes.int32): words.INT32,
    (int, dtypes.int64): words.INT64,
    (bool, dtypes.bool_): words.BOOL,
}


_STEADY: Final = (int, float, complex, bool, str, bytes)


class NoPlan(Exception):
    """A call that takes its way through Python; the message says why."""


class Native(NamedTuple):
    """A compiled program as machine code.

    Attributes:
        run, tape: the function ``i64 (ptr tape, ptr ins, ptr outs)`` and its first argument.
        sources: for each result where it is from, as `objects_call` numbers it, and which.
        arena: bytes of temporaries.
        keeps: what has to live as long as the tape is used.
    """

    run: int
    tape: int
    sources: Sequence[tuple[int, int]]
    arena: int
    keeps: Any


@final
class CallPlan:
    """The words of one plan, and all that they name."""

    __slots__ = ("address", "keeps", "key")

    def __init__(self, call: Repeated, native: Native) -> None:
        keeps: list[Any] = [native.keeps]
        matching = _Matching(len(call.consts), call, keeps)
        args_words, kwargs_words = matching.all(call)
        constants: list[int] = []
        for i, x in enumerate(call.consts):
            keeps.append(x)
            constants += [id(x), *matching.array(x, i)]
        outs = call.out_types
        scope = dict(zip(SCOPE, (current_settings().call, axes_in_scope(), current_mesh()), strict=True))
        fields = {
            **{name: id(value) for name, value in scope.items()},
            "args": _kept(args_words, keeps),
            "kwargs": _kept(kwargs_words, keeps) if kwargs_words else 0,
            "result": _kept(_built(call.out_tree, keeps), keeps),
            "run": native.run,
            "tape": native.tape,
            "ins": len(call.consts) + len(call.leaves),
            "outs": len(outs),
            "consts": len(call.consts),
            "constants": _kept(constants, keeps),
            "donated": len(call.donate),
            "gone": _kept(call.donate, keeps),
            "sizes": _kept([t.size * t.dtype.itemsize for t in outs], keeps),
            "types": _kept([id(t) for t in outs], keeps),
            "sources": _kept([n for source in native.sources for n in source], keeps),
            "arena": native.arena,
        }
        keeps += [*scope.values(), *outs]
        self.keeps = keeps
        self.address = _kept([fields[name] for name in PLAN], keeps)
        names = (*SCOPE, "run", "tape")
        seen = [0 if n in matching.aux else n for n in (*args_words, *kwargs_words)]
        self.key = (call.in_tree, *seen, *constants, *(fields[n] for n in names))


def _is_steady(x: Any) -> bool:
    """Whether the same object is an equal value for ever."""
    kind = type(x)
    if kind is tuple:
        return all(map(_is_steady, x))
    by_identity = kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
    return by_identity or kind in _STEADY or isinstance(x, (np.dtype, enum.Enum))


def _kept(values: Sequence[int], keeps: list[Any]) -> int:
    """The address of words that live as long as ``keeps``."""
    array = np.array([*values, 0], np.uint64)
    keeps.append(array)
    return array.ctypes.data


@final
class _Matching:
    """Writes the words by which arguments are recognized."""

    def __init__(self, first: int, call: Repeated, keeps: list[Any]) -> None:
        self._index = first
        self._leaves = iter(zip(call.leaves, call.types, strict=True))
        self._keeps = keeps
        # Addresses of what nodes are besides their children: made anew each time.
        self.aux: set[int] = set()

    def all(self, call: Repeated) -> tuple[list[int], list[int]]:
        """For the positional arguments, and for those by name (empty for none)."""
        positional, named = call.in_tree.children()
        specs = iter(positional.children())
        args = [words.TUPLE, id(tuple), len(call.args)]
        for i, x in enumerate(call.args):
            args += self._static(x) if i in call.statics else self.of(x, next(specs))
        if not call.kwargs:
            return args, []
        found = {k: self.of(call.kwargs[k], s) for k, s in zip(named.entries(), named.children(), strict=True)}
        found |= {k: self._static(x) for k, x in call.kwargs.items() if k in call.statics}
        self._keeps += list(call.kwargs)
        return args, [words.DICT, len(call.kwargs), *(n for k in call.kwargs for n in (id(k), *found[k]))]

    def _static(self, x: Any) -> list[int]:
        if not _is_steady(x):
            raise NoPlan(f"a static argument is a {type(x).__name__}")
        self._keeps.append(x)
        return [words.STATIC, id(x)]

    def of(self, x: Any, spec: tree.TreeDef) -> list[int]:
        """For a tree of the structure ``spec``."""
        match spec.kind:
            case Kind.LEAF:
                return self._leaf(x)
            case Kind.NONE:
                return [words.NONE]
            case Kind.TUPLE | Kind.NAMEDTUPLE:
                self._keeps.append(type(x))
                return [words.TUPLE, id(type(x)), len(x), *self._items(x, spec)]
            case Kind.LIST:
                return [words.LIST, len(x), *self._items(x, spec)]
            case Kind.DICT:
                # Leaves come in the order of sorted keys, children in that of insertion.
                found = {k: self.of(x[k], child) for k, child in zip(spec.entries(), spec.children(), strict=True)}
                self._keeps += list(x)
                return [words.DICT, len(x), *(n for k in x for n in (id(k), *found[k]))]
            case Kind.CUSTOM:
                return self._node(x, spec)
            case _:
                raise NoPlan(f"an argument is a {spec.type}")

    def _items(self, x: Any, spec: tree.TreeDef) -> list[int]:
        return [n for item, child in zip(x, spec.children(), strict=True) for n in self.of(item, child)]

    def _node(self, x: Any, spec: tree.TreeDef) -> list[int]:
        entry: Any = optree.register_pytree_node.get(spec.type, namespace=tree.NAMESPACE)  # type: ignore[attr-defined]
        if entry is None or type(x) is not spec.type:
            raise NoPlan(f"an argument is a {type(x).__name__}")
        children, aux = entry.flatten_func(x)[:2]
        self.aux.add(id(aux))
        self._keeps += [spec.type, entry.flatten_func, aux]
        return [
            words.NODE,
            *map(id, (spec.type, entry.flatten_func, aux)),
            len(children),
            *self._items(children, spec),
        ]

    def _leaf(self, x: Any) -> list[int]:
        leaf, type_ = next(self._leaves)
        if leaf is not x:
            raise NoPlan("leaves in an order of their own")
        index = self._index
        self._index += 1
        kind = type(x)
        if kind is DeviceArray:
            return self.array(x, index)
        if (kind, type_.dtype) in _NUMBERS:
            return [words.NUMBER, index, _NUMBERS[kind, type_.dtype]]
        if kind is np.ndarray and x.dtype == type_.dtype:
            self._keeps.append(x.dtype)
            return [words.NUMPY, index, id(x.dtype), x.ndim, *x.shape]
        raise NoPlan(f"an argument is a {kind.__name__}")

    def array(self, x: Any, index: int) -> list[int]:
        """For an array of the type of ``x``."""
        if type(x) is not DeviceArray:
            raise NoPlan(f"a constant is a {type(x).__name__}")
        if x.place is not None:
            raise NoPlan("an array was put somewhere")
        self._keeps.append(x.type)
        return [words.LEAF, index, id(x.type)]


def _built(spec: tree.TreeDef, keeps: list[Any]) -> list[int]:
    """The words that put results together."""
    index = iter(range(spec.num_leaves))

    def of(spec: tree.TreeDef) -> list[int]:
        match spec.kind:
            case Kind.LEAF:
                return [words.LEAF, next(index)]
            case Kind.NONE:
                return [words.NONE]
            case Kind.TUPLE:
                return [words.TUPLE, spec.num_children, *items(spec)]
            case Kind.LIST:
                return [words.LIST, spec.num_children, *items(spec)]
            case Kind.NAMEDTUPLE:
                keeps.append(spec.type)
                return [words.CALL, id(spec.type), spec.num_children, *items(spec)]
            case Kind.DICT:
                return of_dict(spec)
            case _:
                unflatten = spec.unflatten
                keeps.append(unflatten)
                leaves = [n for _ in range(spec.num_leaves) for n in (words.LEAF, next(index))]
                return [words.CALL, id(unflatten), 1, words.LIST, spec.num_leaves, *leaves]

    def items(spec: tree.TreeDef) -> list[int]:
        return [n for child in spec.children() for n in of(child)]

    def of_dict(spec: tree.TreeDef) -> list[int]:
        one = spec.one_level()
        assert one is not None
        found = {k: of(child) for k, child in zip(spec.entries(), spec.children(), strict=True)}
        template: Any = one.unflatten([None] * spec.num_children)
        keeps.extend((template, *template))
        return [words.DICT, len(template), id(template), *(n for k in template for n in (id(k), *found[k]))]

    return of(spec)
