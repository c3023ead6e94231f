"""`jit`: trace once per type of the arguments, compile once per program, then call.

What happens to ``f(x)`` is `Jitted.__call__`: one flatten, one dictionary look-up, and an entry that answers. On
concrete arrays that is one executable call (`jit_entry`), where the arguments are; under any other trace the call is
bound as one op (`call.jit_call`). Shortcuts (`trace.shortcuts`) come before: calls of arrays by position ask whether
types and settings are those of the last one, and an executor may answer repeated calls before they get here at all
(`Executable.shortcut`). How a program is compiled is set from outside by `trace.core.install_compiler`; this file names
no backend.
"""

from __future__ import annotations

import functools
import inspect
import types as python_types
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, final, overload

from nxjax.config import current_settings
from nxjax.errors import DtypeError, ParameterError, StaticArgumentError, TransformDisabledError, described, user_source
from nxjax.trace import tree
from nxjax.trace.array import DeviceArray, as_value, type_of
from nxjax.trace.boundary import boundary
from nxjax.trace.core import EVAL, Array, current_trace, the_watcher
from nxjax.trace.sharding import Sharding
from nxjax.trace.shortcuts import may
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms import retrace
from nxjax.transforms.call import jit_call
from nxjax.transforms.jit_entry import Entry, are_plain, scope
from nxjax.transforms.jit_options import OPTIONS, constrained, exactly, given_sharding, resolve, shardings_of
from nxjax.transforms.jit_stages import Asked, Lowered, Traced

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

# Signatures of one function that are kept: beyond that the older half goes, so that ever new lengths or static values
# do not fill the memory.
_MOST: Final = 4096


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
        self._entries: dict[Any, Entry] = {}
        # The entry of the last call of arrays by position.
        self._recent: Entry | None = None
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
            if types == entry.types and len(types) == len(args) and scope() == entry.state:
                out = entry.run([*args], self.device)
                entry.tell(self, args, kwargs, args)
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
        state = scope()
        key = (treedef, types, statics, state)
        entry = self._entries.get(key)
        if entry is None or (entry.borrows and not entry.alive()):
            entry = self._entries[key] = self._trace(args, kwargs, leaves, treedef, types, statics, state)
            if len(self._entries) > _MOST:
                for old in list(self._entries)[: _MOST // 2]:
                    self._entries.pop(old, None)  # another thread may have been here
        trace = current_trace()
        if mode is not None and trace is EVAL and not entry.borrows and the_watcher() is not None:
            out = entry.watched(values, self.device, self._name())
        elif trace is EVAL and entry.direct and are_plain(values):
            out = entry.run(values, self.device)
            entry.tell(self, args, kwargs, leaves, frozenset([name for name, _, _ in statics or ()]))
            if entry.flat:
                self._recent = entry
        elif trace is EVAL and not entry.borrows and all(isinstance(x, DeviceArray) for x in values):
            out = entry.at_place(values)
        elif self.inline:
            out = entry.traced.program(*values)
        else:
            out = jit_call(*entry.consts, *values, program=entry.opened, name=self._name())
        return entry.out_tree.unflatten(out)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these types (arrays or `ShapeDtypeStruct`); gives `Traced`."""
        statics = None if self._plain else self.statics(args, kwargs)
        leaves, treedef = tree.flatten(self.dynamic(args, kwargs))
        try:
            types = tuple(type_of(x, "jit") for x in leaves)
        except DtypeError as error:
            raise self._no_array(error, args, kwargs, leaves) from None
        traced = self._trace(args, kwargs, leaves, treedef, types, statics, scope()).traced
        traced.given = tuple(given_sharding(x) for x in leaves)
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
        return tuple((name, exactly(value), value) for name, value in found)

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
    ) -> Entry:
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
                xs = tuple(constrained(x, s) for x, s in zip(xs, ins, strict=True))
            dynamic_args, dynamic_kwargs = tree.unflatten(treedef, xs)
            rest = iter(dynamic_args)
            full = [fixed[i] if i in fixed else next(rest) for i in range(len(args))]
            named = {k: v for k, v in fixed.items() if isinstance(k, str)}
            result = self.fun(*full, **dynamic_kwargs, **named)
            ys, out_tree = tree.flatten(result)
            out_trees.append(tree.in_order(out_tree))
            outs[:] = shardings_of(self.out_shardings, result, "jit: out_shardings")
            return [constrained(y, s) for y, s in zip(ys, outs, strict=True)] if outs else ys

        names = self._leaf_names(args, kwargs)
        names = names if len(names) == len(types) else []
        ins, outs = self._ins(args, kwargs), list[Sharding | None]()
        for i, (s, t) in enumerate(zip(ins, types, strict=False)):
            if s is not None:
                s.check(t.shape, f"jit: in_shardings of argument {names[i] if i < len(names) else i}")
        program = stage(flat, types, self._name(), names)
        donate = self._donated(args, kwargs)
        traced = Traced(program, treedef, out_trees[0], self, donate, Asked(ins, outs, names))
        entry = Entry(traced, donate, types, state)
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
        return shardings_of(wanted, dynamic_args, "jit: in_shardings")

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
        raise ParameterError(f"jit() got an unexpected keyword argument {min(unknown)!r}", expected=", ".join(OPTIONS))
    nums, names = resolve(fun, static_argnums, static_argnames, "static")
    donated_nums, donated_names = resolve(fun, donate_argnums, donate_argnames, "donate")
    place = device if device is not None else backend
    return Jitted(fun, nums, names, donated_nums, donated_names, place, inline, in_shardings, out_shardings)
