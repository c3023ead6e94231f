"""Program -> IpuProgram: walks the equations and hands each to its rule, its expansion, or the error.

Knows no op but by its name in the table of rules. Values on the way are `VariableView`s, or `LazyOp` ones:
elementwise work that has not been written yet, so that whole chains become one vertex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError, UnsupportedOpsError
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.kernels.ipu.spec import CTYPES
from nxjax.lower.ipu import wide
from nxjax.lower.ipu.builder import Builder, IpuOptions, UnsupportedEquation, no_dtype
from nxjax.lower.ipu.fuse import Fuser
from nxjax.lower.ipu.keys import as_words, is_key, on_words, view_type
from nxjax.lower.ipu.lazy import LazyOp, Value
from nxjax.lower.ipu.program import IpuProgram, Variable, VariableView
from nxjax.lower.ipu.rules import RULES
from nxjax.lower.ipu.rules.refused import REASONS
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.narrow import narrow
from nxjax.lower.passes.order import in_order
from nxjax.ops.base import Elementwise
from nxjax.ops.quant_base import QuantizedOp
from nxjax.trace.program import Equation, Literal, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.transforms.inline import inlined

# Elementwise, but for operands that may be scalars.
_BESIDE_SCALARS: Final = frozenset(("clamp", "select_n"))


def lower(
    program: Program, system: IpuSystem, options: IpuOptions | None = None, donate: Sequence[int] = (), name: str = ""
) -> IpuProgram:
    """``program`` as a program of tiles.

    Args:
        program: consts become constants in tile memory.
        system: what it runs on.
        options: the user's choices.
        donate: numbers of inputs that may be overwritten: an output of the same type stays in their place between runs.
        name: of the result.

    Raises:
        UnsupportedOpsError: equations that no rule serves; all of them, with the user's source lines.

    >>> from nxjax.kernels.ipu.chip import system
    >>> p = lower(nx.make_jaxpr(lambda x: nx.tanh(x) * 2 + 1)(np.ones(6, np.float32)), system("bow"))
    >>> [type(s).__name__ for s in p.steps]
    ['Execute']
    """
    return _Lowering(system, options or IpuOptions()).lower(program, donate, name or program.name)


@final
class _Lowering:
    def __init__(self, system: IpuSystem, options: IpuOptions) -> None:
        self.b = Builder(system, options, self.run)
        self.fuser = Fuser(self.b)
        self.refused: dict[Any, tuple[str, UnsupportedEquation, Any]] = {}
        # Quantized ops by their lines: what their expansions ask for is not what the user wrote.
        self.quantized: dict[str, Equation] = {}

    def lower(self, program: Program, donate: Sequence[int], name: str) -> IpuProgram:
        b = self.b
        program = in_order(dead_code_eliminated(inlined(program)))
        self.quantized = {str(e.source): e for e in program.equations if isinstance(e.op, QuantizedOp)}
        if self.quantized:
            # What quantized ops compute from weights is computed now.
            program = dead_code_eliminated(narrow(program))
        inputs = [self._input(v, i) for i, v in enumerate(program.inputs)]
        values = self._values(program, [v.view() for v in inputs])
        self._forced(values)
        if self.refused:
            raise self._error(program.name)
        views = [self.fuser.force_one(v) for v in values]
        aliases = _matched(program, views, inputs, donate)
        outputs: list[Variable] = []
        writes: list[tuple[VariableView, VariableView]] = []
        for i, view in enumerate(views):
            if i in aliases:
                state = inputs[aliases[i]]
                state.role = "state"
                outputs.append(state)
                if view.variable is not state or not view.whole:
                    writes.append((view, VariableView(state, 0, view.shape, state.view().strides)))
                continue
            taken = view.variable.role == "output" and view.variable.shape != view.shape
            if not view.whole or taken or view.variable.role in ("input", "constant", "state"):
                pieces = view.variable.pieces if view.whole else b.variable(view.shape, view.dtype).pieces
                view = b.materialize(view, pieces, f"output {i}")
            # Row-major elements have no shape of their own.
            view.variable.shape = view.shape
            view.variable.role = "output"
            outputs.append(view.variable)
        if writes:
            # What is read from a state that another write replaces is saved first.
            targets = {id(t.variable) for _, t in writes}
            safe = [(b.materialize(s, t.variable.pieces), t) for s, t in writes if id(s.variable) in targets]
            b.copy([*safe, *((s, t) for s, t in writes if id(s.variable) not in targets)], "state")
        return IpuProgram(name, b.system, tuple(inputs), tuple(outputs), tuple(b.steps), b.functions, aliases)

    def _input(self, v: Var, i: int) -> Variable:
        t = view_type(v.type)
        return self._checked(lambda: self.b.variable(t.shape, t.dtype, None, f"input {i}", "input"), "input", t, None)

    def _forced(self, values: Sequence[Value]) -> None:
        for v in values:
            if wide.is_wide(v.dtype):
                self._refuse(
                    "the result", UnsupportedEquation(*no_dtype(v.dtype)), v.source if isinstance(v, LazyOp) else None
                )
                continue
            try:
                self.fuser.force([v] if self.refused else values)
            except UnsupportedEquation as error:
                if isinstance(v, LazyOp):
                    self._refuse(v.name, error, v.source)

    # --- walking ---

    def run(self, b: Builder, program: Program, xs: Sequence[VariableView]) -> list[VariableView]:
        """The program on views, everything that it gives written."""
        values = self._values(program, xs)
        self.fuser.force(values)
        return [self.fuser.force_one(v) for v in values]

    def _values(self, program: Program, xs: Sequence[Value]) -> list[Value]:
        program = dead_code_eliminated(inlined(program))
        uses: Counter[Var] = Counter(a for e in program.equations for a in e.inputs if isinstance(a, Var))
        uses.update(a for a in program.outputs if isinstance(a, Var))
        env: dict[Var, Value] = {}

        def bind(v: Var, value: Value) -> None:
            env[v] = value
            if isinstance(value, LazyOp):
                value.refs += uses[v]

        for v, x in zip(program.inputs, xs, strict=True):
            bind(v, x)
        for v, x in zip(program.constvars, program.values, strict=True):
            bind(v, self._constant(x))

        def value(a: Var | Literal) -> Value:
            return env[a] if isinstance(a, Var) else self._constant(a.value)

        for e in program.equations:
            args = [value(a) for a in e.inputs]
            # What a rule or an expansion writes comes from the same line.
            with self.b.at(e.op.name, e.source, e.scope), replaying(e.scope, e.source or self.b.source):
                ys = self._apply(e, args)
            for v, y in zip(e.outputs, ys, strict=True):
                bind(v, y)
            for x in args:
                if isinstance(x, LazyOp):
                    x.refs -= 1
        found = [value(a) for a in program.outputs]
        for y in found:
            # The caller counts its own uses when it binds them.
            if isinstance(y, LazyOp):
                y.refs -= 1
        return found

    def _constant(self, x: Any) -> Value:
        data = as_words(np.asarray(x.numpy()))
        if wide.is_wide(data.dtype):
            found = wide.constant(self.b, data)
            if found is not None:
                return found
        dtype = data.dtype
        return self._checked(lambda: self.b.constant(data), "constant", view_type(x.type), None, dtype)

    def _checked(self, make: Any, what: str, t: Any, source: Any, dtype: Any = None) -> Any:
        try:
            return make()
        except UnsupportedEquation as error:
            self._refuse(what, error, source)
            stand_in = self.b.variable(t.shape, np.float32)
            return stand_in.view() if dtype is not None else stand_in

    def _refuse(self, what: str, error: UnsupportedEquation, source: Any) -> None:
        whole = self.quantized.get(str(source))
        if whole is not None and "float64" in error.reason:
            what, error = whole.op.name, _of_quantized(whole)
        self.refused.setdefault((what, error.reason, str(source)), (what, error, source))

    def _apply(self, e: Equation, args: Sequence[Value]) -> Sequence[Value]:
        try:
            found = self._applied(e, args)
        except UnsupportedEquation as error:
            self._refuse(e.op.name, error, e.source or self.b.source)
            return [self.b.variable(view_type(v.type).shape, np.float32).view() for v in e.outputs]
        for y, v in zip(found, e.outputs, strict=True):
            assert y.shape == view_type(v.type).shape, (e.op.name, y.shape, v.type)
        return found

    def _applied(self, e: Equation, args: Sequence[Value]) -> Sequence[Value]:
        op = e.op
        if any(is_key(a.type) for a in (*e.inputs, *e.outputs)):
            program = on_words(e)
            if program is not None:
                return self._values(program, args)
        if any(wide.is_wide(a.type.dtype) for a in (*e.inputs, *e.outputs)) and not op.nested:
            found = self._wide(e, args)
            if found is not None:
                return found
        lazy = self.fuser.elementwise(e, args)
        if lazy is not None:
            return [lazy]
        rule = RULES.get(op.name)
        if rule is not None and rule.supports(e):
            self.fuser.force(args)
            ys = rule(self.b, e, *(self.fuser.force_one(x) for x in args))
            return list(ys) if isinstance(ys, tuple) else [ys]
        if op.name in REASONS:
            raise UnsupportedEquation(*REASONS[op.name])
        if op.has("expand"):
            program = stage(
                lambda *xs: op.expand(*xs, **e.params) if op.multi else [op.expand(*xs, **e.params)],
                [a.type for a in e.inputs],
                op.name,
            )
            if isinstance(op, QuantizedOp):
                self.quantized[str(e.source or self.b.source)] = e
            return self._values(program, args)
        for a in (*e.inputs, *e.outputs):
            if not is_key(a.type) and a.type.dtype.name not in CTYPES:
                raise UnsupportedEquation(*no_dtype(a.type.dtype))
        raise UnsupportedEquation("there is no rule for it")

    def _wide(self, e: Equation, args: Sequence[Value]) -> Sequence[Value] | None:
        """An equation on 64-bit values; None if it is one for an expression, or has an expansion."""
        b, out = self.b, e.outputs[0].type
        if e.op.name == "convert_element_type" and isinstance(args[0], LazyOp) and args[0].dtype == wide.FLOAT:
            whole = wide.as_integer(b, args[0]) if out.dtype.kind in "iu" else None
            if whole is not None:
                return [whole if out.dtype == whole.dtype else wide.converted(b, whole, out.dtype)]
            single = wide.rounded(args[0])
            if single is None:
                raise UnsupportedEquation(*no_dtype(wide.FLOAT))
            return [single if out.dtype == wide.SINGLE else wide.converted(b, single, out.dtype)]
        elementwise = isinstance(e.op, Elementwise) or e.op.name in _BESIDE_SCALARS
        if wide.FLOAT in (out.dtype, *(a.type.dtype for a in e.inputs)) and elementwise:
            # Nothing computes it: it is there to be rounded.
            args = [self._filled(x, out.shape) for x in args]
            y = LazyOp(e.op.name, tuple(args), e.params, out.shape, out.dtype, e.source or b.source, e.scope)
            for x in args:
                if isinstance(x, LazyOp):
                    x.refs += 1
            return [y]
        if elementwise:
            shaped = [self._filled(x, out.shape) if wide.is_wide(x.dtype) else x for x in args]
            lazy = self.fuser.elementwise(e, shaped)
            return None if lazy is None else [lazy]
        if e.op.name not in RULES:
            return None
        if args and isinstance(args[0], LazyOp):
            constant = wide.moved(e, args[0])
            if constant is not None:
                return [constant]
        bounds = wide.result_bounds(e, [wide.bounds_of(x) for x in args if wide.is_wide(x.dtype)])
        wide_out = any(v.type.dtype in wide.INTEGERS for v in e.outputs)
        if wide_out and wide.in_words(e) and any(wide.narrowed(b, x) is None for x in args if isinstance(x, LazyOp)):
            low, high = (
                self._applied(
                    wide.narrow_equation(e), [wide.word(b, x, i) if wide.is_wide(x.dtype) else x for x in args]
                )
                for i in range(2)
            )
            return [wide.joined(b, lo, hi, v.type.dtype) for lo, hi, v in zip(low, high, e.outputs, strict=True)]
        if wide_out and (bounds is None or bounds[0] < wide.LOW or bounds[1] > wide.HIGH):
            raise UnsupportedEquation(
                f"tiles have no {out.dtype.name}, and its values are not known to fit int32",
                "use int32, or clip the values so that they do",
            )
        ys = self._applied(wide.narrow_equation(e), [self._stored(x) for x in args])
        return [
            wide.converted(b, y, v.type.dtype, bounds) if wide.is_wide(v.type.dtype) else y
            for y, v in zip(ys, e.outputs, strict=True)
        ]

    def _stored(self, x: Value) -> Value:
        """A value as tiles hold it: what is 64 bits wide in 32."""
        if not wide.is_wide(x.dtype):
            return x
        assert isinstance(x, LazyOp)
        found = wide.narrowed(self.b, x)
        if found is None:
            raise UnsupportedEquation(*no_dtype(x.dtype))
        return found

    def _filled(self, x: Value, shape: tuple[int, ...]) -> Value:
        """A scalar beside arrays, in their shape."""
        if x.shape == shape:
            return x
        if isinstance(x, LazyOp) and x.name == "literal":
            return LazyOp(x.name, (), x.params, shape, x.dtype, x.source, x.scope)
        view = self.fuser.force_one(self._stored(x))
        spread = VariableView(view.variable, view.offset, shape, (0,) * len(shape))
        return wide.converted(self.b, spread, x.dtype, wide.bounds_of(x)) if wide.is_wide(x.dtype) else spread

    def _error(self, name: str) -> LoweringError:
        rows = list(self.refused.values())
        lines = [
            f"{what}: {error.reason}; {error.fix}{f' (at {source}: {source.text})' if source else ''}"
            for what, error, source in rows
        ]
        error = UnsupportedOpsError(
            f"ipu: {name or 'the program'} holds {len(rows)} equation{'s' * (len(rows) > 1)} that tiles cannot run",
            got="\n            ".join(lines),
            expected="ops of docs/ops.md on dtypes of tile memory",
            fix=rows[0][1].fix,
            source=rows[0][2],
        )
        error.rows = tuple(rows)
        return error


def _of_quantized(e: Equation) -> UnsupportedEquation:
    """Why tiles do not run a quantized op, in its user's terms."""
    grid = e.params.get("x_grid")
    if grid is not None and grid.dtype.itemsize > 1:
        return UnsupportedEquation("sums of 16-bit activations take more than 32 bits", 'quantize with "int8"')
    return UnsupportedEquation(
        "scales of weights that are inputs take float64, which tiles have not",
        "make the weights constants: constants=(0,) of nx.compile; train quantized weights on another device",
    )


def _matched(
    program: Program, views: Sequence[VariableView], inputs: Sequence[Variable], donate: Sequence[int]
) -> dict[int, int]:
    """Output number -> donated input of its type, each once, in order."""
    found: dict[int, int] = {}
    free = list(donate)
    for i, view in enumerate(views):
        for n in free:
            if inputs[n].shape == view.shape and inputs[n].dtype == view.dtype:
                found[i] = n
                free.remove(n)
                break
    return found
