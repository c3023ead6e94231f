"""The immutable Program: typed equations in order, and how to run and check one.

Knows ops only through their contract. `nx.make_jaxpr` returns a Program; every transform and every lowering reads one.
Text form in `text`, making one in `stage`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any, Final, TypeVar, final

import numpy as np

from nxjax.config import config
from nxjax.config.digest import digest
from nxjax.config.forks import cached_property
from nxjax.errors import MemoryLimitError, ParameterError, ProgramError, Source
from nxjax.trace.core import EVAL, Array, Arrays, Op, Trace, current_trace, run_in_trace
from nxjax.trace.kinds import NO_FUNCTIONS, check_params
from nxjax.trace.pages import render
from nxjax.trace.scope import replaying
from nxjax.trace.types import ArrayType

T = TypeVar("T")
_ABSENT: Final = object()
# Bytes: what addresses of today's processors reach.
_MOST: Final = 1 << 47
# The key under which a program keeps that it was checked; it never changes after that.
_CHECKED: Final = "checked"


@final
class Var:
    """A variable: a type and an identity.

    >>> program = nx.make_jaxpr(lambda x: x * 2)(nx.numpy.ones(3))
    >>> [v.type for v in program.inputs]
    [f32[3]]
    """

    __slots__ = ("__weakref__", "type")

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    @property
    def aval(self) -> ArrayType:
        return self.type

    def __repr__(self) -> str:
        return f"Var({self.type})"


def _text() -> Any:
    """How programs are written, loaded when the first one is."""
    from nxjax.trace import text

    return text


@final
class Literal:
    """A scalar written into the program.

    >>> program = nx.make_jaxpr(lambda x: x * 2)(nx.numpy.ones(3))
    >>> [type(a).__name__ for e in program.equations for a in e.inputs]
    ['Literal', 'Var', 'Var']
    """

    __slots__ = ("type", "value")

    def __init__(self, value: Array) -> None:
        self.value = value
        self.type = value.type

    @property
    def aval(self) -> ArrayType:
        return self.type

    @property
    def val(self) -> Array:
        return self.value

    def __repr__(self) -> str:
        return _text().literal_text(self)


Atom = Var | Literal


def subprograms(params: dict[str, Any]) -> Iterator[Program]:
    """The programs among an op's parameters, in parameter order."""
    for value in params.values():
        if isinstance(value, Program):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Program))  # pyright: ignore[reportUnknownVariableType]


def map_programs(params: dict[str, Any], change: Callable[[Program], Program]) -> dict[str, Any]:
    """An op's parameters with the programs among them changed, one after the other as `subprograms` gives them."""

    def changed(value: Any) -> Any:
        if isinstance(value, Program):
            return change(value)
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):  # pyright: ignore[reportUnknownVariableType]
            return getattr(value, "_make", tuple)(map(changed, value))  # pyright: ignore[reportUnknownArgumentType]
        return value

    return {name: changed(value) for name, value in params.items()}


def axis_names(params: dict[str, Any]) -> frozenset[Any]:
    """The named axes that an op's parameters mention, in programs they hold included, and that the op does not bind."""
    found = frozenset(params.get("axis_names", ())).union(*(p.axis_names for p in subprograms(params)))
    return found - frozenset(params["manual_axes"]) if found and "manual_axes" in params else found


@final
class AliasedParams(dict[str, Any]):
    """Parameters that are found as programs print them and as JAX names them too; listed is what rules take."""

    def __init__(self, params: dict[str, Any], op: Op) -> None:
        super().__init__(params)
        self.op = op

    def __missing__(self, name: str) -> Any:
        # A copy: a dict that finds nothing under other names.
        apart, own = dict(self.op.unpack_params(self)), self.op.aliases.get(name, name)
        if own not in apart:
            raise KeyError(name)
        return apart[own]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self.get(str(name), _ABSENT) is not _ABSENT

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def copy(self) -> AliasedParams:
        return AliasedParams(self, self.op)

    def __reduce__(self) -> Any:
        return AliasedParams, (dict(self), self.op)


@final
class Equation:
    """``outputs = op[params] inputs``, with the user's source line and named scope.

    >>> program = nx.make_jaxpr(lambda x: nx.numpy.sum(x))(nx.numpy.ones(3))
    >>> e = program.equations[0]
    >>> e.op.name, [v.type for v in e.inputs], [v.type for v in e.outputs]
    ('reduce_sum', [f32[3]], [f32[]])
    """

    __slots__ = ("inputs", "op", "outputs", "params", "scope", "source")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Atom, ...],
        outputs: tuple[Var, ...],
        params: dict[str, Any],
        source: Source | None = None,
        scope: str = "",
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.params = AliasedParams(params, op) if op.aliases and type(params) is dict else params
        self.source = source
        self.scope = scope

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        parts = state[1]
        # Older pickles hold the parameters of loops apart, as programs print them.
        params = parts["op"].pack_params(dict(parts["params"]))
        self.__init__(parts["op"], parts["inputs"], parts["outputs"], params, parts["source"], parts["scope"])

    # JAX's names.
    primitive = property(lambda self: self.op)
    invars = property(lambda self: self.inputs)
    outvars = property(lambda self: self.outputs)
    source_info = property(lambda self: self.source)

    @property
    def effects(self) -> frozenset[str]:
        """The op's name if the equation must run even when nothing uses its results; otherwise nothing."""
        return frozenset({self.op.name}) if self.effect else frozenset()

    def replace(self, **changes: Any) -> Equation:
        """This equation with other ``invars``, ``outvars``, ``primitive``, ``params`` or ``source_info``."""
        known = {"invars", "outvars", "primitive", "params", "source_info", "effects", "ctx"}
        if changes.keys() - known:
            raise ParameterError("equation: replace", got=sorted(changes.keys() - known), expected=sorted(known))
        op: Op = changes.get("primitive", self.op)
        params = op.renamed_params(changes["params"]) if "params" in changes else self.params
        return Equation(
            op,
            tuple(changes.get("invars", self.inputs)),
            tuple(changes.get("outvars", self.outputs)),
            params,
            changes.get("source_info", self.source),
            self.scope,
        )

    def programs(self) -> Iterator[Program]:
        """The programs this equation holds, in parameter order."""
        return subprograms(self.params)

    @property
    def effect(self) -> bool:
        """True when it must run even if nothing uses its results."""
        op = self.op
        return op.effect or (op.nested and any(p.effect for p in subprograms(self.params)))

    def __repr__(self) -> str:
        params = "" if next(self.programs(), None) else _text().params_text(self.params)
        inputs = " ".join(str(a.type) if isinstance(a, Var) else repr(a) for a in self.inputs)
        text = f"{' '.join(str(v.type) for v in self.outputs)} = {self.op.name}{params} {inputs}"
        return text if self.source is None else f"{text}  # {self.source}"

    def replaced(
        self, inputs: tuple[Atom, ...], outputs: tuple[Var, ...], params: dict[str, Any] | None = None
    ) -> Equation:
        return Equation(self.op, inputs, outputs, self.params if params is None else params, self.source, self.scope)


class _Lazy:
    """Room for cached properties and derived programs; Program itself stays immutable."""


@final
class Program(_Lazy):
    """A closed program: ``constvars`` are bound to ``values``, ``inputs`` are free.

    Attributes:
        constvars, values: variables of captured arrays, and the arrays; JAX calls the arrays ``consts``.
        inputs: one variable per argument.
        equations: every variable is defined before its use.
        outputs: variables or literals.

    >>> program = nx.make_jaxpr(lambda x: nx.sin(x) * 2)(1.0)
    >>> [e.op.name for e in program.equations], program.in_types, program.out_types
    (['sin', 'mul'], (f32[]*,), (f32[]*,))
    """

    def __init__(
        self,
        inputs: Sequence[Var],
        equations: Sequence[Equation],
        outputs: Sequence[Atom],
        consts: Sequence[Var] = (),
        values: Arrays = (),
        name: str = "",
    ) -> None:
        self.inputs = tuple(inputs)
        self.equations = tuple(equations)
        self.outputs = tuple(outputs)
        self.constvars = tuple(consts)
        self.values = tuple(values)
        self.name = name
        self._derived: dict[Any, Any] = {}

    @property
    def in_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def out_types(self) -> tuple[ArrayType, ...]:
        return tuple(v.type for v in self.outputs)

    # JAX's names.
    eqns = property(lambda self: self.equations)
    invars = property(lambda self: self.inputs)
    outvars = property(lambda self: self.outputs)
    consts = property(lambda self: self.values)
    literals = property(lambda self: self.values)
    in_avals = property(lambda self: self.in_types)
    out_avals = property(lambda self: self.out_types)

    @cached_property
    def jaxpr(self) -> Program:
        """The program without the values of its consts, as JAX has it; itself if it has none."""
        if not self.constvars:
            return self
        return Program(self.inputs, self.equations, self.outputs, self.constvars, name=self.name)

    @property
    def effects(self) -> frozenset[str]:
        """Names of the ops that must run even if nothing uses their results."""
        return frozenset[str]().union(*(e.effects for e in self.equations))

    def replace(self, **changes: Any) -> Program:
        """This program with other ``invars``, ``outvars``, ``eqns``, ``constvars`` or ``consts``, by JAX's names."""
        known = {"invars", "outvars", "eqns", "constvars", "consts", "jaxpr", "effects", "debug_info"}
        if changes.keys() - known:
            raise ParameterError("program: replace", got=sorted(changes.keys() - known), expected=sorted(known))
        base: Program = changes.get("jaxpr", self)
        return Program(
            changes.get("invars", base.inputs),
            changes.get("eqns", base.equations),
            changes.get("outvars", base.outputs),
            changes.get("constvars", base.constvars),
            changes.get("consts", base.values if base.values else self.values[: len(base.constvars)]),
            self.name,
        )

    @cached_property
    def effect(self) -> bool:
        """True when some equation, at any depth, must run even if nothing uses its results."""
        return any(e.effect for e in self.equations)

    @cached_property
    def axis_names(self) -> frozenset[Any]:
        """The named axes that equations mention, at any depth."""
        return frozenset[Any]().union(*(axis_names(e.params) for e in self.equations))

    @cached_property
    def last_use(self) -> tuple[tuple[Var, ...], ...]:
        """Per equation, the variables that nothing after it reads."""
        kept: set[Var] = {v for v in self.outputs if isinstance(v, Var)}
        rows: list[tuple[Var, ...]] = []
        for equation in reversed(self.equations):
            dead = [v for v in (*equation.inputs, *equation.outputs) if isinstance(v, Var) and v not in kept]
            rows.append(tuple(dict.fromkeys(dead)))
            kept.update(dead)
        return tuple(reversed(rows))

    def derive(self, key: Any, make: Callable[[], T]) -> T:
        """A program (or anything else) made from this one, kept with it under ``key``."""
        found = self._derived.get(key)
        if found is None:
            found = make()
            if config.check:
                _check_made(found)
            self._derived[key] = found
        return found

    def hoist_consts(self) -> tuple[Program, tuple[Array, ...]]:
        """This program with its consts as leading inputs, and the values of the consts."""
        if not self.constvars:
            return self, ()
        return self.derive(
            "hoist consts",
            lambda: Program((*self.constvars, *self.inputs), self.equations, self.outputs, name=self.name),
        ), self.values

    @property
    def fingerprint(self) -> str:
        """A hash of the content: equal for programs that print alike and hold equal constants."""
        return self._hashed[0]

    @property
    def is_process_independent(self) -> bool:
        """Whether the fingerprint means the same in every process: no object's identity is in it."""
        return self._hashed[1]

    @cached_property
    def _hashed(self) -> tuple[str, bool]:
        text = _text().canonical_text(self)
        found = digest(text.encode())

        def add_values(program: Program) -> None:
            for value in program.values:
                data = np.ascontiguousarray(value.numpy())  # pyright: ignore[reportAttributeAccessIssue]
                found.update(data.view(np.uint8).tobytes() if data.dtype.itemsize else b"")
            for equation in program.equations:
                for inner in equation.programs():
                    add_values(inner)

        add_values(self)
        return found.hexdigest(), _text().IDENTITY.search(text) is None

    def __call__(self, *args: Array) -> list[Array]:
        return run(self, args)

    def __copy__(self) -> Program:
        return self

    def __deepcopy__(self, memo: Any) -> Program:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What pickles hold: not what was made from the program, compiled code among it."""
        parts = ("inputs", "equations", "outputs", "constvars", "values", "name")
        return {**{name: self.__dict__[name] for name in parts}, "_derived": {}}

    def __str__(self) -> str:
        return _text().to_text(self)

    __repr__ = __str__

    def pretty_print(self, *, source: bool = False, **_: Any) -> str:
        """The text, with the user's source lines as comments if ``source``."""
        return _text().to_text(self, source=source)

    def _repr_html_(self) -> str:
        return render("program_page", self)

    def to_svg(self) -> str:
        """A picture of the program: boxes for equations, frames for named scopes, types on the edges.

        One self-contained ``<svg>``. Inner programs are boxes. Draw them separately, or display this program in a
        notebook to open them.

        >>> nx.make_jaxpr(nx.sin)(1.0).to_svg()[:4]
        '<svg'
        """
        return render("program_picture", self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture (``.svg``), the notebook's page (``.html``) or, under any other name, the text."""
        from pathlib import Path

        file = Path(path)
        page = lambda program: f'<!doctype html><meta charset="utf-8">{program._repr_html_()}'
        made = {".svg": Program.to_svg, ".html": page}
        file.write_text(made.get(file.suffix, str)(self), "utf-8")

    def check(self) -> Program:
        """Raise `ProgramError` if the program breaks a rule of the language; return the program."""
        check(self)
        return self


NO_FUNCTIONS.append(Program)


def run(program: Program, args: Arrays) -> list[Array]:
    """Interpret ``program`` under the current trace. Equations keep their own scope and source line."""
    if len(args) != len(program.inputs):
        raise ProgramError("program: wrong number of arguments", got=len(args), expected=len(program.inputs))
    trace = current_trace()
    return run_in_trace(trace, lambda: _run(program, args, trace)) if trace is EVAL else _run(program, args, trace)


def _run(program: Program, args: Arrays, trace: Trace) -> list[Array]:
    env: dict[Var, Array] = dict(zip(program.inputs, args, strict=True))
    env.update(zip(program.constvars, program.values, strict=True))
    for equation, dead in zip(program.equations, program.last_use, strict=True):
        xs = [env[v] if isinstance(v, Var) else v.value for v in equation.inputs]
        with replaying(equation.scope, equation.source):
            result = trace.process(equation.op, xs, equation.params)
        if equation.op.multi:
            env.update(zip(equation.outputs, result, strict=True))
        else:
            env[equation.outputs[0]] = result
        for v in dead:
            env.pop(v, None)
    return [env[v] if isinstance(v, Var) else v.value for v in program.outputs]


def check_sizes(program: Program) -> None:
    """Refuse values that no memory holds, at any depth: offsets into them do not fit the words of a processor."""
    for v in (*program.inputs, *program.constvars):
        _check_size(v.type, "argument")
    for equation in program.equations:
        for v in equation.outputs:
            _check_size(v.type, equation.op.name, equation.source)
        if equation.op.nested:
            for inner in equation.programs():
                check_sizes(inner)


def _check_size(type: ArrayType, where: str, source: Source | None = None) -> None:
    # Sizes of nothing are counted as 1: NumPy counts so too.
    size = type.size or math.prod(filter(None, type.shape))
    if size * type.dtype.itemsize >= _MOST:
        raise MemoryLimitError(
            f"{where}: an array that no memory holds", got=type, expected=f"less than {_MOST:,} bytes", source=source
        )


_flaw: Callable[[Equation], str | None] = lambda e: None


def install_type_rules(flaw: Callable[[Equation], str | None]) -> None:
    """Set the function that checks an equation independently of its op. The package's ``__init__`` calls this once."""
    global _flaw
    _flaw = flaw


def _check_made(found: Any) -> None:
    """Check the programs that were made from one; each once, however many hold it."""
    if isinstance(found, Program):
        if _CHECKED not in found._derived:  # pyright: ignore[reportPrivateUsage]
            check(found)
    elif isinstance(found, (tuple, list)):
        for one in found:  # pyright: ignore[reportUnknownVariableType]
            _check_made(one)


def check(program: Program) -> None:
    """Every variable made once and before use, every type as the op infers it, every const of its value's type.

    What an op infers is held against the rules of `install_type_rules`.
    """
    if len(program.constvars) != len(program.values):
        raise ProgramError("program: consts and values differ in number")
    for var, value in zip(program.constvars, program.values, strict=True):
        if not var.type.typematch(value.type):
            raise ProgramError("program: a const has another type than its value", got=value.type, expected=var.type)
    known: set[Var] = set()

    def define(vs: Sequence[Var], where: str) -> None:
        for v in vs:
            _check_size(v.type, where)
            if v in known:
                raise ProgramError(f"program: {where} defines a variable twice", got=v.type)
            known.add(v)

    def used(atoms: Sequence[Atom], where: str, source: Source | None) -> None:
        for atom in atoms:
            if isinstance(atom, Literal):
                _check_literal(atom, where, source)
            elif atom not in known:
                raise ProgramError(
                    f"program: {where} uses a variable that is not defined", got=atom.type, source=source
                )

    define((*program.constvars, *program.inputs), "the header")
    for equation in program.equations:
        name = equation.op.name
        used(equation.inputs, name, equation.source)
        for inner in equation.programs():
            _check_made(inner)
        check_params(equation.op, equation.params)
        inferred = equation.op.infer(*(v.type for v in equation.inputs), **equation.params)
        types = tuple(inferred) if equation.op.multi else (inferred,)
        got = tuple(v.type for v in equation.outputs)
        if len(types) != len(got) or not all(a.typematch(b) for a, b in zip(types, got, strict=True)):
            raise ProgramError(
                f"program: {name} has other types than it infers", got=got, expected=types, source=equation.source
            )
        wrong = _flaw(equation)
        if wrong is not None:
            raise ProgramError(
                f"program: {name}: {wrong}", got=[a.type for a in equation.inputs], source=equation.source
            )
        define(equation.outputs, name)
    used(program.outputs, "the result", None)
    program._derived[_CHECKED] = True  # pyright: ignore[reportPrivateUsage]


def _check_literal(literal: Literal, where: str, source: Source | None) -> None:
    value: np.ndarray[Any, Any] = literal.value.numpy()  # pyright: ignore[reportAttributeAccessIssue]
    if literal.type.shape or value.shape or value.dtype != literal.type.dtype:
        raise ProgramError(
            f"program: {where} reads a literal that is no scalar of its type",
            got=f"{value.dtype}{list(value.shape)}",
            expected=literal.type,
            source=source,
        )
