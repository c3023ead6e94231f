"""`jit`: trace once per type of the arguments, compile once per program, then call.

The short way (outermost trace, arrays by position, nothing put anywhere) asks whether types and settings are those of
the last such call, and runs its executable. The general way is one flatten, one dictionary look-up and one executable
call. Arguments that were put somewhere, and shardings that were asked for, choose among executables of the same
program. Under any other trace the call is bound as one op (`call.jit_call`). An executor may answer repeated calls
before they get here (`Executable.shortcut`). How a program is compiled is set from outside by
`trace.core.install_compiler`; this file names no backend.
"""

from __future__ import annotations

import functools
import inspect
import math
import types as python_types
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from time import perf_counter
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, Self, TypeVar, final, overload

import numpy as np

from nxjax.config import current_settings
from nxjax.errors import DtypeError, ParameterError, StaticArgumentError, TransformDisabledError, described, user_source
from nxjax.ops.sharding import sharding_constraint
from nxjax.trace import tree
from nxjax.trace.array import DeviceArray, PlacedArray, another, as_value, type_of
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.boundary import boundary
from nxjax.trace.core import EVAL, Array, Tracer, current_trace, the_watcher
from nxjax.trace.mesh import current_mesh
from nxjax.trace.sharding import NamedSharding, PartitionSpec, Sharding, as_sharding
from nxjax.trace.shortcuts import may
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.transforms import retrace
from nxjax.transforms.call import jit_call
from nxjax.transforms.jit_stages import Asked, Executable, Lowered, Repeated, Traced, the_compiler

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

# What `jit` takes.
_OPTIONS: Final = (
    "static_argnums", "static_argnames", "donate_argnums", "donate_argnames", "keep_unused", "device", "backend",
    "inline", "in_shardings", "out_shardings",
)  # fmt: skip
# After how many calls of one program its executor is told of it: the second, then ever more seldom.
_TOLD: Final = frozenset((2, 3, *(4**n for n in range(2, 16))))


class _Way(NamedTuple):
    """How calls run.

    Attributes:
        executable, leading: what runs, and the arrays that it takes before the arguments.
        donate: which of all are gone after a call.
        final: whether further calls run like this.
    """

    executable: Executable
    leading: Sequence[Any]
    donate: tuple[int, ...]
    final: bool


@final
class _Entry:
    """One traced type signature, and how it runs once that was needed."""

    __slots__ = (
        "borrows", "calls", "consts", "direct", "donate", "flat", "opened", "out_tree", "places", "record", "state",
        "traced", "types", "way",
    )  # fmt: skip

    def __init__(self, traced: Traced, donate: tuple[int, ...], types: tuple[ArrayType, ...], state: Any) -> None:
        self.traced = traced
        self.types = list(types)
        self.state = state
        self.calls = 0
        # Whether the arguments are just these, by position.
        self.flat = False
        self.opened, consts = traced.program.close_over()
        # Its own: what a function closes over lives on when the array is deleted, or donated to the function itself.
        self.consts = tuple(map(another, consts))
        self.out_tree = traced.out_tree
        self.donate = tuple(i + len(self.consts) for i in donate)
        # What `retrace` knows of this signature.
        self.record: retrace.Signature | None = None
        # How direct calls run, once they did.
        self.way: _Way | None = None
        # A function that closes over tracers of a surrounding trace is good for that trace only.
        self.borrows = any(isinstance(c, Tracer) for c in self.consts)
        self.places: dict[Any, Executable] = {}
        placed = bool(traced.asked) or any(type(c) is PlacedArray for c in self.consts)
        # Whether a call with arguments that are nowhere in particular is one on the default device.
        self.direct = not self.borrows and not placed and not the_compiler().is_placed(self.opened, traced.device)

    def run(self, values: list[Any], device: Any) -> list[DeviceArray]:
        """The results for arguments that are nowhere in particular."""
        way = self.way
        if way is None or (self.calls and not way.final):
            way = self.way = self._way(device)
        inputs: list[Any] = [*way.leading, *values] if way.leading else values
        out = way.executable(inputs)
        for i in way.donate:
            inputs[i].delete()
        self.calls += 1
        return out

    def _way(self, device: Any) -> _Way:
        """How the next call runs. From the second on, what depends on consts alone was done before."""
        with retrace.compiling(self.record):
            executable = the_compiler().compile(self.opened, device=device, donate=self.donate)
        held = executable.holding(self.consts) if self.calls and self.consts and may("held arguments") else None
        if held is None:
            return _Way(executable, self.consts, self.donate, final=self.calls > 0 or not self.consts)
        shift = len(held[1]) - len(self.consts)
        return _Way(*held, tuple(i + shift for i in self.donate), final=True)

    def placed(self, inputs: Sequence[Any]) -> Executable:
        """The executable for where these arguments were put."""
        key = tuple([x.sharding if type(x) is PlacedArray else None for x in inputs])
        found = self.places.get(key)
        if found is None:
            placement = self.traced.place(key)
            with retrace.compiling(self.record):
                found = self.places[key] = the_compiler().compile_placed(self.opened, placement, self.donate)
        return found

    def alive(self) -> bool:
        """True when every borrowed tracer belongs to a trace we are in."""
        around = current_trace().lineage()
        return all(c.owner in around for c in self.consts if isinstance(c, Tracer))


@final
class _Signature:
    """The signature of a jitted function is its function's, also where nobody follows ``__wrapped__``."""

    def __get__(self, instance: Any, owner: Any = None) -> inspect.Signature:
        try:
            return inspect.signature(instance.fun)
        except (AttributeError, TypeError, ValueError):  # the class itself; a function without a signature
            raise AttributeError("__signature__") from None


class Jitted(Generic[P, R]):
    """A function that is traced once per type signature and compiled; made by `jit`.

    >>> import nxjax as nx
    >>> f = nx.jit(lambda x: x + 1)
    >>> isinstance(f, nx.stages.Wrapped), float(f(1.0)), f.trace_count
    (True, 2.0, 1)
    """

    # A slot, for machine code to find: None, or what an executor left there (`Executable.shortcut`).
    __slots__ = ("__dict__", "__weakref__", "_plans")
    __signature__ = _Signature()
    _plans: Any

    __name__: str

    def __init__(
        self,
        fun: Callable[P, R],
        static_argnums: tuple[int, ...],
        static_argnames: tuple[str, ...],
        donate_argnums: tuple[int, ...],
        donate_argnames: tuple[str, ...],
        device: Any,
        inline: bool,
        in_shardings: Any = None,
        out_shardings: Any = None,
    ) -> None:
        functools.update_wrapper(self, fun)
        self.fun: Callable[..., Any] = fun
        self.static_argnums = static_argnums
        self.static_argnames = frozenset(static_argnames)
        self.donate_argnums = donate_argnums
        self.donate_argnames = frozenset(donate_argnames)
        self.device = device
        self.inline = inline
        self.in_shardings = in_shardings
        self.out_shardings = out_shardings
        self._plain = not static_argnums and not static_argnames
        self._entries: dict[Any, _Entry] = {}
        # The entry of the last call of arrays by position.
        self._recent: _Entry | None = None
        self._plans = None
        self.trace_count = 0
        self.history: list[retrace.Signature] = []  # of traces, for `nx.explain_retrace`

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self: Jitted[Concatenate[Any, Q], R], instance: object, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else python_types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {getattr(self.fun, '__qualname__', self.fun)}>"

    def _repr_html_(self) -> str:
        from nxjax.transforms.jit_pages import jitted_page

        return jitted_page(self, [(entry.traced, key[2]) for key, entry in self._entries.items()])

    def __getstate__(self) -> dict[str, Any]:
        """All but the plans: they are this process's, and hold addresses."""
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plans = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        entry = self._recent
        if entry is not None and not kwargs and current_trace() is EVAL:
            types = [x.type for x in args if type(x) is DeviceArray]
            if types == entry.types and len(types) == len(args) and _state() == entry.state:
                out = entry.run([*args], self.device)
                if entry.calls in _TOLD:
                    self._tell(entry, args, kwargs, args)
                return entry.out_tree.unflatten(out)
        mode = current_settings().mode
        if mode is not None and current_settings().disable_jit:
            return self.fun(*args, **kwargs)
        statics = None if self._plain else self.statics(args, kwargs)
        leaves, treedef = tree.flatten((args, kwargs) if statics is None else self.dynamic(args, kwargs))
        try:
            values = [x if isinstance(x, Array) else as_value(x, "jit") for x in leaves]
        except DtypeError as error:
            raise self._no_array(error, args, kwargs, leaves) from None
        types = tuple([x.type for x in values])
        state = _state()
        key = (treedef, types, statics, state)
        entry = self._entries.get(key)
        if entry is None or (entry.borrows and not entry.alive()):
            entry = self._entries[key] = self._trace(args, kwargs, leaves, treedef, types, statics, state)
        trace = current_trace()
        if mode is not None and trace is EVAL and not entry.borrows and the_watcher() is not None:
            out = self._watched(entry, values)
        elif trace is EVAL and entry.direct and _plain(values):
            out = entry.run(values, self.device)
            if entry.calls in _TOLD:
                self._tell(entry, args, kwargs, leaves, frozenset([name for name, _, _ in statics or ()]))
            if entry.flat:
                self._recent = entry
        elif trace is EVAL and not entry.borrows and all(isinstance(x, DeviceArray) for x in values):
            inputs = [*entry.consts, *values]
            out = self._at_place(entry, inputs)
        elif self.inline:
            out = entry.traced.program(*values)
        else:
            out = jit_call(*entry.consts, *values, program=entry.opened, name=self._name())
        return entry.out_tree.unflatten(out)

    def _tell(
        self,
        entry: _Entry,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        statics: frozenset[Any] = frozenset(),
    ) -> None:
        way = entry.way
        assert way is not None
        if not may("plan"):
            return
        program = entry.traced.program
        way.executable.shortcut(
            self,
            Repeated(
                args=args,
                kwargs=kwargs,
                statics=statics,
                leaves=leaves,
                types=entry.types,
                in_tree=entry.traced.in_tree,
                consts=way.leading,
                donate=way.donate,
                out_tree=entry.out_tree,
                out_types=program.out_types,
            ),
        )

    @boundary
    def _watched(self, entry: _Entry, values: list[Any]) -> Sequence[Array]:
        """The results, while somebody looks at everything that runs; arguments live until they have."""
        watcher, inputs = the_watcher(), list[Any]([*entry.consts, *values])
        assert watcher is not None
        if entry.direct and _plain(values):
            executable = the_compiler().compile(entry.opened, device=self.device)
        else:
            key = tuple([x.sharding if type(x) is PlacedArray else None for x in inputs])
            executable = the_compiler().compile_placed(entry.opened, entry.traced.place(key))
        names = entry.traced.asked.names or [f"argument {i}" for i in range(len(values))]
        out = watcher.call(entry.opened, inputs, lambda: executable(inputs), self._name(), names)
        for i in entry.donate:
            inputs[i].delete()
        return out

    @boundary
    def _at_place(self, entry: _Entry, inputs: list[Any]) -> Sequence[Array]:
        out = entry.placed(inputs)(inputs)
        for i in entry.donate:
            inputs[i].delete()
        return out

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these types (arrays or `ShapeDtypeStruct`); gives `Traced`."""
        statics = None if self._plain else self.statics(args, kwargs)
        leaves, treedef = tree.flatten(self.dynamic(args, kwargs))
        try:
            types = tuple(type_of(x, "jit") for x in leaves)
        except DtypeError as error:
            raise self._no_array(error, args, kwargs, leaves) from None
        traced = self._trace(args, kwargs, leaves, treedef, types, statics, _state()).traced
        traced.given = tuple(_given(x) for x in leaves)
        return traced

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """`trace(...).lower()`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget every traced signature and its executable."""
        self._recent = self._plans = None
        self._entries.clear()
        self.history.clear()

    def _cache_size(self) -> int:
        return len(self._entries)

    def _name(self) -> str:
        return getattr(self.fun, "__name__", "function")

    def dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Arguments without the static ones."""
        if self._plain:
            return args, kwargs
        fixed = {i % len(args) for i in self.static_argnums if -len(args) <= i < len(args)}
        return (
            tuple(a for i, a in enumerate(args) if i not in fixed),
            {k: v for k, v in kwargs.items() if k not in self.static_argnames},
        )

    def statics(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The static arguments, as a hashable part of the cache key."""
        found: list[tuple[Any, Any]] = []
        for i in self.static_argnums:
            if -len(args) <= i < len(args):
                found.append((i % len(args), args[i]))
        found += [(k, kwargs[k]) for k in sorted(self.static_argnames & kwargs.keys())]
        for name, value in found:
            try:
                hash(value)
            except TypeError:
                raise StaticArgumentError(
                    f"jit: static argument {name!r} of {self._name()} is not hashable",
                    got=f"{type(value).__name__}: {str(value)[:60]}",
                    expected="a value with __hash__ and __eq__",
                    fix="pass a tuple instead of a list, or make the argument traced",
                ) from None
        return tuple((name, _exactly(value), value) for name, value in found)

    @boundary
    def _trace(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        treedef: tree.TreeDef,
        types: tuple[ArrayType, ...],
        statics: Any,
        state: Any,
    ) -> _Entry:
        if current_settings().no_tracing:
            raise TransformDisabledError(
                f"jit: {self._name()} would be traced, and `no_tracing` is set",
                got=", ".join(map(str, types)),
                fix="call it with arguments of these types before, or see nx.explain_retrace(f)",
            )
        self.trace_count += 1
        begin = perf_counter()
        fixed = {name: value for name, _, value in statics or ()}
        out_trees: list[tree.TreeDef] = []

        def flat(*xs: Array) -> Sequence[Any]:
            if ins:
                xs = tuple(_constrained(x, s) for x, s in zip(xs, ins, strict=True))
            dynamic_args, dynamic_kwargs = tree.unflatten(treedef, xs)
            rest = iter(dynamic_args)
            full = [fixed[i] if i in fixed else next(rest) for i in range(len(args))]
            named = {k: v for k, v in fixed.items() if isinstance(k, str)}
            result = self.fun(*full, **dynamic_kwargs, **named)
            ys, out_tree = tree.flatten(result)
            out_trees.append(tree.in_order(out_tree))
            outs[:] = _shardings(self.out_shardings, result, "jit: out_shardings")
            return [_constrained(y, s) for y, s in zip(ys, outs, strict=True)] if outs else ys

        names = self._leaf_names(args, kwargs)
        names = names if len(names) == len(types) else []
        ins, outs = self._ins(args, kwargs), list[Sharding | None]()
        for i, (s, t) in enumerate(zip(ins, types, strict=False)):
            if s is not None:
                s.check(t.shape, f"jit: in_shardings of argument {names[i] if i < len(names) else i}")
        program = stage(flat, types, self._name(), names)
        donate = self._donated(args, kwargs)
        traced = Traced(program, treedef, out_trees[0], self, donate, Asked(ins, outs, names))
        entry = _Entry(traced, donate, types, state)
        seconds = perf_counter() - begin
        entry.record = retrace.Signature(names, types, treedef, statics, state, user_source(), entry.borrows, seconds)
        retrace.remember(self, entry.record)
        entry.flat = (
            may("recent entry")
            and current_settings().mode is None
            and entry.direct
            and self._plain
            and not kwargs
            and len(args) == len(leaves) == treedef.num_nodes - 3
        )
        return entry

    def _no_array(
        self, error: DtypeError, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
    ) -> DtypeError:
        """The error for an argument that is no array, with its name."""
        names = self._leaf_names(args, kwargs)
        for name, x in zip(names, leaves, strict=False):
            try:
                type_of(x, "jit")
            except DtypeError:
                return DtypeError(
                    f"jit: argument {name} of {self._name()} is not an array",
                    got=error.got,
                    expected=error.expected,
                    fix=error.fix,
                )
        return error

    def _ins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Sharding | None]:
        """What in_shardings says of each flat argument; empty where it was not given."""
        if self.in_shardings is None:
            return []
        dynamic_args, dynamic_kwargs = self.dynamic(args, kwargs)
        if tree.leaves(dynamic_kwargs):
            raise ParameterError(
                "jit: arguments by name cannot be given where there are in_shardings",
                got=sorted(dynamic_kwargs),
                fix="pass them by position",
            )
        wanted = self.in_shardings
        if isinstance(wanted, list):
            wanted = tuple(wanted)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(wanted, tuple) and len(wanted) != len(dynamic_args):  # pyright: ignore[reportUnknownArgumentType]
            raise ParameterError(
                "jit: in_shardings does not fit the arguments",
                got=f"{len(wanted)} entries for {len(dynamic_args)} arguments",  # pyright: ignore[reportUnknownArgumentType]
                expected="one entry per argument that is not static, or one for all",
            )
        return _shardings(wanted, dynamic_args, "jit: in_shardings")

    def _leaf_names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        dynamic_args, dynamic_kwargs = self.dynamic(args, kwargs)
        names: list[str] = []
        try:
            parameters = list(inspect.signature(self.fun).parameters)
        except (TypeError, ValueError):
            parameters = []
        fixed = {i % len(args) for i in self.static_argnums if args and -len(args) <= i < len(args)}
        positions = [i for i in range(len(args)) if i not in fixed]
        for i, arg in zip(positions, dynamic_args, strict=True):
            names += tree.path_names(arg, parameters[i] if i < len(parameters) else f"argument {i}")
        for k in sorted(dynamic_kwargs):
            names += tree.path_names(dynamic_kwargs[k], k)
        return names

    def _donated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        if not self.donate_argnums and not self.donate_argnames:
            return ()
        fixed = {i % len(args) for i in self.static_argnums if args and -len(args) <= i < len(args)}
        wanted = {i % len(args) for i in self.donate_argnums if -len(args) <= i < len(args)}
        flags: list[bool] = []
        for i, arg in enumerate(args):
            if i not in fixed:
                flags += [i in wanted] * len(tree.leaves(arg))
        for k in sorted(kwargs):
            if k not in self.static_argnames:
                flags += [k in self.donate_argnames] * len(tree.leaves(kwargs[k]))
        return tuple(i for i, flag in enumerate(flags) if flag)


def _exactly(value: Any) -> Any:
    """What tells equal static arguments apart: 1, 1.0 and True are different programs, 0.0 and -0.0, and in tuples."""
    kind = type(value)
    if isinstance(value, (float, np.floating)):
        return (kind, math.copysign(1, value)) if not value else kind
    if isinstance(value, (complex, np.complexfloating)):
        return kind, _exactly(value.real), _exactly(value.imag)
    if isinstance(value, tuple):
        return (kind, *map(_exactly, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, frozenset):
        return kind, frozenset((x, _exactly(x)) for x in value)  # pyright: ignore[reportUnknownVariableType]
    return kind


def _plain(values: Sequence[Array]) -> bool:
    """Whether all are concrete and nowhere in particular."""
    for x in values:  # noqa: SIM110 (`all` takes twice the time)
        if type(x) is not DeviceArray:
            return False
    return True


def _state() -> Any:
    """What a program depends on besides its arguments."""
    return axes_in_scope(), current_mesh(), current_settings().call


def _is_sharding(s: Any) -> bool:
    return s is None or isinstance(s, (Sharding, PartitionSpec))


def _shardings(prefix: Any, full: Any, where: str) -> list[Sharding | None]:
    """One entry per leaf of ``full`` from a tree prefix of shardings, specs (on the current mesh), devices and None."""
    if prefix is None:
        return []
    if _is_sharding(prefix) or hasattr(prefix, "platform"):
        found = [prefix] * len(tree.leaves(full))
    else:
        found = tree.broadcast_leaves(prefix, full, where, is_leaf=_is_sharding)
    return [None if s is None else as_sharding(s, where) for s in found]


def _given(x: Any) -> Sharding | None:
    """Where an argument of `trace` was put or will be: an array's own sharding, or a type's."""
    if isinstance(x, ShapeDtypeStruct):
        return x.sharding
    return x.sharding if type(x) is PlacedArray else None


def _constrained(x: Any, sharding: Sharding | None) -> Any:
    """``x`` with its layout written into the program, where other transforms will find it."""
    if not isinstance(sharding, NamedSharding):
        return x
    value = as_value(x, "jit")
    sharding.check(value.shape, "jit: out_shardings")
    return sharding_constraint(value, sharding=sharding)


def _ints(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, Integral) else tuple(value)


def _names(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _resolve(fun: Callable[..., Any], nums: Any, names: Any, what: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same parameters: naming one way names both."""
    try:
        positions, words = _ints(nums), _names(names)
    except TypeError:
        positions, words = (nums,), ()
    if not all(isinstance(i, Integral) for i in positions) or not all(isinstance(w, str) for w in words):
        raise StaticArgumentError(
            f"jit: {what}_argnums and {what}_argnames are of other types", got=f"{nums!r} and {names!r}",
            expected="integers and strings",
        )  # fmt: skip
    if not positions and not words:
        return (), ()
    try:
        parameters = inspect.signature(fun).parameters
    except (TypeError, ValueError):
        return positions, words
    ordered = list(parameters)
    positional = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    keywords = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for i in positions:
        if not variadic and not -len(positional) <= i < len(positional):
            raise StaticArgumentError(
                f"jit: {what}_argnums names no parameter", got=i, expected=f"an index into {positional}"
            )
    for word in words:
        if not keywords and word not in ordered:
            raise StaticArgumentError(
                f"jit: {what}_argnames names no parameter", got=repr(word), expected=f"one of {ordered}"
            )
    more_words = [
        positional[i]
        for i in positions
        if -len(positional) <= i < len(positional)
        and parameters[positional[i]].kind is not inspect.Parameter.POSITIONAL_ONLY
    ]
    more_positions = [positional.index(w) for w in words if w in positional]
    return tuple(dict.fromkeys((*positions, *more_positions))), tuple(dict.fromkeys((*words, *more_words)))


@overload
def jit(
    fun: Callable[P, R],
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Any = None,
    **_: Any,
) -> Jitted[P, R]: ...
@overload
def jit(
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Any = None,
    **_: Any,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Iterable[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Iterable[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: Any = None,
    **unused: Any,
) -> Any:
    """``fun``, traced once per type of its arguments and compiled. Never changes a value, shape or dtype.

    Args:
        fun: a pure function of pytrees. Left out, `jit` is a decorator with options.
        static_argnums, static_argnames: arguments that are Python values to the trace; hashable.
        donate_argnums, donate_argnames: arguments whose memory the call may reuse; they cannot be used afterwards.
        device: where to run; see `nx.devices`.
        inline: leave no call behind in an enclosing trace.
        in_shardings, out_shardings: where arguments are taken to and results are left: a tree prefix of shardings, of
            `PartitionSpec` (on the current mesh) or of None (where they are; what the compiler chooses). An argument
            that was put elsewhere is an error; one that was put nowhere is moved.
        compiler_options: XLA's, taken from programs written for JAX; they have no effect here.

    Returns:
        A callable with `trace`, `lower`, `eval_shape` and `clear_cache`.

    Raises:
        ParameterError: not a function, or an argument of another name.

    >>> import nxjax as nx
    >>> float(jit(lambda x: x * 2)(3.0))
    6.0
    """
    if fun is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            device=device,
            inline=inline,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            backend=backend,
            **unused,
        )
    if not callable(fun):
        raise ParameterError("jit: needs a function", got=described(fun), expected="jit(f)(x), not jit(f(x))")
    unknown = unused.keys() - {"abstracted_axes"}
    if unknown:
        raise ParameterError(f"jit() got an unexpected keyword argument {min(unknown)!r}", expected=", ".join(_OPTIONS))
    nums, names = _resolve(fun, static_argnums, static_argnames, "static")
    donated_nums, donated_names = _resolve(fun, donate_argnums, donate_argnames, "donate")
    place = device if device is not None else backend
    return Jitted(fun, nums, names, donated_nums, donated_names, place, inline, in_shardings, out_shardings)
