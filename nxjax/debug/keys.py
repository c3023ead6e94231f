"""Random keys that are used twice: what `debug_key_reuse` checks.

A key is used by drawing from it and by splitting it; `fold_in` and `clone` give new keys. What is followed are single
keys, by where they lie: those of an array by the addresses of its elements, so that ``keys[0]`` is known wherever it
was cut out; those that a program makes by numbers. A program is walked through without being run, a loop twice round:
a key that a second turn finds used was used again. Raw keys are followed like typed ones. Knows no executor.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.errors import KeyReuseError, Source, user_source
from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Atom, Program, Var
from nxjax.trace.scope import current_source
from nxjax.trace.types import ArrayType
from nxjax.transforms.control.loop import LoopParams

NDArray = np.ndarray[Any, Any]

# Ops on keys that do not use them up.
_FREE: Final = frozenset(("random_clone", "random_wrap", "random_unwrap", "random_seed", "random_fold_in"))
# Ops that move elements and nothing else: done to numbers, they say where each has come from.
_MOVES: Final = frozenset((
    "broadcast_in_dim", "copy", "reshape", "rev", "slice", "transpose", "stop_gradient",
    "sharding_constraint",
))  # fmt: skip
# Between a typed key and its two words.
_WRAPPING: Final[dict[str, Callable[[NDArray], NDArray]]] = {
    "random_wrap": lambda ids: ids[..., 0],
    "random_unwrap": lambda ids: ids[..., None] + np.zeros(2, np.int64),
}


class Keys(NamedTuple):
    """Which keys an array holds: those of ``owner`` with the numbers ``ids``, which has the array's shape."""

    owner: int
    ids: NDArray


class KeyUse(NamedTuple):
    """How keys were used up."""

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
    return Keys(number, np.asarray(ids))


@final
class _Walk:
    """One walk through what runs."""

    def __init__(self) -> None:
        self.local: dict[int, list[KeyUse]] = {}
        self.fresh = -1
        self.source = user_source()
        self.again = False  # inside a recomputation: its uses are the first ones

    def use(self, keys: Keys, op: str, source: Source | None) -> None:
        known = _used[keys.owner][1] if keys.owner in _used else self.local.setdefault(keys.owner, [])
        ids = np.unique(keys.ids)
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
        return Keys(self.fresh, ids[..., None] + np.zeros(2, np.int64) if raw else ids)

    def program(self, program: Program, given: Sequence[Keys | None]) -> list[Keys | None]:
        env: dict[Var, Keys | None] = {}
        for v, k in zip(program.inputs, given, strict=True):
            env[v] = k if k is not None and k.ids.shape == v.type.shape else self.new(v.type)
        env.update((v, _keys_of(x)) for v, x in zip(program.consts, program.values, strict=True))

        def find(a: Atom) -> Keys | None:
            return env.get(a) if isinstance(a, Var) else _keys_of(a.value)

        for e in program.equations:
            self.source = e.source or self.source
            found = self.op(e.op, e.inputs, [find(a) for a in e.inputs], e.params, self.source)
            for i, v in enumerate(e.outputs):
                k = found[i] if i < len(found) else None
                env[v] = k if k is not None and k.ids.shape == v.type.shape else self.new(v.type)
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
        first = given[0] if given else None
        if op.name == "scan":
            return [*self.scan(given, LoopParams.of(params))]
        if op.name == "while":
            return [*self.loop(given, LoopParams.of(params), params["cond"])]
        if op.name == "cond":
            return self.branches(given[1:], params["branches"])
        program = params.get("program")
        if isinstance(program, Program) and len(program.inputs) == len(given):
            before, self.again = self.again, self.again or (op.name == "checkpoint" and _is_derived(program))
            try:
                return self.program(program, given)
            finally:
                self.again = before
        if first is None:
            return []
        if op.name in _MOVES:
            return [Keys(first.owner, np.asarray(op.eval(first.ids, **params)))]
        wrapped = _WRAPPING.get(op.name)
        return [] if wrapped is None else [Keys(first.owner, wrapped(first.ids))]

    def scan(self, given: Sequence[Keys | None], loop: LoopParams) -> Sequence[Keys | None]:
        x = loop.split(given)
        carry = x.carry
        for step in range(min(len(loop.order()), 2)):
            rows = [k and Keys(k.owner, k.ids[step]) for k in x.xs]
            carry, _ = loop.results(self.program(loop.body, [*x.consts, *carry, *rows]))
        return carry

    def loop(self, given: Sequence[Keys | None], loop: LoopParams, test: Program) -> Sequence[Keys | None]:
        x = loop.split(given)
        for _ in range(2):
            self.program(test, x.cond_inputs)
            x = x._replace(carry=self.program(loop.body, x.body_inputs))
        return x.carry

    def branches(self, given: Sequence[Keys | None], branches: Sequence[Program]) -> list[Keys | None]:
        """Each branch as if it were the only one; then all of their uses."""
        owners = {k.owner for k in given if k is not None}
        lists = [_used[o][1] if o in _used else self.local.setdefault(o, []) for o in owners]
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
