"""`jit`: trace once per type of the arguments, compile once per program, then call.

The fast path (outermost trace, known types, nothing put anywhere) is one flatten, one dictionary look-up and one
executable call. Arguments that were put somewhere, and shardings that were asked for, choose among executables of the
same program. Under any other trace the call is bound as one op (`call.jit_call`). How a program is compiled is set from
outside by `trace.core.install_compiler`; this file names no backend.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, final

from nxjax.config import config
from nxjax.errors import ParameterError, ShardingError, StaticArgumentError
from nxjax.ops.sharding import sharding_constraint
from nxjax.trace import core, tree
from nxjax.trace.array import DeviceArray, PlacedArray, as_value, type_of
from nxjax.trace.axes import axes_in_scope
from nxjax.trace.boundary import boundary
from nxjax.trace.core import EVAL, Array, Tracer, current_trace
from nxjax.trace.mesh import current_mesh
from nxjax.trace.program import Program
from nxjax.trace.sharding import NamedSharding, PartitionSpec, Sharding, as_sharding
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, ShapeDtypeStruct
from nxjax.transforms.call import jit_call


class Executable(Protocol):
    """What a backend makes of a program."""

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]: ...

    @property
    def text(self) -> str: ...

    def cost_analysis(self) -> dict[str, float]: ...

    def memory_analysis(self) -> Any: ...

    @property
    def input_shardings(self) -> Sequence[Sharding]: ...

    @property
    def output_shardings(self) -> Sequence[Sharding]: ...


class Compiler(Protocol):
    """What compiles programs; set from outside by `trace.core.install_compiler`."""

    def compile(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> Executable: ...

    def lower(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> str: ...

    def is_placed(self, program: Program, device: Any = None) -> bool: ...

    def place(
        self,
        program: Program,
        shardings: Sequence[Sharding | None],
        *,
        device: Any = None,
        ins: Sequence[Sharding | None] = (),
        outs: Sequence[Sharding | None] = (),
        names: Sequence[str] = (),
    ) -> Any: ...

    def compile_placed(self, program: Program, placement: Any, donate: tuple[int, ...] = ()) -> Executable: ...

    def lower_placed(self, program: Program, placement: Any, donate: tuple[int, ...] = ()) -> str: ...

    def default_sharding(self) -> Sharding: ...


def the_compiler() -> Compiler:
    return core.the_compiler()


@final
class Compiled:
    """A compiled function: callable with arguments of exactly the types it was compiled for."""

    def __init__(self, traced: Traced, executable: Executable) -> None:
        self._traced = traced
        self.executable = executable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dynamic = self._traced.bind(args, kwargs)
        leaves, treedef = tree.flatten(dynamic)
        values = [as_value(x, "compiled call") for x in leaves]
        types = tuple(x.type for x in values)
        wanted = self._traced.program.in_types
        if (
            treedef != self._traced.in_tree
            or len(types) != len(wanted)
            or not all(a.same(b) for a, b in zip(types, wanted, strict=True))
        ):
            raise ParameterError(
                "compiled call: other argument types than it was compiled for", got=types, expected=wanted
            )
        _, consts = self._traced.program.close_over()
        for x, s in zip(values, self.executable.input_shardings[len(consts) :], strict=False):
            if type(x) is PlacedArray and not x.sharding.is_equivalent_to(s, x.ndim):
                raise ShardingError(
                    "compiled call: an argument is elsewhere than it was compiled for",
                    got=x.sharding,
                    expected=s,
                    fix="nx.device_put(x, compiled.input_shardings[0][i])",
                )
        out = self.executable([*consts, *values])  # pyright: ignore[reportArgumentType]
        return tree.unflatten(self._traced.out_tree, out)

    @property
    def input_shardings(self) -> tuple[Any, dict[str, Any]]:
        """Where arguments have to be: shardings in the place of arrays, in ``(args, kwargs)``."""
        opened, consts = self._traced.program.close_over()
        found = self.executable.input_shardings or (the_compiler().default_sharding(),) * len(opened.inputs)
        return tree.unflatten(self._traced.in_tree, list(found[len(consts) :]))

    @property
    def output_shardings(self) -> Any:
        """Where results will be: shardings in the place of arrays."""
        found = self.executable.output_shardings
        count = len(self._traced.program.outputs)
        return tree.unflatten(self._traced.out_tree, list(found or (the_compiler().default_sharding(),) * count))

    def as_text(self) -> str:
        """The executor's own text of the optimized program."""
        return self.executable.text

    def cost_analysis(self) -> dict[str, float]:
        """The executor's estimate, such as ``flops`` and ``bytes accessed``."""
        return self.executable.cost_analysis()

    def memory_analysis(self) -> Any:
        """Bytes of arguments, results and temporaries, where the executor knows."""
        return self.executable.memory_analysis()


@final
class Lowered:
    """A program in the text of its executor, not compiled yet."""

    def __init__(self, traced: Traced, device: Any, donate: tuple[int, ...], placement: Any) -> None:
        self._traced = traced
        self._device = device
        self._donate = donate
        self._placement = placement  # None: the default device

    def as_text(self, dialect: str | None = None) -> str:
        """StableHLO (or the program text, for executors that run it directly)."""
        opened, _ = self._traced.program.close_over()
        if self._placement is not None:
            return the_compiler().lower_placed(opened, self._placement, self._donate)
        return the_compiler().lower(opened, device=self._device, donate=self._donate)

    def compile(self, compiler_options: Any = None) -> Compiled:
        opened, _ = self._traced.program.close_over()
        if self._placement is not None:
            made = the_compiler().compile_placed(opened, self._placement, self._donate)
        else:
            made = the_compiler().compile(opened, device=self._device, donate=self._donate)
        return Compiled(self._traced, made)

    def cost_analysis(self) -> dict[str, float]:
        return self.compile().cost_analysis()


@final
class Traced:
    """A traced function: ``program`` with the trees of arguments and results."""

    def __init__(
        self,
        program: Program,
        in_tree: tree.TreeDef,
        out_tree: tree.TreeDef,
        jitted: Jitted,
        donate: tuple[int, ...],
        asked: _Asked,
    ) -> None:
        self.program = program
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.asked = asked
        self._jitted = jitted
        self._donate = donate
        self.given: tuple[Sharding | None, ...] = ()

    @property
    def device(self) -> Any:
        """Where the function was told to run; None: nowhere in particular."""
        return self._jitted.device

    @property
    def jaxpr(self) -> Program:
        return self.program

    @property
    def out_info(self) -> Any:
        """Results as `ShapeDtypeStruct`."""
        return tree.unflatten(
            self.out_tree, [ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak) for t in self.program.out_types]
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._jitted.dynamic(args, kwargs)

    def lower(self, lowering_platforms: Any = None) -> Lowered:
        opened, consts = self.program.close_over()
        donate = tuple(i + len(consts) for i in self._donate)
        device, placement = self._jitted.device, None
        if self.asked or any(self.given) or the_compiler().is_placed(opened, device):
            placement = self.place([*(None,) * len(consts), *self.given])
        return Lowered(self, device, donate, placement)

    def place(self, given: Sequence[Sharding | None]) -> Any:
        """Where a call takes place whose arguments (consts first) were put as ``given`` says."""
        opened, consts = self.program.close_over()
        asked = self.asked
        return the_compiler().place(
            opened,
            given,
            device=self._jitted.device,
            ins=(*(None,) * len(consts), *asked.ins) if asked.ins else (),
            outs=asked.outs,
            names=[*(f"constant {i}" for i in range(len(consts))), *asked.names],
        )


@final
class _Asked:
    """Shardings that `jit` was asked for, flat; and the names of arguments."""

    __slots__ = ("ins", "names", "outs")

    def __init__(self, ins: Sequence[Sharding | None], outs: Sequence[Sharding | None], names: Sequence[str]) -> None:
        self.ins = tuple(ins)
        self.outs = tuple(outs)
        self.names = tuple(names)

    def __bool__(self) -> bool:
        return any(s is not None for s in (*self.ins, *self.outs))


@final
class _Entry:
    """One traced type signature, and its executable once it was needed."""

    __slots__ = ("borrows", "consts", "direct", "donate", "executable", "opened", "out_tree", "places", "traced")

    def __init__(self, traced: Traced, donate: tuple[int, ...]) -> None:
        self.traced = traced
        self.opened, self.consts = traced.program.close_over()
        self.out_tree = traced.out_tree
        self.donate = tuple(i + len(self.consts) for i in donate)
        self.executable: Executable | None = None
        # A function that closes over tracers of a surrounding trace is good for that trace only.
        self.borrows = any(isinstance(c, Tracer) for c in self.consts)
        self.places: dict[Any, Executable] = {}
        placed = bool(traced.asked) or any(type(c) is PlacedArray for c in self.consts)
        # Whether a call with arguments that are nowhere in particular is one on the default device.
        self.direct = not self.borrows and not placed and not the_compiler().is_placed(self.opened, traced.device)

    def placed(self, inputs: Sequence[Any]) -> Executable:
        """The executable for where these arguments were put."""
        key = tuple([x.sharding if type(x) is PlacedArray else None for x in inputs])
        found = self.places.get(key)
        if found is None:
            placement = self.traced.place(key)
            found = self.places[key] = the_compiler().compile_placed(self.opened, placement, self.donate)
        return found

    def alive(self) -> bool:
        """True when every borrowed tracer belongs to a trace we are in."""
        around = current_trace().lineage()
        return all(c.owner in around for c in self.consts if isinstance(c, Tracer))


class Jitted:
    """A function that is traced once per type signature and compiled; made by `jit`."""

    def __init__(
        self,
        fun: Callable[..., Any],
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
        self.fun = fun
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
        self.trace_count = 0

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {getattr(self.fun, '__qualname__', self.fun)}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.disable_jit:
            return self.fun(*args, **kwargs)
        statics = None if self._plain else self.statics(args, kwargs)
        leaves, treedef = tree.flatten((args, kwargs) if statics is None else self.dynamic(args, kwargs))
        values = [x if isinstance(x, Array) else as_value(x, "jit") for x in leaves]
        types = tuple([x.type for x in values])
        places = (current_mesh(), config.default_device)
        key = (treedef, types, statics, axes_in_scope(), places, config.enable_x64, config.executor)
        entry = self._entries.get(key)
        if entry is None or (entry.borrows and not entry.alive()):
            entry = self._entries[key] = self._trace(args, kwargs, leaves, treedef, key[1], statics)
        trace = current_trace()
        if trace is EVAL and entry.direct and all(type(x) is DeviceArray for x in values):
            if entry.executable is None:
                entry.executable = the_compiler().compile(entry.opened, device=self.device, donate=entry.donate)
            inputs = [*entry.consts, *values] if entry.consts else values
            out: Sequence[Array] = entry.executable(inputs)  # pyright: ignore[reportArgumentType]
            for i in entry.donate:
                inputs[i].delete()  # pyright: ignore[reportAttributeAccessIssue]
        elif trace is EVAL and not entry.borrows and all(isinstance(x, DeviceArray) for x in values):
            inputs = [*entry.consts, *values]
            out = self._at_place(entry, inputs)
        elif self.inline:
            out = entry.traced.program(*values)
        else:
            out = jit_call(*entry.consts, *values, program=entry.opened, name=self._name())
        return tree.unflatten(entry.out_tree, out)

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
        types = tuple(type_of(x, "jit") for x in leaves)
        traced = self._trace(args, kwargs, leaves, treedef, types, statics).traced
        traced.given = tuple(_given(x) for x in leaves)
        return traced

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """`trace(...).lower()`."""
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        """Forget every traced signature and its executable."""
        self._entries.clear()

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
        # 1, 1.0 and True are equal but are different programs.
        return tuple((name, type(value), value) for name, value in found)

    @boundary
    def _trace(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        treedef: tree.TreeDef,
        types: tuple[ArrayType, ...],
        statics: Any,
    ) -> _Entry:
        self.trace_count += 1
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
            out_trees.append(out_tree)
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
        return _Entry(Traced(program, treedef, out_trees[0], self, donate, _Asked(ins, outs, names)), donate)

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


def _ints(value: int | Iterable[int] | None) -> tuple[int, ...]:
    return () if value is None else (value,) if isinstance(value, int) else tuple(value)


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(value)


def _resolve(fun: Callable[..., Any], nums: Any, names: Any, what: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same parameters: naming one way names both."""
    positions, words = _ints(nums), _names(names)
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
    **_: Any,
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

    Returns:
        A callable with `trace`, `lower`, `eval_shape` and `clear_cache`.

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
        )
    if not callable(fun):
        raise ParameterError("jit: needs a function", got=type(fun).__name__)
    nums, names = _resolve(fun, static_argnums, static_argnames, "static")
    donated_nums, donated_names = _resolve(fun, donate_argnums, donate_argnames, "donate")
    place = device if device is not None else backend
    return Jitted(fun, nums, names, donated_nums, donated_names, place, inline, in_shardings, out_shardings)
