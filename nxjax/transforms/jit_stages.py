"""The stages of a jitted function, each to be looked at: `Traced`, `Lowered`, `Compiled`; and who compiles.

How a program is compiled is set from outside by `trace.core.install_compiler`; this file names no backend.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, final

from nxjax.config import config
from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import ExecutionError, ParameterError, ShardingError
from nxjax.trace import core, tree
from nxjax.trace.array import DeviceArray, as_value, copied, donate_arguments, place_of
from nxjax.trace.pages import render
from nxjax.trace.program import Program
from nxjax.trace.reproducible import check_compiled
from nxjax.trace.sharding import Sharding
from nxjax.trace.shortcuts import is_allowed
from nxjax.trace.types import ArrayType, ShapeDtypeStruct

if TYPE_CHECKING:
    from nxjax.transforms.jit import Jitted


class Repeated(NamedTuple):
    """A call that a compiled program has answered before and may be asked for again: see `ExecutableProtocol.shortcut`.

    Attributes:
        args, kwargs: the arguments.
        statics: which of them, by position or name, are Python values to the program.
        leaves, in_tree: leaves of the others, as they were given, and the structure of ``(args, kwargs)`` without them.
        types: of the leaves.
        consts: arrays that the program takes before them.
        donate: positions, among consts and leaves, of arguments that are gone afterwards.
        out_tree, out_types: of the results.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    statics: frozenset[Any]
    leaves: Sequence[Any]
    types: Sequence[ArrayType]
    in_tree: tree.TreeDef
    consts: Sequence[Any]
    donate: tuple[int, ...]
    out_tree: tree.TreeDef
    out_types: Sequence[ArrayType]


class ExecutableProtocol(Protocol):
    """A program that a backend compiled, and the contract of its calls.

    The contract holds for every way of a call: this method, a `shortcut`, or the executable of `bind_leading`.
    ``tests/ways.py`` lists all ways, and ``tests/transforms/test_jit_ways.py`` tests each.

    Arguments: one array per input, of its type; the caller has checked that. Their memory may be strided, unaligned,
    read-only or a mapped file. It is not written to. After the call only a result may keep it.
    Results: one array per output, of its type, weak or strong. Each is a separate array and may be deleted alone.
    No result shares memory that code outside of nxjax may write to: such memory is copied.
    Donation: a donated argument may be overwritten if nothing else sees its memory: no other array or argument, no
    view of NumPy's, no running call. The array releases the memory before that is checked. The caller deletes all
    donated arguments before the call and passes others in their place. Either all are deleted or, if the call is
    refused, none, also when a signal's handler raises.
    Lifetime: results outlive arguments, executable and function. A deleted argument is a RuntimeError, before
    anything runs. Functions called from inside may delete arguments, collect garbage and forget programs.
    Threads: any number of calls at a time. If another thread deletes an argument meanwhile, the call reads its old
    value or raises that error.
    Settings: those of the calling thread at the time of the call chose the program and the executable.
    Errors: an exception of a user's function that runs inside is raised, or is the cause of an `ExecutionError`.
    KeyboardInterrupt and SystemExit pass unchanged. Lack of memory is a `MemoryLimitError`. The next call works.
    The same bits: all calls of one executable with equal arguments give the same bits, in any way, on any number of
    threads, the signs of NaNs included.
    """

    def __call__(self, args: Sequence[DeviceArray]) -> list[DeviceArray]:
        """The results for ``args``, flat."""
        ...

    @property
    def text(self) -> str: ...

    def cost_analysis(self) -> dict[str, float]: ...

    def memory_analysis(self) -> Any: ...

    @property
    def input_shardings(self) -> Sequence[Sharding]: ...

    @property
    def output_shardings(self) -> Sequence[Sharding]: ...

    def prepare(self) -> None:
        """Do all work now that could wait for the first runs: the user compiles ahead of time."""
        ...

    def ready(self) -> None:
        """Make the code of the next call now, if that was left for it."""
        ...

    def bind_leading(self, held: Sequence[Any]) -> tuple[ExecutableProtocol, list[DeviceArray]] | None:
        """An executable for calls whose first arguments are always ``held``, and what it takes in their place.

        None: knowing them makes no difference.
        """
        ...

    def shortcut(self, jitted: Jitted, call: Repeated) -> None:
        """Told, now and then, of a repeated call: may leave in ``jitted._plans`` a quicker way to answer the next."""
        ...


class Compiler(Protocol):
    """What compiles programs; set from outside by `trace.core.install_compiler`."""

    def compile(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> ExecutableProtocol: ...

    def lower(self, program: Program, *, device: Any = None, donate: tuple[int, ...] = ()) -> str: ...

    def text(self, program: Program, dialect: str, *, device: Any = None, donate: tuple[int, ...] = ()) -> str: ...

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

    def compile_placed(self, program: Program, placement: Any, donate: tuple[int, ...] = ()) -> ExecutableProtocol: ...

    def lower_placed(self, program: Program, placement: Any, donate: tuple[int, ...] = ()) -> str: ...

    def default_sharding(self) -> Sharding: ...


def current_compiler() -> Compiler:
    return core.current_compiler()


@final
class Compiled:
    """A compiled function. Call it with arguments of exactly the types that it was compiled for.

    >>> compiled = nx.jit(lambda x: x + 1).lower(nx.ones(3)).compile()
    >>> compiled(nx.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(self, traced: Traced, executable: ExecutableProtocol) -> None:
        self._traced = traced
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree
        self.executable = executable
        self._promised = bool(config.reproducible)
        _, consts = traced.program.hoist_consts()
        self._leading: Sequence[Any] = tuple(map(copied, consts))
        if is_allowed("held arguments") and all(type(x) is DeviceArray and x.place is None for x in self._leading):
            held = executable.bind_leading(self._leading)
            if held is not None:
                self.executable, self._leading = held
        self.executable.prepare()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_compiled(self._promised)
        dynamic = self._traced.bind(args, kwargs)
        leaves, treedef = tree.flatten(dynamic)
        values = [as_value(x, "compiled call") for x in leaves]
        traced = next((x for x in values if isinstance(x, core.Tracer)), None)
        if traced is not None:
            raise ParameterError(
                "compiled call: takes arrays, not what a transform traces",
                got=f"{type(traced).__name__} of {traced.type}",
                expected="arrays",
                fix="hand the jitted function to `jit`, `grad` or `vmap`, not what `compile()` gave",
            )
        types = tuple(x.type for x in values)
        wanted = self._traced.program.in_types
        if (
            treedef != self._traced.in_tree
            or len(types) != len(wanted)
            or not all(a.typematch(b) for a, b in zip(types, wanted, strict=True))
        ):
            raise ParameterError(
                "compiled call: other argument types than it was compiled for", got=types, expected=wanted
            )
        for x, s in zip(values, self.executable.input_shardings[len(self._leading) :], strict=False):
            if (place := place_of(x)) is not None and not place.is_equivalent_to(s, x.ndim):
                raise ShardingError(
                    "compiled call: an argument is elsewhere than it was compiled for",
                    got=place,
                    expected=s,
                    fix="nx.device_put(x, compiled.input_shardings[0][i])",
                )
        if self._traced.donate:
            values = donate_arguments(values, self._traced.donate)
        out = self.executable([*self._leading, *values])  # pyright: ignore[reportArgumentType]
        return self._traced.out_tree.unflatten(out)

    def __repr__(self) -> str:
        return self._traced.described("compiled")

    @property
    def args_info(self) -> Any:
        """As `Lowered.args_info`."""
        return self._traced.args_info

    @property
    def out_info(self) -> Any:
        """As `Lowered.out_info`."""
        return self._traced.out_info

    @property
    def input_shardings(self) -> tuple[Any, dict[str, Any]]:
        """The required shardings of arguments, in ``(args, kwargs)``."""
        hoisted, consts = self._traced.program.hoist_consts()
        found = self.executable.input_shardings or (current_compiler().default_sharding(),) * len(hoisted.inputs)
        return tree.unflatten(self._traced.in_tree, list(found[len(consts) :]))

    @property
    def output_shardings(self) -> Any:
        """The shardings of results."""
        found = self.executable.output_shardings
        count = len(self._traced.program.outputs)
        return tree.unflatten(self._traced.out_tree, list(found or (current_compiler().default_sharding(),) * count))

    def as_text(self) -> str:
        """The executor's text of the optimized program."""
        return self.executable.text

    def _repr_html_(self) -> str:
        return render("compiled_page", self)

    def cost_analysis(self) -> dict[str, float]:
        """The executor's estimate, such as ``flops`` and ``bytes accessed``."""
        return self.executable.cost_analysis()

    def memory_analysis(self) -> Any:
        """Bytes of arguments, results and temporaries, if the executor knows them."""
        return self.executable.memory_analysis()


@final
class Lowered:
    """A lowered program, not compiled yet.

    >>> lowered = nx.jit(lambda x: x + 1).lower(nx.ones(3))
    >>> lowered.out_info, lowered.args_info
    (ShapeDtypeStruct(shape=(3,), dtype=float32), ((ShapeDtypeStruct(shape=(3,), dtype=float32),), {}))
    """

    def __init__(self, traced: Traced, device: Any, donate: tuple[int, ...], placement: Any) -> None:
        self._traced = traced
        self._device = device
        self._donate = donate
        self._placement = placement  # None: the default device
        self.in_tree, self.out_tree = traced.in_tree, traced.out_tree

    def __repr__(self) -> str:
        return self._traced.described("lowered")

    @property
    def args_info(self) -> Any:
        """The types of the arguments, as ``(args, kwargs)``."""
        return self._traced.args_info

    @property
    def out_info(self) -> Any:
        """The types of the results."""
        return self._traced.out_info

    def as_text(self, dialect: str | None = None) -> str:
        """The executor's text of the program, or the text of a stage that ``dialect`` names.

        Args:
            dialect: ``program`` (nxjax's own), ``stablehlo``, and for the executor ``cpu``: ``simplified`` (the program
                that is lowered), ``tape`` (its steps and memory), ``llvm`` and ``asm`` (its kernels).

        Raises:
            ParameterError: no such stage.
        """
        hoisted, _ = self._traced.program.hoist_consts()
        if dialect is not None and (self._placement is None or dialect == "program"):
            return current_compiler().text(hoisted, dialect, device=self._device, donate=self._donate)
        if self._placement is not None:
            return current_compiler().lower_placed(hoisted, self._placement, self._donate)
        return current_compiler().lower(hoisted, device=self._device, donate=self._donate)

    def compiler_ir(self, dialect: str | None = None) -> str | None:
        """The text of `as_text`, or None if there is no such stage, as in JAX."""
        try:
            return self.as_text(dialect)
        except ParameterError:
            return None

    def compile(self, compiler_options: Mapping[str, Any] | None = None) -> Compiled:
        """The executable. ``compiler_options`` are XLA's, without effect here.

        Raises:
            ExecutionError: an option that cannot be one of XLA's.
        """
        if wrong := [name for name in compiler_options or {} if not name.startswith("xla_")]:
            raise ExecutionError(
                "compile: unknown compiler options", got=", ".join(wrong), expected="names of XLA's: xla_.."
            )
        hoisted, _ = self._traced.program.hoist_consts()
        if self._placement is not None:
            made = current_compiler().compile_placed(hoisted, self._placement, self._donate)
        else:
            made = current_compiler().compile(hoisted, device=self._device, donate=self._donate)
        return Compiled(self._traced, made)

    def _repr_html_(self) -> str:
        return render("lowered_page", self)

    def cost_analysis(self) -> dict[str, float]:
        return self.compile().cost_analysis()


@final
class Traced:
    """A traced function: ``program`` with the trees of arguments and results.

    >>> traced = nx.jit(lambda x: x + 1).trace(nx.ones(3))
    >>> [e.op.name for e in traced.program.equations]
    ['broadcast_in_dim', 'add']
    """

    def __init__(
        self,
        program: Program,
        in_tree: tree.TreeDef,
        out_tree: tree.TreeDef,
        jitted: Jitted,
        donate: tuple[int, ...],
        asked: CallInfo,
    ) -> None:
        self.program = program
        self.in_tree = in_tree
        self.out_tree = out_tree
        self.asked = asked
        self._jitted = jitted
        self.donate = donate
        self.given: tuple[Sharding | None, ...] = ()

    def described(self, how: str) -> str:
        """``<how f: types -> types>``."""
        types = [", ".join(map(str, ts)) for ts in (self.program.in_types, self.program.out_types)]
        return f"<{how} {self.program.name or 'function'}: {types[0]} -> {types[1]}>"

    def __repr__(self) -> str:
        return self.described("traced")

    @property
    def device(self) -> Any:
        """The device given to the function; None: no particular one."""
        return self._jitted.device

    @property
    def jaxpr(self) -> Program:
        return self.program

    @property
    def args_info(self) -> Any:
        """Arguments as `ShapeDtypeStruct`, in ``(args, kwargs)``."""
        return tree.unflatten(
            self.in_tree, [ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak) for t in self.program.in_types]
        )

    @property
    def out_info(self) -> Any:
        """Results as `ShapeDtypeStruct`."""
        return tree.unflatten(
            self.out_tree, [ShapeDtypeStruct(t.shape, t.dtype, weak_type=t.weak) for t in self.program.out_types]
        )

    def _repr_html_(self) -> str:
        return self.program._repr_html_()

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._jitted.arguments.dynamic(args, kwargs)

    def check_donated(self) -> None:
        """Warn of donated arguments whose memory no result takes: none is left that is as large."""
        free = Counter(t.size * t.dtype.itemsize for t in self.program.out_types)
        unused: list[ArrayType] = []
        for type in (self.program.in_types[i] for i in self.donate):
            free[nbytes := type.size * type.dtype.itemsize] -= 1
            if free[nbytes] < 0:
                unused.append(type)
        if unused:
            types, name = ", ".join(map(str, unused)), self.program.name or "the function"
            warnings.warn(
                f"Some donated buffers were not usable: {types}. No result of {name} is as large: leave them out of "
                "donate_argnums",
                stacklevel=3,
            )

    def lower(self, lowering_platforms: Any = None) -> Lowered:
        self.check_donated()
        hoisted, consts = self.program.hoist_consts()
        donate = tuple(i + len(consts) for i in self.donate)
        device, placement = self._jitted.device, None
        if self.asked or any(self.given) or current_compiler().is_placed(hoisted, device):
            placement = self.place([*(None,) * len(consts), *self.given])
        return Lowered(self, device, donate, placement)

    def place(self, given: Sequence[Sharding | None]) -> Any:
        """The place of a call whose arguments (consts first) have the places ``given``."""
        hoisted, consts = self.program.hoist_consts()
        asked = self.asked
        return current_compiler().place(
            hoisted,
            given,
            device=self._jitted.device,
            ins=(*(None,) * len(consts), *asked.ins) if asked.ins else (),
            outs=asked.outs,
            names=[*(f"constant {i}" for i in range(len(consts))), *asked.names],
        )


@final
class CallInfo:
    """Shardings that `jit` was asked for, flat; and the names of arguments."""

    __slots__ = ("ins", "names", "outs")

    def __init__(self, ins: Sequence[Sharding | None], outs: Sequence[Sharding | None], names: Sequence[str]) -> None:
        self.ins = tuple(ins)
        self.outs = tuple(outs)
        self.names = tuple(names)

    def __bool__(self) -> bool:
        return any(s is not None for s in (*self.ins, *self.outs))
