"""Program -> IpuProgram: walks the equations and hands each to its rule, its expansion, or the error.

Knows no op but by its name in the table of rules. Values on the way are `View`s, or `Lazy` ones: elementwise work that
has not been written yet, so that whole chains become one vertex.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import LoweringError, UnsupportedOpsError
from nxjax.kernels.ipu.chip import System
from nxjax.lower.ipu.builder import Builder, Options, Unsupported, no_dtype
from nxjax.lower.ipu.fuse import Fuser, Lazy, Value
from nxjax.lower.ipu.keys import as_words, is_key, on_words, view_type
from nxjax.lower.ipu.program import IpuProgram, Variable, View
from nxjax.lower.ipu.rules import RULES
from nxjax.lower.ipu.rules.refused import REASONS
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.lower.passes.order import in_order
from nxjax.trace.program import Equation, Literal, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.transforms.inline import inlined


def lower(
    program: Program, system: System, options: Options | None = None, donate: Sequence[int] = (), name: str = ""
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

    >>> import nxjax as nx
    >>> from nxjax.kernels.ipu.chip import system
    >>> p = lower(nx.make_jaxpr(lambda x: nx.tanh(x) * 2 + 1)(np.ones(6, np.float32)), system("bow"))
    >>> [type(s).__name__ for s in p.steps]
    ['Execute']
    """
    return _Lowering(system, options or Options()).lower(program, donate, name or program.name)


@final
class _Lowering:
    def __init__(self, system: System, options: Options) -> None:
        self.b = Builder(system, options, self.run)
        self.fuser = Fuser(self.b)
        self.refused: dict[Any, tuple[str, Unsupported, Any]] = {}

    def lower(self, program: Program, donate: Sequence[int], name: str) -> IpuProgram:
        b = self.b
        program = in_order(dead_code_eliminated(inlined(program)))
        inputs = [self._input(v, i) for i, v in enumerate(program.inputs)]
        values = self._values(program, [v.view() for v in inputs])
        self._forced(values)
        if self.refused:
            raise self._error(program.name)
        views = [self.fuser.force_one(v) for v in values]
        aliases = _matched(program, views, inputs, donate)
        outputs: list[Variable] = []
        writes: list[tuple[View, View]] = []
        for i, view in enumerate(views):
            if i in aliases:
                state = inputs[aliases[i]]
                state.role = "state"
                outputs.append(state)
                if view.variable is not state or not view.whole:
                    writes.append((view, View(state, 0, view.shape, state.view().strides)))
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
            try:
                self.fuser.force([v] if self.refused else values)
            except Unsupported as error:
                if isinstance(v, Lazy):
                    self._refuse(v.name, error, v.source)

    # --- walking ---

    def run(self, b: Builder, program: Program, xs: Sequence[View]) -> list[View]:
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
            if isinstance(value, Lazy):
                value.refs += uses[v]

        for v, x in zip(program.inputs, xs, strict=True):
            bind(v, x)
        for v, x in zip(program.consts, program.values, strict=True):
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
                if isinstance(x, Lazy):
                    x.refs -= 1
        found = [value(a) for a in program.outputs]
        for y in found:
            # The caller counts its own uses when it binds them.
            if isinstance(y, Lazy):
                y.refs -= 1
        return found

    def _constant(self, x: Any) -> View:
        data = as_words(np.asarray(x.numpy()))
        dtype = data.dtype
        return self._checked(lambda: self.b.constant(data), "constant", view_type(x.type), None, dtype)

    def _checked(self, make: Any, what: str, t: Any, source: Any, dtype: Any = None) -> Any:
        try:
            return make()
        except Unsupported as error:
            self._refuse(what, error, source)
            stand_in = self.b.variable(t.shape, np.float32)
            return stand_in.view() if dtype is not None else stand_in

    def _refuse(self, what: str, error: Unsupported, source: Any) -> None:
        self.refused.setdefault((what, error.reason, str(source)), (what, error, source))

    def _apply(self, e: Equation, args: Sequence[Value]) -> Sequence[Value]:
        try:
            found = self._applied(e, args)
        except Unsupported as error:
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
        lazy = self.fuser.elementwise(e, args)
        if lazy is not None:
            return [lazy]
        rule = RULES.get(op.name)
        if rule is not None and rule.supports(e):
            self.fuser.force(args)
            ys = rule(self.b, e, *(self.fuser.force_one(x) for x in args))
            return list(ys) if isinstance(ys, tuple) else [ys]
        if op.name in REASONS:
            raise Unsupported(*REASONS[op.name])
        if op.has("expand"):
            program = stage(
                lambda *xs: op.expand(*xs, **e.params) if op.multi else [op.expand(*xs, **e.params)],
                [a.type for a in e.inputs],
                op.name,
            )
            return self._values(program, args)
        for a in (*e.inputs, *e.outputs):
            if a.type.dtype.name in ("float64", "bfloat16", "int64", "uint64", "complex64", "complex128"):
                raise Unsupported(*no_dtype(a.type.dtype))
        raise Unsupported("there is no rule for it")

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


def _matched(
    program: Program, views: Sequence[View], inputs: Sequence[Variable], donate: Sequence[int]
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
