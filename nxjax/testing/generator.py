"""Random programs as texts: Python functions of JAX's public names, grown line by line, and written again smaller.

A program is a list of steps; a step is a row of `nxjax.testing.productions`, the names of its operands, and a seed that
its other choices come from. So a step can be written again for other operands: of other shapes, or fewer of them.
Knows no row, and nothing of how programs are run and judged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ml_dtypes
import numpy as np

import nxjax
from nxjax import lax as nx_lax
from nxjax import numpy as nx_numpy
from nxjax.backends.reference.quiet import quiet
from nxjax.testing.inputs import Argument, scalar, values

# Elements that a value may have, and those that a value may have which becomes several times as large.
LARGE: Final = 20_000
MEDIUM: Final = 3_000
# From here on a value is tamed before it is used.
_HUGE: Final = 1e3
_DEPTH: Final = 3
_DIMS: Final = (1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 16, 17, 33)
_RARE_DIMS: Final = (0, 1, 64, 65, 100, 129, 1000, 1025)


class Unfit(Exception):
    """A step cannot be written for these operands."""


class Refused(Exception):
    """An eager line raised; the message is the program up to it, beside its arguments."""


@dataclass(frozen=True)
class Block:
    """A function: its parameters, its steps, and the names of its results."""

    params: tuple[str, ...]
    steps: tuple[Step, ...]
    results: tuple[str, ...]

    def walk(self) -> Iterator[Step]:
        """All steps, those of inner functions too."""
        for step in self.steps:
            yield step
            for block in step.blocks:
                yield from block.walk()


@dataclass(frozen=True)
class Step:
    """One line, and the functions defined for it.

    Attributes:
        name: the variable.
        row: the row of the table, by its place there.
        seed: of all choices but the operands.
        operands: names, in the order in which the row asks for them.
        blocks: inner functions, in that order.
    """

    name: str
    row: int
    seed: int
    operands: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Row:
    """A way to make a value of others: a row of the table of productions.

    Attributes:
        write: gives the expression.
        feature: what it counts as in reports.
        smooth: it has derivatives, which are continuous almost everywhere.
        exact: floats are moved, not computed.
        weight: how often it is taken.
        nested: it defines inner functions.
    """

    write: Callable[[Draw], str]
    feature: str
    smooth: bool = False
    exact: bool = False
    weight: float = 1.0
    nested: bool = False


@dataclass(frozen=True)
class Program:
    """A random program: arguments, steps, and whether 64 bits are on.

    Attributes:
        text: the function's definition.
        rounds: the variables that are rounded, and how: half a unit in the last place of one. None: all is exact.
        features: what is in it.
    """

    args: tuple[Argument, ...]
    body: Block
    x64: bool = False
    text: str = ""
    rounds: dict[str, float] = field(default_factory=dict)
    features: frozenset[str] = frozenset()

    def values(self) -> list[Any]:
        """The arguments, as NumPy has them."""
        return [values(a) for a in self.args]


class Var(str):
    """A variable's name, with what is known of its value."""

    value: Any
    shape: tuple[int, ...]
    kind: str
    huge: bool

    @property
    def dtype(self) -> Any:
        return self.value.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def type(self) -> tuple[Any, ...]:
        """What two values share that may stand for each other in a loop."""
        return self.shape, str(self.dtype), bool(getattr(self.value, "weak_type", False))

    @property
    def jnp(self) -> str:
        """The dtype as programs write it."""
        return f"jnp.{'bool_' if self.kind == 'b' else self.dtype.name}"


KINDS: Final[dict[str, str]] = {
    "bool": "b",
    **{f"int{n}": "i" for n in (8, 16, 32, 64)},
    **{f"uint{n}": "u" for n in (8, 16, 32, 64)},
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "f"),
    **dict.fromkeys(("complex64", "complex128"), "c"),
    # What is only stored, and converted to be computed with.
    **dict.fromkeys(("int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e3m4"), "q"),
}


def variable(name: str, value: Any) -> Var:
    """``name``, with what is known of ``value``.

    >>> variable("x", np.ones((2, 3))).shape
    (2, 3)
    """
    v = Var(name)
    v.value = value
    v.shape = tuple(value.shape)
    v.kind = KINDS.get(str(value.dtype), "o")
    v.huge = False
    if v.kind in "fc" and v.size:
        with np.errstate(all="ignore"):
            a = np.abs(np.asarray(value).astype(np.complex128 if v.kind == "c" else np.float64))
            v.huge = bool((a[np.isfinite(a)] > _HUGE).any())
    return v


def precision(value: Any) -> float:
    """Half a unit in the last place of the coarsest float among ``value``'s leaves; 0: there is none."""
    found = 0.0
    for leaf in nxjax.tree.leaves(value):
        dtype = np.dtype(leaf.dtype)
        kind = KINDS.get(str(dtype), "o")
        if kind in "fcq" and "int" not in str(dtype):
            found = max(found, float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2)
    return found


@dataclass
class _Line:
    indent: int
    name: str
    text: str
    noise: float = 0.0

    def __str__(self) -> str:
        return "    " * self.indent + (f"{self.name} = {self.text}" if self.name else self.text)


@dataclass
class Scope:
    """The variables that a line may use: those of its function, and those around it."""

    env: dict[str, Any]
    vars: dict[str, Var]
    lines: list[_Line]
    smooth: bool = False
    indent: int = 1
    # Those that this function made itself; inner functions use them more than captured ones.
    own: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any) -> None:
        self.env[name] = value
        if isinstance(value, (tuple, list)):
            for i, part in enumerate(value):
                if hasattr(part, "dtype"):
                    self._known(f"{name}[{i}]", part)
        else:
            self._known(name, value)

    def _known(self, name: str, value: Any) -> None:
        self.vars[name] = variable(name, value)
        self.own.append(name)

    def inner(self, params: Sequence[str], samples: Sequence[Any], smooth: bool) -> Scope:
        env = {**self.env, **dict(zip(params, samples, strict=True))}
        scope = Scope(env, dict(self.vars), [], smooth, self.indent + 1)
        for name, sample in zip(params, samples, strict=True):
            scope.vars.pop(name, None)
            scope.add(name, sample)
        return scope


class Draw:
    """What a row is written with: operands, inner functions, and choices that are the same when it is written again."""

    def __init__(self, writer: Writer, scope: Scope, step: Step, again: bool) -> None:
        self._writer, self._scope, self._again = writer, scope, again
        self._given = iter(step.operands), iter(step.blocks)
        self.r = random.Random(step.seed)
        self.operands: list[str] = []
        self.blocks: list[Block] = []

    def pick(
        self,
        kinds: str = "f",
        rank: int = 0,
        *,
        most: int = LARGE,
        like: Var | None = None,
        huge: bool = False,
        test: Callable[[Var], bool] | None = None,
        own: bool = False,
    ) -> Var:
        """A variable of one of ``kinds`` that has ``rank`` dimensions at least."""

        def fits(v: Var) -> bool:
            return (
                v.kind in kinds
                and v.ndim >= rank
                and v.size <= (self._writer.most if most == LARGE else most)
                and (like is None or v.type == like.type)
                and (test is None or test(v))
            )

        scope = self._scope
        if self._again:
            v = scope.vars.get(next(self._given[0], ""))
            if v is None or not fits(v):
                raise Unfit
        else:
            rng = self._writer.rng
            calm = not huge and rng.random() < 0.95
            names = scope.own if own or rng.random() < 0.8 else list(scope.vars)
            found = [v for n in names if fits(v := scope.vars[n]) and not (calm and v.huge)]
            if not found:
                found = [v for v in scope.vars.values() if fits(v) and not (calm and v.huge)]
            if not found:
                raise Unfit
            if self.operands and rng.random() < 0.8:  # another one than before, where there is one
                found = [v for v in found if str(v) not in self.operands] or found
            v = found[max(rng.randrange(len(found)), rng.randrange(len(found)))]
        self.operands.append(str(v))
        return v

    def block(
        self, samples: Sequence[Any], wanted: Sequence[str | Var | tuple[Any, ...]], *, smooth: bool = False
    ) -> str:
        """The name of an inner function of values such as ``samples``.

        Args:
            wanted: for each result, the kinds that it may be of, or the type that it has.
            smooth: its derivatives are asked for.
        """
        given = next(self._given[1], None) if self._again else None
        if self._again and given is None:
            raise Unfit
        name, block = self._writer.function(self._scope, samples, wanted, smooth or self._scope.smooth, given)
        self.blocks.append(block)
        return name

    @property
    def smooth(self) -> bool:
        return self._scope.smooth

    @property
    def long(self) -> bool:
        """Whether the inner functions are the program."""
        return self._writer.long

    def call(self, name: str, *args: Any) -> Any:
        """What an inner function gives for these values."""
        return self._scope.env[name](*args)

    def axis(self, v: Var) -> int:
        """An axis, counted from the end now and then."""
        if not v.ndim:
            raise Unfit
        axis = self.r.randrange(v.ndim)
        return axis - v.ndim if self.r.random() < 0.3 else axis


class Writer:
    """Writes the steps of one program, and grows them if there are none yet."""

    def __init__(self, rows: Sequence[Row], seed: int | None) -> None:
        self._rows = rows
        self.rng = random.Random(seed)
        self.long = False
        self._args: Sequence[Argument] = ()
        self.most = LARGE
        self._depth = 0
        self._count = 0
        # Steps that may still be grown: a program of loops in one another stays small.
        self._left = 24

    def program(self, args: Sequence[Argument], body: Block | None, x64: bool, steps: int = 0) -> Program:
        """Write ``body`` for ``args``, or grow one of ``steps`` steps."""
        self._args = args
        self.most = max([LARGE, *(math.prod(a.shape) for a in args)])
        env: dict[str, Any] = {"jax": nxjax, "jnp": nx_numpy, "lax": nx_lax, "np": np}
        scope = Scope(env, {}, [])
        given = [values(a) for a in args]
        for a, v in zip(args, given, strict=True):
            # A Python number becomes an array in the program, and stays weakly typed.
            scope.add(a.name, nx_numpy.asarray(v) if scalar(a) else nx_numpy.asarray(v, dtype=v.dtype))
            if scalar(a):
                scope.lines.append(_Line(1, a.name, f"jnp.asarray({a.name})"))
        if body is None:
            body = self._grown(scope, tuple(a.name for a in args), steps)
        else:
            written = tuple(self._step(scope, s, True) for s in body.steps)
            body = replace(body, steps=written)
            if not all(n in scope.vars for n in body.results):
                raise Unfit
        head = f"def f({', '.join(a.name for a in args)}):"
        end = f"    return {', '.join(body.results)}{',' if len(body.results) == 1 else ''}"
        text = "\n".join([head, *map(str, scope.lines), end, ""])
        rounds = {line.name: line.noise for line in scope.lines if line.noise}
        features = frozenset(self._rows[s.row].feature for s in body.walk())
        return Program(tuple(args), body, x64, text, rounds, features)

    def _grown(self, scope: Scope, params: tuple[str, ...], steps: int) -> Block:
        made: list[Step] = []
        if self.rng.random() < 0.45:
            self.long = True
            made += self._some(scope, 1, lambda row: row.nested)
            self.long = False
        made += self._some(scope, max(0, steps - 4 * len(made)))
        names = scope.own[len(params) :]
        if not names:
            raise Unfit
        last = made[-1].name
        results = [n for n in names if n == last or n.startswith(last + "[")][:3] or names[-1:]
        # Values that nothing uses are results too, so that their lines stay; and some that others use.
        taken = {n for step in made for n in (*step.operands, *(m for b in step.blocks for m in names_of(b)))}
        others = [n for n in names if n not in results]
        results += [n for n in others if n not in taken and self.rng.random() < 0.5][:3]
        results += [n for n in others if n in taken and self.rng.random() < 0.1][:2]
        return Block(params, tuple(made), tuple(results))

    def _some(self, scope: Scope, count: int, test: Callable[[Row], bool] = lambda row: True) -> list[Step]:
        """``count`` new steps; fewer where nothing fits."""
        rows = [
            (i, row)
            for i, row in enumerate(self._rows)
            if test(row) and (row.smooth or not scope.smooth) and not (row.nested and self._depth >= _DEPTH)
        ]
        weights = [row.weight for _, row in rows]
        if not any(weights):
            return []
        made: list[Step] = []
        for _ in range(count * 6):
            if len(made) == count or self._left <= 0:
                break
            (i, _), self._count = self.rng.choices(rows, weights)[0], self._count + 1
            step = Step(f"v{self._count}", i, self.rng.getrandbits(31))
            length, left, own = len(scope.lines), self._left, len(scope.own)
            try:
                made.append(self._step(scope, step, False))
                self._left -= 1
            except Unfit:
                del scope.lines[length:]
                for name in scope.own[own:]:
                    scope.vars.pop(name)
                del scope.own[own:]
                self._left = left
        return made

    def _step(self, scope: Scope, step: Step, again: bool) -> Step:
        row = self._rows[step.row]
        draw = Draw(self, scope, step, again)
        text = row.write(draw)
        try:
            with quiet():
                value = eval(text, scope.env)
        except Unfit:
            raise
        except Exception as error:
            if self._depth:
                raise Unfit from error
            head = f"def f({', '.join(a.name for a in self._args)}):"
            raise Refused("\n".join([head, *map(str, scope.lines), f"    return {text},", ""]), self._args) from error
        if any(np.size(leaf) > 4 * self.most for leaf in nxjax.tree.leaves(value)):
            raise Unfit
        noise = 0.0 if row.exact else precision(value)
        if noise and "float32" in text:  # a part of the line is rounded to that
            noise = max(noise, 2.0**-24)
        scope.lines.append(_Line(scope.indent, step.name, text, noise))
        scope.add(step.name, value)
        return replace(step, operands=tuple(draw.operands), blocks=tuple(draw.blocks))

    def function(
        self,
        scope: Scope,
        samples: Sequence[Any],
        wanted: Sequence[str | Var | tuple[Any, ...]],
        smooth: bool,
        given: Block | None,
    ) -> tuple[str, Block]:
        """Define an inner function in ``scope``; its name and its block."""
        if given is None:
            self._count += 1
            params = tuple(f"p{self._count}{'abcdef'[i]}" for i in range(len(samples)))
        else:
            params = given.params
            if len(params) != len(samples):
                raise Unfit
        inner = scope.inner(params, samples, smooth)
        self._depth += 1
        try:
            if given is None:
                long, self.long = self.long, False
                steps = tuple(self._some(inner, self.rng.randint(2, 8) if long else self.rng.randint(1, 4)))
                block = Block(params, steps, ())
                block = self._results(inner, block, wanted)
            else:
                steps = tuple(self._step(inner, s, True) for s in given.steps)
                if not all(_wanted(inner.vars.get(n), w) for n, w in zip(given.results, wanted, strict=True)):
                    raise Unfit
                block = replace(given, steps=steps)
        finally:
            self._depth -= 1
        name = "g" + params[0][1:-1] if params else f"g{self._count}"
        result = ", ".join(block.results)
        head = _Line(scope.indent, "", f"def {name}({', '.join(params)}):")
        lines = [head, *inner.lines, _Line(inner.indent, "", f"return {result}")]
        source = "\n".join(str(line)[4 * scope.indent :] for line in lines)
        exec(source, inner.env)
        scope.env[name] = inner.env[name]
        scope.lines += lines
        return name, block

    def _results(self, scope: Scope, block: Block, wanted: Sequence[str | Var | tuple[Any, ...]]) -> Block:
        results: list[str] = []
        steps = list(block.steps)
        for k, want in enumerate(wanted):
            own = [n for n in scope.own if n not in block.params]
            found = [n for n in own if _wanted(scope.vars[n], want)]
            if not found:
                # A value of the type that is wanted, made of the last one and of a parameter.
                like = [n for n in scope.own if _wanted(scope.vars[n], want)]
                fit = next(i for i, row in enumerate(self._rows) if row.feature == "fit")
                other = own[-1] if own else None
                if like and other:
                    self._count += 1
                    step = Step(f"v{self._count}", fit, 0, (like[0], other))
                    try:
                        steps.append(self._step(scope, step, True))
                        found = [step.name]
                    except Unfit:
                        found = like
                found = found or like
            if not found:
                raise Unfit
            # Several results of one kind are different ones, where there are.
            results.append(found[-1 - (k % len(found) if isinstance(want, str) else 0)])
        return Block(block.params, tuple(steps), tuple(results))


def _wanted(v: Var | None, want: str | Var | tuple[Any, ...]) -> bool:
    if v is None:
        return False
    if isinstance(want, Var):
        return v.type == want.type
    return v.kind in want if isinstance(want, str) else v.type == want


def random_arguments(rng: random.Random, x64: bool, large: bool = False) -> list[Argument]:
    """One to four arguments whose shapes often fit one another; ``large`` ones are worth several threads."""
    rank = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5))
    dims = [rng.choice(_RARE_DIMS if rng.random() < 0.08 else _DIMS) for _ in range(rank)]
    if rng.random() < 0.3:
        dims = [rng.choice((1, 2, 3)) for _ in dims[:3]]  # cheap, and small enough for derivatives by differences
    if large:
        dims = rng.choice(([300_000], [1000, 300], [300, 1030], [7, 200, 100], [64, 64, 64], [3, 50_001]))
    while np.prod(dims) > MEDIUM and not large:
        dims[int(np.argmax(dims))] = rng.choice((1, 2, 3))
    main = tuple(dims)
    floats = ["float32"] * 8 + ["float16", "bfloat16", "bfloat16"] + (["float64"] * 8 if x64 else [])
    others = ["int32", "int32", "int8", "int16", "uint8", "uint16", "uint32", "bool", "complex64", "int4", "uint4"]
    others += [n for n in KINDS if n.startswith("float8")][:2] + (["int64", "uint64", "complex128"] if x64 else [])
    own = rng.choice(floats)
    whole = rng.random() < 0.12
    special = rng.random() < 0.12
    found: list[Argument] = []
    for i in range(rng.choice((1, 1, 2, 2, 2, 3, 4))):
        shape = main
        change = rng.random()
        if i and change < 0.15:
            shape = main[-1:]
        elif i and change < 0.25:
            shape = ()
        elif i and change < 0.35:
            shape = (*main[:-1], 1) if main else ()
        elif i and change < 0.45:
            shape = main[::-1]
        elif i and change < 0.5:
            shape = tuple(rng.choice(_DIMS) for _ in range(rng.randint(1, 2)))
        dtype = own
        if whole or (i and rng.random() < 0.3):
            dtype = rng.choice(others)
        elif i and rng.random() < 0.1:
            dtype = rng.choice(floats)
        found.append(Argument(f"x{i}", shape, dtype, _data(rng, dtype, shape, special), rng.getrandbits(20)))
    return found


def _data(rng: random.Random, dtype: str, shape: tuple[int, ...], special: bool) -> str:
    kind = KINDS[dtype]
    if shape == () and dtype in ("float32", "int32", "bool") and rng.random() < 0.3:
        return "python"
    if kind == "f" and special:
        return rng.choice(("special", "special", "huge", "tiny"))
    if kind == "f":
        return rng.choice(("plain",) * 12 + ("ties", "ties", "offset", "constant"))
    return rng.choice(("plain", "plain", "plain", "small", "extreme")) if kind in "iu" else "plain"


def random_text(
    rows: Sequence[Row], seed: int, refused: Callable[[str, Sequence[Argument], bool], bool] | None = None
) -> Program:
    """The random program of ``seed``.

    Args:
        refused: whether a program that raises should not; None: what raises does not fit.
    """
    for attempt in range(20):
        rng = random.Random(f"{seed}/{attempt}")
        x64 = rng.random() < 0.12
        writer = Writer(rows, rng.getrandbits(62))
        with nxjax.config.using(enable_x64=x64, executor="reference"), quiet():
            try:
                large = rng.random() < 0.01
                steps = rng.choice((1, 2, 3) if large else (1, 2, 3, 4, 4, 5, 5, 6, 7, 8, 10))
                args = random_arguments(rng, x64, large)
                return used(rows, writer.program(args, None, x64, steps))
            except Unfit:
                continue
            except Refused as error:
                if refused is not None and refused(*error.args, x64):
                    raise
    raise Unfit(f"no program for seed {seed}")


def written(rows: Sequence[Row], program: Program) -> Program:
    """``program``, whose steps or arguments were changed, written again; raises `Unfit` if it cannot be."""
    with nxjax.config.using(enable_x64=program.x64, executor="reference"), quiet():
        return Writer(rows, 0).program(program.args, program.body, program.x64)


def used(rows: Sequence[Row], program: Program) -> Program:
    """``program`` without steps, results of inner functions and arguments that nothing needs."""
    body = without_dead(program.body)
    needed = names_of(body)
    args = tuple(a for a in program.args if a.name in needed) or program.args[:1]
    body = replace(body, params=tuple(a.name for a in args))
    return written(rows, replace(program, args=args, body=body))


def without_dead(block: Block) -> Block:
    """``block`` without steps whose values nothing uses."""
    alive = {n.split("[")[0] for n in block.results}
    kept: list[Step] = []
    for step in reversed(block.steps):
        if step.name in alive:
            step = replace(step, blocks=tuple(map(without_dead, step.blocks)))
            kept.append(step)
            alive |= {n.split("[")[0] for n in step.operands}
            for inner in step.blocks:
                alive |= names_of(inner)
    return replace(block, steps=tuple(reversed(kept)))


def names_of(block: Block) -> set[str]:
    """The variables that a function uses, its own too."""
    found = {n.split("[")[0] for n in block.results}
    for step in block.walk():
        found |= {n.split("[")[0] for n in step.operands}
        for inner in step.blocks:
            found |= {n.split("[")[0] for n in inner.results}
    return found
