"""Writes the steps of a random program as lines of Python, and grows them where there are none yet.

A line is evaluated as it is written, so that the next ones know what it gives. Knows no row.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

import nxjax
from nxjax import lax as nx_lax
from nxjax import numpy as nx_numpy
from nxjax.backends.quiet import quiet
from nxjax.testing.inputs import Argument, scalar, values
from nxjax.testing.steps import (
    GeneratedFunction,
    GeneratedProgram,
    GeneratedStep,
    GeneratedVar,
    Production,
    StepRefused,
    Unfit,
    names_of,
    precision,
    variable,
)

# Elements that a value may have, and those that a value may have which becomes several times as large.
LARGE: Final = 20_000
MEDIUM: Final = 3_000
# How often as many elements as all arguments a value may have that is only used within a line.
_FAR: Final = 64
_DEPTH: Final = 3


@dataclass
class _Line:
    indent: int
    name: str
    text: str
    noise: float = 0.0
    once: bool = False

    def __str__(self) -> str:
        return "    " * self.indent + (f"{self.name} = {self.text}" if self.name else self.text)


@dataclass
class WriterScope:
    """The variables that a line may use: those of its function, and those around it."""

    env: dict[str, Any]
    vars: dict[str, GeneratedVar]
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

    def inner(self, params: Sequence[str], samples: Sequence[Any], smooth: bool, alone: bool) -> WriterScope:
        env = {**self.env, **dict(zip(params, samples, strict=True))}
        scope = WriterScope(env, {} if alone else dict(self.vars), [], smooth, self.indent + 1)
        for name, sample in zip(params, samples, strict=True):
            scope.vars.pop(name, None)
            scope.add(name, sample)
        return scope


class Draw:
    """What a row is written with: operands, inner functions, and choices that are the same when it is written again."""

    def __init__(self, writer: ProgramWriter, scope: WriterScope, step: GeneratedStep, again: bool) -> None:
        self._writer, self._scope, self._again = writer, scope, again
        self._given = iter(step.operands), iter(step.blocks)
        self.r = random.Random(step.seed)
        self.operands: list[str] = []
        self.blocks: list[GeneratedFunction] = []

    def pick(
        self,
        kinds: str = "f",
        rank: int = 0,
        *,
        most: int = LARGE,
        like: GeneratedVar | None = None,
        huge: bool = False,
        test: Callable[[GeneratedVar], bool] | None = None,
        own: bool = False,
    ) -> GeneratedVar:
        """A variable of one of ``kinds`` that has ``rank`` dimensions at least."""

        def fits(v: GeneratedVar) -> bool:
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
        self,
        samples: Sequence[Any],
        wanted: Sequence[str | GeneratedVar | tuple[Any, ...]],
        *,
        smooth: bool = False,
        alone: bool = False,
    ) -> str:
        """The name of an inner function of values such as ``samples``.

        Args:
            wanted: for each result, the kinds that it may be of, or the type that it has.
            smooth: its derivatives are asked for.
            alone: it uses no variable from around it.
        """
        given = next(self._given[1], None) if self._again else None
        if self._again and given is None:
            raise Unfit
        name, block = self._writer.function(self._scope, samples, wanted, smooth or self._scope.smooth, given, alone)
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

    def axis(self, v: GeneratedVar) -> int:
        """An axis, counted from the end now and then."""
        if not v.ndim:
            raise Unfit
        axis = self.r.randrange(v.ndim)
        return axis - v.ndim if self.r.random() < 0.3 else axis


class ProgramWriter:
    """Writes the steps of one program, and grows them if there are none yet."""

    def __init__(self, rows: Sequence[Production], seed: int | None) -> None:
        self._rows = rows
        self.rng = random.Random(seed)
        self.long = False
        self._args: Sequence[Argument] = ()
        self.most = LARGE
        self._depth = 0
        self._count = 0
        self._rough = False
        # Steps that may still be grown: a program of loops in one another stays small.
        self._left = 24

    def program(
        self, args: Sequence[Argument], body: GeneratedFunction | None, x64: bool, steps: int = 0
    ) -> GeneratedProgram:
        """Write ``body`` for ``args``, or grow one of ``steps`` steps."""
        self._args = args
        self.most = max([LARGE, *(math.prod(a.shape) for a in args)])
        env: dict[str, Any] = {"jax": nxjax, "jnp": nx_numpy, "lax": nx_lax, "np": np}
        scope = WriterScope(env, {}, [])
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
        end = f"    return {_tree(body.results)}"
        text = "\n".join([head, *map(str, scope.lines), end, ""])
        rounded = [line for line in scope.lines if line.noise]
        once = len(rounded) == 1 and rounded[0].once and rounded[0].indent == 1
        features = frozenset(self._rows[s.row].feature for s in body.walk())
        rounds = {line.name: line.noise for line in rounded}
        return GeneratedProgram(tuple(args), body, x64, text, rounds, once, self._rough, features)

    def _grown(self, scope: WriterScope, params: tuple[str, ...], steps: int) -> GeneratedFunction:
        made: list[GeneratedStep] = []
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
        return GeneratedFunction(params, tuple(made), tuple(results))

    def _some(
        self, scope: WriterScope, count: int, test: Callable[[Production], bool] = lambda row: True
    ) -> list[GeneratedStep]:
        """``count`` new steps; fewer where nothing fits."""
        rows = [
            (i, row)
            for i, row in enumerate(self._rows)
            if test(row) and (row.smooth or not scope.smooth) and not (row.nested and self._depth >= _DEPTH)
        ]
        weights = [row.weight for _, row in rows]
        if not any(weights):
            return []
        made: list[GeneratedStep] = []
        for _ in range(count * 6):
            if len(made) == count or self._left <= 0:
                break
            (i, _), self._count = self.rng.choices(rows, weights)[0], self._count + 1
            step = GeneratedStep(f"v{self._count}", i, self.rng.getrandbits(31))
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

    def _hold(self, text: str, env: dict[str, Any]) -> None:
        """Raises `Unfit` if a value on the way is far larger than the arguments, as a product of long axes."""
        try:
            program = nxjax.make_jaxpr(lambda: eval(text, env))()
        except Exception:  # which a value that is known may not raise
            return
        if any(v.type.size > _FAR * self.most for e in program.equations for v in e.outputs):
            raise Unfit

    def _step(self, scope: WriterScope, step: GeneratedStep, again: bool) -> GeneratedStep:
        row = self._rows[step.row]
        draw = Draw(self, scope, step, again)
        text = row.write(draw)
        try:
            with quiet():
                if self.most > LARGE:
                    self._hold(text, scope.env)
                value = eval(text, scope.env)
        except Unfit:
            raise
        except Exception as error:
            if self._depth:
                raise Unfit from error
            head = f"def f({', '.join(a.name for a in self._args)}):"
            raise StepRefused(
                "\n".join([head, *map(str, scope.lines), f"    return {text},", ""]), self._args
            ) from error
        if any(np.size(leaf) > 4 * self.most for leaf in nxjax.tree.leaves(value)):
            raise Unfit
        digits = precision(value)
        self._rough |= bool(digits) and not row.smooth
        noise = 0.0 if row.exact else digits
        if noise and "float32" in text:  # a part of the line is rounded to that
            noise = max(noise, 2.0**-24)
        scope.lines.append(_Line(scope.indent, step.name, text, noise, row.once))
        scope.add(step.name, value)
        return replace(step, operands=tuple(draw.operands), blocks=tuple(draw.blocks))

    def function(
        self,
        scope: WriterScope,
        samples: Sequence[Any],
        wanted: Sequence[str | GeneratedVar | tuple[Any, ...]],
        smooth: bool,
        given: GeneratedFunction | None,
        alone: bool,
    ) -> tuple[str, GeneratedFunction]:
        """Define an inner function in ``scope``; its name and its block."""
        if given is None:
            self._count += 1
            params = tuple(f"p{self._count}{'abcdef'[i]}" for i in range(len(samples)))
        else:
            params = given.params
            if len(params) != len(samples):
                raise Unfit
        inner = scope.inner(params, samples, smooth, alone)
        self._depth += 1
        try:
            if given is None:
                long, self.long = self.long, False
                steps = tuple(self._some(inner, self.rng.randint(2, 8) if long else self.rng.randint(1, 4)))
                block = GeneratedFunction(params, steps, ())
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

    def _results(
        self, scope: WriterScope, block: GeneratedFunction, wanted: Sequence[str | GeneratedVar | tuple[Any, ...]]
    ) -> GeneratedFunction:
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
                    step = GeneratedStep(f"v{self._count}", fit, 0, (like[0], other))
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
        return GeneratedFunction(block.params, tuple(steps), tuple(results))


def _tree(names: Sequence[str]) -> str:
    """The results of a program: a tuple, now and then a tree of them. The same names are the same tree."""
    first, *rest = names
    tuple_ = f"{', '.join(names)}{',' if len(names) == 1 else ''}"
    trees = (
        f"{{'y': {first}, 'n': None, 'a': [{', '.join(rest)}]}}",
        f"[{{'b': ({tuple_}), 'a': {first}}}, ()]",
        f"({tuple_}), {names[-1]}",
    )
    which = zlib.crc32(tuple_.encode()) % 24
    return trees[which] if which < len(trees) else tuple_


def _wanted(v: GeneratedVar | None, want: str | GeneratedVar | tuple[Any, ...]) -> bool:
    if v is None:
        return False
    if isinstance(want, GeneratedVar):
        return v.type == want.type
    return v.kind in want if isinstance(want, str) else v.type == want
