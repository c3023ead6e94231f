"""Writes StableHLO text: what an op's ``stablehlo`` rule is given as ``b``.

Knows ops by their rule only. `StablehloBuilder` appends lines to one function body; regions (of reduce, while, sort,
...) are functions of typed SSA names written in place; a called program becomes a function of the module, once per
content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.order import in_order
from nxjax.lower.stablehlo import types as mlir
from nxjax.lower.stablehlo.communication import CommunicationBuilder, Manual
from nxjax.lower.stablehlo.sharding import Partitioning, Shardings, partitioning
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.program import Literal, Program, Var
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType

Row = Callable[..., Any]


@final
class SsaName:
    """An SSA name with its type.

    Attributes:
        op, sources: the name of the op that made it, and of what; "" and none for arguments of the program and of
            regions, `CALLED` and none for those of functions that it calls.
    """

    __slots__ = ("name", "op", "sources", "type")

    def __init__(self, name: str, type: ArrayType) -> None:
        self.name = name
        self.type = type
        self.op = ""
        self.sources: Sequence[SsaName] = ()

    def __str__(self) -> str:
        return self.name


Refs = Sequence[SsaName]
CALLED: Final = "call"

# Of booleans they are the same by StableHLO's specification; XLA folds a sum of two constants as if it were "xor".
_LOGICAL: Final = {"add": "or", "multiply": "and"}


@final
class ModuleBuilder:
    """Functions written so far, the device's own rows, and the Python functions that compiled code calls.

    Attributes:
        rows: op name -> ``row(b, out, *xs, **params)``, tried before the op's portable rule; a row may give None to
            pass.
        partitioning: how many devices the module is for.
        callbacks: Python functions that the compiled code calls by their position here.
        located: write the user's line and scope beside each operation.
    """

    def __init__(
        self, rows: dict[str, Row] | None = None, partitioning: Partitioning | None = None, located: bool = False
    ) -> None:
        self.located = located
        self.rows = rows or {}
        self.partitioning = partitioning or Partitioning(1, None)
        self.callbacks: list[Callable[..., Any]] = []
        self._programs: list[Program] = []
        self._functions: list[str] = []
        self._names: dict[Any, str] = {}
        self._adopted: dict[Any, Any] = {}
        self._used: set[str] = set()

    def function(
        self,
        program: Program,
        name: str,
        public: bool = False,
        arg_attrs: Sequence[str] = (),
        out_attrs: Sequence[str] = (),
        manual: Manual | None = None,
    ) -> str:
        """Write ``program`` as a function, once; gives its symbol. Attributes are per argument and per result."""
        key = (id(program), manual)
        if key in self._names:
            return self._names[key]
        symbol = self._names[key] = self._fresh(name)
        body = StablehloBuilder(self, manual=manual)
        args = [SsaName(f"%arg{i}", t) for i, t in enumerate(program.in_types)]
        for a in args:
            a.op = "" if public else CALLED
        results = body.program(program, args)
        header = ", ".join(f"{a}: {t}" for a, t in zip(args, _with_attributes(args, arg_attrs), strict=True))
        given = ", ".join(_with_attributes(results, out_attrs))
        out = ", ".join(mlir.tensor(r.type) for r in results)
        lines = [f"  func.func {'public' if public else 'private'} @{symbol}({header}) -> ({given}) {{"]
        lines += body.lines
        names = ", ".join(r.name for r in results)
        lines.append(f"    return {names} : {out}" if results else "    return")
        lines.append("  }")
        self._functions.append("\n".join(lines))
        self._programs.append(program)  # id() keys must not be reused while the module is being written
        return symbol

    def adopt(self, key: Any, name: str, make: Callable[[str], tuple[str, Any]]) -> Any:
        """Functions that come as text, once per ``key``.

        ``make`` gets a prefix for their symbols and gives their text, and whatever `adopt` is to give.
        """
        if key not in self._adopted:
            text, self._adopted[key] = make(self._fresh(name))
            self._functions.append(text)
        return self._adopted[key]

    def _fresh(self, name: str) -> str:
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "function"
        symbol, n = base, 0
        while symbol in self._used:
            n += 1
            symbol = f"{base}_{n}"
        self._used.add(symbol)
        return symbol

    def text(self, name: str) -> str:
        return "\n".join([f"module @{name} {{", *self.partitioning.lines(), *reversed(self._functions), "}", ""])


def _placed(line: str, place: str) -> str:
    """An operation's last line with its place; heads of regions and blocks, and what has one already, as they are."""
    inside = line.endswith(("{", ":")) or (line.endswith(")") and " loc(" in line)
    return line if inside else line + place


def _with_attributes(xs: Refs, attrs: Sequence[str]) -> list[str]:
    """The types of ``xs``, with their attributes where there are some."""
    if not any(attrs):
        return [mlir.tensor(x.type) for x in xs]
    return [f"{mlir.tensor(x.type)} {{{a}}}" if a else mlir.tensor(x.type) for x, a in zip(xs, attrs, strict=True)]


class StablehloBuilder(CommunicationBuilder):
    """Appends operations to a function body."""

    def __init__(
        self,
        module: ModuleBuilder,
        indent: str = "    ",
        counter: list[int] | None = None,
        manual: Manual | None = None,
    ) -> None:
        self.module = module
        self.lines: list[str] = []
        self.indent = indent
        self.counter = counter if counter is not None else [0]
        self.outer: SsaName | None = None
        self._constants: dict[Any, SsaName] = {}
        self.manual: Manual | None = manual

    # --- text of attributes ---

    ints: Final = staticmethod(mlir.ints)
    bools: Final = staticmethod(mlir.bools)
    tensor: Final = staticmethod(mlir.tensor)
    element: Final = staticmethod(mlir.element)

    # --- writing ---

    def fresh(self) -> str:
        """A new SSA name."""
        self.counter[0] += 1
        return f"%{self.counter[0] - 1}"

    def line(self, text: str) -> None:
        """One line of text as it is."""
        self.lines.append(self.indent + text)

    def simple(self, name: str, xs: Refs, out: ArrayType) -> SsaName:
        """``stablehlo.name`` in its short form: all operands and the result of one type, or one operand of another."""
        if out.dtype == dtypes.bool_:
            name = _LOGICAL.get(name, name)
        ref = SsaName(self.fresh(), out)
        names = ", ".join([x.name for x in xs])
        t = mlir.tensor(out)
        source = mlir.tensor(xs[0].type)
        type_text = t if source == t else f"({', '.join(mlir.tensor(x.type) for x in xs)}) -> {t}"
        self.lines.append(f"{self.indent}{ref.name} = stablehlo.{name} {names} : {type_text}")
        return ref

    def op(
        self,
        name: str,
        xs: Refs,
        out: Any,
        attrs: str = "",
        regions: Sequence[tuple[Sequence[ArrayType], Callable[..., Any]]] = (),
    ) -> Any:
        """Any operation in its generic form.

        Args:
            name: with its dialect, such as ``stablehlo.gather``.
            xs: operands.
            out: a type, or a tuple of types for several results.
            attrs: ``key = value`` pairs.
            regions: per region, the argument types and a function from `SsaName` arguments to `SsaName` results.
        """
        many = isinstance(out, tuple)
        only: Any = out
        outs: tuple[ArrayType, ...] = out if many else (out,)  # pyright: ignore[reportUnknownVariableType]
        ref = self.fresh()
        left = f"{ref}:{len(outs)} = " if len(outs) > 1 else f"{ref} = " if outs else ""
        head = f'{left}"{name}"({", ".join(x.name for x in xs)})'
        if regions:
            self.line(head + " ({")
            for i, (arg_types, body) in enumerate(regions):
                if i:
                    self.line("}, {")
                self.region(arg_types, body)
            head = "})"
        types = f"({', '.join(mlir.tensor(x.type) for x in xs)}) -> "
        outs_text = mlir.tensor(outs[0]) if len(outs) == 1 else f"({', '.join(mlir.tensor(t) for t in outs)})"
        self.line(f"{head}{' {' + attrs + '}' if attrs else ''} : {types}{outs_text}")
        if not many:
            return SsaName(ref, only)
        return tuple(SsaName(f"{ref}#{i}" if len(outs) > 1 else ref, t) for i, t in enumerate(outs))

    def inner(self, manual: Manual | None = None) -> StablehloBuilder:
        """A builder for a block inside this one."""
        return StablehloBuilder(self.module, self.indent + "  ", self.counter, manual or self.manual)

    def region(self, arg_types: Sequence[ArrayType], body: Callable[..., Any]) -> None:
        """A block with its arguments, the operations of ``body`` and a return of its results."""
        args = [SsaName(self.fresh(), t) for t in arg_types]
        if args:
            self.line(f"^bb0({', '.join(f'{a}: {mlir.tensor(a.type)}' for a in args)}):")
        inner = self.inner()
        result = body(inner, *args)
        results: Refs = result if isinstance(result, (tuple, list)) else [result]
        self.lines += inner.lines
        outs = ", ".join(mlir.tensor(r.type) for r in results)
        inner_return = f'"stablehlo.return"({", ".join(r.name for r in results)}) : ({outs}) -> ()'
        self.lines.append(f"{self.indent}  {inner_return}")

    # --- common operations ---

    def constant(self, value: Any, type: ArrayType) -> SsaName:
        """A constant of ``type``; a scalar fills it. The same constant is written once per block."""
        data = np.asarray(value) if not isinstance(value, np.ndarray) else value
        if type.dtype in dtypes.NUMERIC:
            data = data.astype(type.dtype)
        elif type.dtype == dtypes.key:
            data = data.view(np.uint64) if data.dtype == dtypes.key else data
        elif type.dtype == dtypes.float0:
            data = np.asarray(False)
        stands_for = {dtypes.key: dtypes.uint64, dtypes.float0: dtypes.bool_}
        text = mlir.dense(data, stands_for.get(type.dtype, type.dtype))
        key = (text, type.shape, type.dtype)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = SsaName(self.fresh(), type)
            self.line(f"{found} = stablehlo.constant {text} : {mlir.tensor(type)}")
        return found

    def compare(self, direction: str, x: SsaName, y: SsaName, out: ArrayType, total_order: bool = False) -> SsaName:
        """``EQ NE LT LE GT GE`` of two operands."""
        dtype = x.type.dtype
        if dtype in dtypes.INEXACT:
            kind = "TOTALORDER" if total_order else "FLOAT"
        else:
            kind = "SIGNED" if dtype in dtypes.SIGNED else "UNSIGNED"
        ref = SsaName(self.fresh(), out)
        types = f"({mlir.tensor(x.type)}, {mlir.tensor(y.type)}) -> {mlir.tensor(out)}"
        self.line(f"{ref} = stablehlo.compare {direction}, {x}, {y}, {kind} : {types}")
        return ref

    def convert(self, x: SsaName, dtype: dtypes.DType) -> SsaName:
        """``x`` by value in another dtype."""
        return x if x.type.dtype == dtype else self.op("stablehlo.convert", (x,), ArrayType(x.type.shape, dtype))

    def broadcast(self, x: SsaName, shape: tuple[int, ...], dims: Sequence[int] = ()) -> SsaName:
        return self.op(
            "stablehlo.broadcast_in_dim",
            (x,),
            ArrayType(shape, x.type.dtype),
            f"broadcast_dimensions = {mlir.ints(dims)}",
        )

    def reduce(self, hlo: str, x: SsaName, init: SsaName, axes: Sequence[int], out: ArrayType) -> SsaName:
        """Reduction by one binary operation."""
        ref = SsaName(self.fresh(), out)
        dims = ", ".join(map(str, axes))
        types = f"({mlir.tensor(x.type)}, {mlir.tensor(init.type)}) -> {mlir.tensor(out)}"
        self.line(
            f"{ref} = stablehlo.reduce({x} init: {init}) applies stablehlo.{hlo} across dimensions = [{dims}] : {types}"
        )
        return ref

    # --- programs ---

    def apply(self, op: Op, out: Any, xs: Refs, params: dict[str, Any]) -> Any:
        """One op: the device's row, else its portable rule, else its expansion."""
        row = self.module.rows.get(op.name)
        if row is not None:
            found = row(self, out, *xs, **params)
            if found is not None:
                return found
        if op.has("stablehlo"):
            return op.stablehlo(self, out, *xs, **params)
        if op.has("expand"):
            return self.inline(op.expand, xs, params, op.multi)
        raise LoweringError(f"{op.name}: has no lowering to StableHLO", got=", ".join(repr(x.type) for x in xs))

    def inline(
        self, function: Callable[..., Any], xs: Refs, params: dict[str, Any] | None = None, multi: bool | None = None
    ) -> Any:
        """The operations of a function of values, written in place."""
        many: list[bool] = []

        def flat(*values: Any) -> Sequence[Any]:
            y = function(*values, **(params or {}))
            many.append(isinstance(y, (tuple, list)))
            return y if many[-1] else [y]

        results = self.program(stage(flat, [x.type for x in xs]), xs, written=False)
        return tuple(results) if many[0] else results[0]

    def program(self, program: Program, args: Refs, written: bool = True) -> list[SsaName]:
        """The equations of a program, written in place. Those of a rule (not ``written`` by a user) have no place."""
        located = self.module.located and written
        program = dead_code_eliminated(program)
        env: dict[Var, SsaName] = dict(zip(program.inputs, args, strict=True))
        for var, value in zip(program.constvars, program.values, strict=True):
            env[var] = self.constant(value.numpy(), var.type)

        def ref(a: Var | Literal) -> SsaName:
            return env[a] if isinstance(a, Var) else self.constant(a.value.numpy(), a.type)

        for e in program.equations:
            xs = [ref(a) for a in e.inputs]
            out = tuple(v.type for v in e.outputs) if e.op.multi else e.outputs[0].type
            start = len(self.lines)
            try:
                result = self.apply(e.op, out, xs, e.params)
            except NotImplementedError as error:
                if isinstance(error, LoweringError):
                    raise
                raise LoweringError(f"{e.op.name}: has no lowering to StableHLO", source=e.source) from error
            if located and e.source is not None:
                place = f" loc({mlir.location(e.source.file, e.source.line, f'{e.scope}/{e.op.name}'.strip('/'))})"
                self.lines[start:] = [_placed(line, place) for line in self.lines[start:]]
            results: Refs = result if e.op.multi else (result,)
            for r in results:
                if not r.op and r not in xs:  # an op may give an operand as it is, or what ops of its own have made
                    r.op, r.sources = e.op.name, xs
            env.update(zip(e.outputs, results, strict=True))
        return [ref(a) for a in program.outputs]

    def call(self, program: Program, xs: Refs, name: str) -> tuple[SsaName, ...]:
        """A call of a function of the module."""
        return self.call_symbol(self.module.function(program, name, manual=self.manual), xs, program.out_types)

    def call_symbol(self, symbol: str, xs: Refs, outs: Sequence[ArrayType]) -> tuple[SsaName, ...]:
        """A call of a function that is known by its symbol."""
        types = f"({', '.join(mlir.tensor(x.type) for x in xs)}) -> ({', '.join(mlir.tensor(t) for t in outs)})"
        called = f"func.call @{symbol}({', '.join(x.name for x in xs)}) : {types}"
        if not outs:
            self.line(called)
            return ()
        ref = self.fresh()
        left = f"{ref}:{len(outs)}" if len(outs) > 1 else ref
        self.line(f"{left} = {called}")
        return tuple(SsaName(f"{ref}#{i}" if len(outs) > 1 else ref, t) for i, t in enumerate(outs))


def lower(
    program: Program,
    name: str = "",
    rows: dict[str, Row] | None = None,
    donate: Sequence[int] = (),
    in_shardings: Shardings | None = None,
    out_shardings: Shardings | None = None,
    located: bool = False,
    devices: Sequence[Any] | None = None,
) -> tuple[str, list[Callable[..., Any]]]:
    """The StableHLO module of ``program`` (function ``main``), and the Python functions that it calls back.

    Args:
        rows: see `ModuleBuilder`.
        donate: positions of arguments whose memory results may take.
        in_shardings, out_shardings: per argument and per result a sharding, or None where the compiler chooses. Where
            these or the program itself name several devices, the module is for as many partitions (see
            `sharding.partitioning`), which Shardy's attributes in it describe.
        located: write the user's line and scope beside each operation.
        devices: the devices of the partitions, in order; by default in the order of the first mesh that is named. With
            a single one the module is for it alone, whatever meshes the program names.
    """
    if devices is None:
        spread = partitioning(program, in_shardings or (), out_shardings or ())
    else:
        spread = Partitioning(len(devices), tuple(devices))
    module = ModuleBuilder(rows, spread, located)
    arg_attrs = [""] * len(program.inputs)
    out_attrs = [""] * len(program.outputs)
    if spread.size > 1:
        _note_shardings(spread, arg_attrs, in_shardings, program.in_types)
        _note_shardings(spread, out_attrs, out_shardings, program.out_types)
    for i in donate:
        arg_attrs[i] = ", ".join(filter(None, ("jax.buffer_donor = true", arg_attrs[i])))
    module.function(in_order(dead_code_eliminated(program)), "main", True, arg_attrs, out_attrs)
    return module.text("".join(c if c.isalnum() else "_" for c in name or program.name or "program")), module.callbacks


def _note_shardings(
    spread: Partitioning, attrs: list[str], shardings: Shardings | None, types: Sequence[ArrayType]
) -> None:
    for i, (s, t) in enumerate(zip(shardings or (None,) * len(types), types, strict=True)):
        attrs[i] = spread.attribute(s, t.ndim)
