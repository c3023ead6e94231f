"""Random keys that are used twice: what `debug_key_reuse` checks.

A key is used by drawing from it and by splitting it; `fold_in` and `clone` give new keys. What is followed are single
keys, by where they lie: those of an array by the addresses of its elements, so that ``keys[0]`` is known wherever it
was cut out; those that a program makes by numbers. A program is walked through without being run, a loop twice round:
a key that a second turn finds used was used again. Raw keys are followed like typed ones. Knows no executor.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import KeyReuseError, Source, user_source
from nxjax.ops.base import DataMovement
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Literal, Program, Var
from nxjax.trace.scope import current_source
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop_params import LoopParams

NDArray = np.ndarray[Any, Any]

# Ops on keys that do not use them up.
_FREE: Final = frozenset(("random_clone", "random_wrap", "random_unwrap", "random_seed", "random_fold_in"))
# Between a typed key and its two words.
_WRAPPING: Final[dict[str, Callable[[NDArray], NDArray]]] = {
    "random_wrap": lambda keys: keys[..., 0],
    "random_unwrap": lambda keys: np.stack((keys, keys), -1),
}
# A key: whose memory it lies in, and its number there.
_KEY: Final = np.dtype([("owner", np.int64), ("id", np.int64)])
# Which keys an array holds, in its shape; several such where it holds one or the other.
Keys = tuple[NDArray, ...]


class KeyUse(NamedTuple):
    """How keys of one owner were used up."""

    ids: NDArray
    op: str
    source: Source | None


# By the `id` of the memory that keys lie in: a reference to it, and their uses.
_used: dict[int, tuple[weakref.ref[Any], list[KeyUse]]] = {}


def uses(x: Op, types: Sequence[ArrayType]) -> bool:
    return x.name.startswith("random_") and x.name not in _FREE and any(t.dtype == dtypes.key for t in types)


def check_eager(op: Op, args: Sequence[Array], params: dict[str, Any]) -> None:
    """Raise if ``op`` uses keys that were used before; remember that it has."""
    types = [x.type for x in args]
    if not op.nested and not uses(op, types):
        return
    walk = _Walk()
    found = [_keys_of(x) for x in args]
    source = current_source()
    if op.nested:
        variables = [Var(t) for t in types]
        walk.op(op, variables, found, params, source)
    else:
        for x, k in zip(args, found, strict=True):
            if x.dtype == dtypes.key and k is not None:
                walk.use(k, op.name, source)


def check_call(program: Program, args: Sequence[Array]) -> None:
    """As `check_eager`, of a call of a program."""
    _Walk().program(program, [_keys_of(x) for x in args])


def cloned(x: Array) -> Array:
    """The same keys in memory of their own."""
    return DeviceArray(x.numpy().copy(), x.type)


def _may_hold(t: ArrayType) -> bool:
    return t.dtype == dtypes.key or (t.dtype == dtypes.uint32 and t.shape[-1:] == (2,))


def _keys_of(x: Array) -> Keys | None:
    """The keys of a concrete array, by their addresses."""
    if not isinstance(x, DeviceArray) or not _may_hold(x.type):
        return None
    data = owner = x.numpy()
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    number = id(owner)
    if number not in _used:
        _used[number] = (weakref.ref(owner, lambda _: _used.pop(number, None)), [])
    ids = np.asarray(data.__array_interface__["data"][0], np.int64)
    for axis, (size, stride) in enumerate(zip(data.shape, data.strides, strict=True)):
        ids = ids[..., None] + np.arange(size) * stride if axis else np.arange(size) * stride + ids
    return (_numbered(number, np.asarray(ids)),)


def _numbered(owner: int, ids: NDArray) -> NDArray:
    keys = np.empty(ids.shape, _KEY)
    keys["owner"], keys["id"] = owner, ids
    return keys


def _moved(op: Op, moved: slice, inputs: Sequence[Atom], given: Sequence[Keys | None], params: dict[str, Any]) -> Any:
    """The keys that an op gives which moves those of its operands ``moved``; None if they cannot be told."""
    operands = [k for k in given[moved] if k is not None]
    if len(operands) != len(inputs[moved]) or not operands:
        return None
    places: list[Any] = [a.value.numpy() if isinstance(a, Literal) else None for a in inputs]
    at = range(len(inputs))[moved]
    if any(x is None for i, x in enumerate(places) if i not in at):
        # Where all have one shape, each element is of one of them.
        shapes = {way.shape for k in operands for way in k}
        return tuple(way for k in operands for way in k) if len(operands) > len(shapes) == 1 else None
    found: list[Any] = []
    for ways in itertools.zip_longest(*operands):
        for i, way, k in zip(at, ways, operands, strict=True):
            places[i] = k[0] if way is None else way
        found.append(op.eval(*places, **params))
    return tuple(found)


@final
class _Walk:
    """One walk through what runs."""

    def __init__(self) -> None:
        self.local: dict[int, list[KeyUse]] = {}
        self.fresh = -1
        self.source = user_source()
        self.again = False  # inside a recomputation: its uses are the first ones

    def uses_of(self, owner: int) -> list[KeyUse]:
        return _used[owner][1] if owner in _used else self.local.setdefault(owner, [])

    def use(self, keys: Keys, op: str, source: Source | None) -> None:
        every = np.unique(np.concatenate([np.ravel(k) for k in keys]))
        for owner in np.unique(every["owner"]).tolist():
            known, ids = self.uses_of(owner), every["id"][every["owner"] == owner]
            for before in known:
                if np.intersect1d(before.ids, ids, assume_unique=True).size and not self.again:
                    raise _reused(op, source, before)
            known.append(KeyUse(ids, op, source))

    def new(self, t: ArrayType) -> Keys | None:
        """Keys that nobody has used."""
        if not _may_hold(t):
            return None
        self.fresh -= 1
        raw = t.dtype != dtypes.key
        ids = np.arange(t.size // 2 if raw else t.size).reshape(t.shape[:-1] if raw else t.shape)
        keys = _numbered(self.fresh, ids)
        return (np.stack((keys, keys), -1) if raw else keys,)

    def fitting(self, k: Keys | None, t: ArrayType) -> Keys | None:
        """The keys of a value of type ``t``, which are new unless ``k`` says them."""
        return k if k and all(way.shape == t.shape for way in k) else self.new(t)

    def program(self, program: Program, given: Sequence[Keys | None]) -> list[Keys | None]:
        env: dict[Var, Keys | None] = {}
        for v, k in zip(program.inputs, given, strict=True):
            env[v] = self.fitting(k, v.type)
        env.update((v, _keys_of(x)) for v, x in zip(program.consts, program.values, strict=True))

        def find(a: Atom) -> Keys | None:
            return env.get(a) if isinstance(a, Var) else _keys_of(a.value)

        for e in program.equations:
            self.source = e.source or self.source
            found = self.op(e.op, e.inputs, [find(a) for a in e.inputs], e.params, self.source)
            for i, v in enumerate(e.outputs):
                env[v] = self.fitting(found[i] if i < len(found) else None, v.type)
        return [find(a) for a in program.outputs]

    def op(
        self,
        op: Op,
        inputs: Sequence[Atom],
        given: Sequence[Keys | None],
        params: dict[str, Any],
        source: Source | None,
    ) -> list[Keys | None]:
        """The keys that results hold; none where they are new, or no keys."""
        if uses(op, [a.type for a in inputs]):
            for a, k in zip(inputs, given, strict=True):
                if a.type.dtype == dtypes.key and k is not None:
                    self.use(k, op.name, source)
            return []
        if op.name == "scan":
            return [*self.scan(given, params["loop"])]
        if op.name == "while":
            return [*self.while_loop(given, params["loop"])]
        if op.name == "cond":
            return self.branches(given[1:], params["branches"])
        found = (params["program"], given) if "program" in params else None
        if op.has("called"):
            found = op.called(*given, **params)
        if found is not None:
            program, operands = found
            before, self.again = self.again, self.again or (op.name == "checkpoint" and _is_derived(program))
            try:
                return self.program(program, operands)
            finally:
                self.again = before
        if isinstance(op, DataMovement):
            y: Any = _moved(op, op.moved, inputs, given, params)
            if y is None or not op.multi:
                return [y]
            return [tuple(np.asarray(way[i]) for way in y) for i in range(len(y[0]))]
        wrapped = _WRAPPING.get(op.name)
        return [] if wrapped is None or given[0] is None else [tuple(map(wrapped, given[0]))]

    def scan(self, given: Sequence[Keys | None], loop: LoopParams) -> Sequence[Keys | None]:
        x = loop.split(given)
        carry = x.carry
        for step in range(min(len(loop.step_indices()), 2)):
            rows = [k and tuple(way[step] for way in k) for k in x.xs]
            carry, _ = loop.results(self.program(loop.body, [*x.consts, *carry, *rows]))
        return carry

    def while_loop(self, given: Sequence[Keys | None], loop: LoopParams) -> Sequence[Keys | None]:
        x = loop.split(given)
        for _ in range(2):
            self.program(loop.condition, x.cond_inputs)
            x = x._replace(carry=self.program(loop.body, x.body_inputs))
        return x.carry

    def branches(self, given: Sequence[Keys | None], branches: Sequence[Program]) -> list[Keys | None]:
        """Each branch as if it were the only one; then all of their uses."""
        owners = {o for k in given for way in k or () for o in np.unique(way["owner"]).tolist()}
        lists = [self.uses_of(o) for o in owners]
        before = [len(uses) for uses in lists]
        added: list[list[KeyUse]] = [[] for _ in lists]
        for branch in branches:
            self.program(branch, given)
            for uses_, n, more in zip(lists, before, added, strict=True):
                more += uses_[n:]
                del uses_[n:]
        for uses_, more in zip(lists, added, strict=True):
            uses_ += more
        return []


def _is_derived(program: Program) -> bool:
    return program.name.startswith(("transpose(", "tangent(", "jvp("))


def _reused(op: str, source: Source | None, before: KeyUse) -> KeyReuseError:
    verb = {"random_split": "split", "random_bits": "drawn from"}
    here = user_source()
    rows = [("first use", before.source.shown())] if before.source is not None else []
    if here is not None and source is not None and str(here) != str(source):
        rows.append(("called at", here.shown()))
    return KeyReuseError(
        f"debug_key_reuse: a random key that was {verb.get(before.op, 'used')} already is {verb.get(op, 'used')} again",
        expected="each key used once: two draws from one key are the same numbers",
        source=source,
        more=rows,
        fix="key, sub = nx.random.split(key) before each use; nx.random.clone(key) where the same numbers are meant",
    )
