"""`jit`: trace once per type of the arguments, compile once per program, then call.

What happens to ``f(x)`` is `Jitted.__call__`, from the settings to the executable; its shortcuts have the names of
`trace.shortcuts`. Each step has a file: `jit_options` and `jit_arguments` (what `jit` was told), `jit_trace` (the
program), `jit_entry` (how it is called), `jit_stages` (what can be looked at on the way), `call` (the op of a call that
is traced itself). How a program is compiled is set from outside by `trace.core.install_compiler`; this file names no
backend.
"""

from __future__ import annotations

import functools
import inspect
import types as python_types
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, final, overload

from nxjax.config import current_settings
from nxjax.errors import DtypeError, ParameterError, described
from nxjax.trace import tree
from nxjax.trace.annotations import DeviceLike, PyTree
from nxjax.trace.array import DeviceArray, as_value, type_of
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import EVAL, Array, current_trace, current_watcher
from nxjax.trace.pages import render
from nxjax.trace.wrapping import wraps
from nxjax.transforms import retrace
from nxjax.transforms.jit_arguments import Arguments
from nxjax.transforms.jit_entry import Entry, are_uncommitted, trace_context
from nxjax.transforms.jit_options import OPTIONS, given_sharding, resolve_argnums
from nxjax.transforms.jit_stages import Lowered, Traced
from nxjax.transforms.jit_trace import TracedCall, traced

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

# How many signatures of one function are kept. Beyond that the older half is dropped: new lengths and static values
# must not fill the memory.
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

    >>> f = nx.jit(lambda x: x + 1)
    >>> isinstance(f, nx.stages.Wrapped), float(f(1.0)), f.trace_count
    (True, 2.0, 1)
    """

    # A slot, for machine code to find: None, or what an executor left there (`ExecutableProtocol.shortcut`).
    __slots__ = ("__dict__", "__weakref__", "_plans")
    __signature__ = _Signature()
    _plans: Any

    __name__: str

    def __init__(self, arguments: Arguments, device: Any, inline: bool, out_shardings: Any = None) -> None:
        wraps(arguments.fun)(self)
        self.fun = arguments.fun
        self.arguments = arguments
        self.device = device
        self.inline = inline
        self.out_shardings = out_shardings
        self._plain = arguments.are_plain
        self._entries: dict[Any, Entry] = {}
        # The entry of the last call of arrays by position.
        self._recent: Entry | None = None
        self._plans = None
        self.trace_count = 0
        self.history: list[retrace.TraceRecord] = []  # of traces, for `nx.explain_retrace`

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self: Jitted[Concatenate[Any, Q], R], instance: object, owner: Any = None) -> Callable[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else python_types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {getattr(self.fun, '__qualname__', self.fun)}>"

    def _repr_html_(self) -> str:
        return render("jitted_page", self, [(entry.traced, key[2]) for key, entry in self._entries.items()])

    def __getstate__(self) -> dict[str, Any]:
        """All but the plans: they are this process's, and hold addresses."""
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plans = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        # Shortcut "plan": a call that the executor knows from `_plans` is answered before it gets here.
        # Shortcut "recent entry": arrays by position, of the types and in the state of the last such call.
        entry = self._recent
        if entry is not None and not kwargs and current_trace() is EVAL:
            types = [x.type for x in args if type(x) is DeviceArray and x.place is None]
            if types == entry.types and len(types) == len(args) and trace_context() == entry.state:
                out = entry.run([*args], self.device)
                entry.offer_shortcut(self, args, kwargs, args)
                return entry.out_tree.unflatten(out)
        # Settings.
        mode = current_settings().mode
        if mode is not None and current_settings().disable_jit:
            return self.fun(*args, **kwargs)
        # Tree and types.
        statics = None if self._plain else self.arguments.statics(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs) if statics is None else self.arguments.dynamic(args, kwargs))
        try:
            values = [x if isinstance(x, Array) else as_value(x, "jit") for x in leaves]
        except DtypeError as error:
            raise self.arguments.no_array(error, args, kwargs, leaves) from None
        types = tuple([x.type for x in values])
        # Program: one of each tree, types, static arguments and state.
        state = trace_context()
        key = (in_tree, types, statics, state)
        entry = self._entries.get(key)
        if entry is None or (entry.captures_tracers and not entry.is_valid()):
            entry = self._entries[key] = self._entry(TracedCall(args, kwargs, in_tree, types, statics, state))
        # Outside of transforms an executable runs: watched, on the default device, or where the arguments are. The
        # shortcut "held arguments" is in `Entry.run`; "first run" and "hurried code" are in the executable. Inside a
        # transform nothing runs: the trace gets the equations of the program, or one equation that holds it.
        trace = current_trace()
        if mode is not None and trace is EVAL and not entry.captures_tracers and current_watcher() is not None:
            out = entry.run_watched(values, self.device, self.arguments.name)
        elif trace is EVAL and entry.direct and are_uncommitted(values):
            out = entry.run(values, self.device)
            entry.offer_shortcut(self, args, kwargs, leaves, frozenset([name for name, _, _ in statics or ()]))
            if entry.flat:
                self._recent = entry
        elif trace is EVAL and not entry.captures_tracers and all(isinstance(x, DeviceArray) for x in values):
            out = entry.run_placed(values)
        elif self.inline:
            out = entry.traced.program(*values)
        else:
            from nxjax.transforms.call import jit_call

            out = jit_call(*entry.consts, *values, program=entry.hoisted, name=self.arguments.name)
        return entry.out_tree.unflatten(out)

    def ready(self, *args: Any) -> None:
        """Trace and compile for arguments like these, by position: the next such call only runs."""
        statics = None if self._plain else self.arguments.statics(args, {})
        leaves, in_tree = tree.flatten((args, {}) if statics is None else self.arguments.dynamic(args, {}))
        types = tuple(as_value(x, "jit").type for x in leaves)
        state = trace_context()
        key = (in_tree, types, statics, state)
        if key not in self._entries:
            self._entries[key] = self._entry(TracedCall(args, {}, in_tree, types, statics, state))
        self._entries[key].ready(self.device)

    @api_boundary
    def _entry(self, call: TracedCall) -> Entry:
        """``call``, traced."""
        if len(self._entries) >= _MOST:
            for old in list(self._entries)[: _MOST // 2]:
                self._entries.pop(old, None)  # another thread may have been here
        begin = perf_counter()
        entry = Entry(traced(self, call), call)
        entry.record = retrace.TraceRecord(
            call, entry.traced.asked.names, entry.captures_tracers, perf_counter() - begin
        )
        retrace.record_trace(self, entry.record)
        return entry

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for arguments of these types (arrays or `ShapeDtypeStruct`); gives `Traced`."""
        statics = None if self._plain else self.arguments.statics(args, kwargs)
        leaves, in_tree = tree.flatten(self.arguments.dynamic(args, kwargs))
        try:
            types = tuple(type_of(x, "jit") for x in leaves)
        except DtypeError as error:
            raise self.arguments.no_array(error, args, kwargs, leaves) from None
        found = self._entry(TracedCall(args, kwargs, in_tree, types, statics, trace_context())).traced
        found.given = tuple(given_sharding(x) for x in leaves)
        return found

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

    @property
    def in_shardings(self) -> Any:
        """The given shardings of arguments."""
        return self.arguments.in_shardings

    @property
    def static_argnums(self) -> tuple[int, ...]:
        return self.arguments.static_argnums


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
    device: DeviceLike = None,
    backend: str | None = None,
    inline: bool = False,
    in_shardings: PyTree = None,
    out_shardings: PyTree = None,
    compiler_options: Mapping[str, Any] | None = None,
    **unused: PyTree,
) -> Any:
    """``fun``, traced once per type of its arguments and compiled. Never changes a value, shape or dtype.

    Args:
        fun: a pure function of pytrees. Left out, `jit` is a decorator with options.
        static_argnums, static_argnames: arguments that stay Python values during tracing; hashable.
        donate_argnums, donate_argnames: arguments whose memory the call may reuse; they cannot be used afterwards.
        device: where to run; see `nx.devices`.
        inline: make no call in an enclosing trace.
        in_shardings, out_shardings: shardings of arguments and results: a tree prefix of shardings, of `PartitionSpec`
            (on the current mesh) or of None (as they are; the compiler's choice). An argument that was put elsewhere is
            an error. One that was not put on a device is moved.
        compiler_options: XLA's, accepted for JAX programs, without effect.

    Returns:
        A callable with `trace`, `lower`, `eval_shape` and `clear_cache`.

    Raises:
        ParameterError: not a function, or an unknown argument.

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
    nums, names = resolve_argnums(fun, static_argnums, static_argnames, "static")
    donated_nums, donated_names = resolve_argnums(fun, donate_argnums, donate_argnames, "donate")
    arguments = Arguments(fun, nums, frozenset(names), donated_nums, frozenset(donated_names), in_shardings)
    return Jitted(arguments, device if device is not None else backend, inline, out_shardings)
