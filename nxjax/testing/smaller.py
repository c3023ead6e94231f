"""Makes a random program that fails smaller, as long as it fails in the same way. Knows nothing of what failing is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

import numpy as np

from nxjax.testing.generator import used
from nxjax.testing.inputs import Argument, scalar
from nxjax.testing.steps import GeneratedFunction, GeneratedProgram, GeneratedStep, Production, StepRefused, Unfit
from nxjax.testing.ways import Way

Fails = Callable[[GeneratedProgram, Way], bool]


def smaller(
    rows: Sequence[Production], program: GeneratedProgram, way: Way, fails: Fails, seconds: float = 30.0
) -> tuple[GeneratedProgram, Way]:
    """A program with fewer lines and smaller arguments, run in a simpler way, that still fails."""
    end = time.monotonic() + seconds
    found = True
    while found and time.monotonic() < end:
        found = False
        simpler = next((w for w in _ways(way) if time.monotonic() < end and fails(program, w)), None)
        if simpler is not None:
            way, found = simpler, True
            continue
        for candidate in _programs(program):
            if time.monotonic() >= end:
                break
            try:
                made = used(rows, candidate)
            except (Unfit, StepRefused):
                continue
            fitting = _fitting(way, program, made)
            if _size(made) < _size(program) and fails(made, fitting):
                program, way, found = made, fitting, True
                break
    return program, way


def _size(program: GeneratedProgram) -> tuple[int, int, int]:
    """What is made smaller: lines first, then elements, then what is special about them."""
    lines = program.text.count("\n") + len(program.body.results)
    elements = sum(int(np.prod(a.shape)) + len(a.shape) for a in program.args)
    return lines, elements, sum(a.data != "plain" for a in program.args)


def _fitting(way: Way, before: GeneratedProgram, after: GeneratedProgram) -> Way:
    """``way`` for the arguments that are left."""
    places = {a.name: i for i, a in enumerate(before.args)}
    old = [places.get(a.name) for a in after.args]
    layouts = tuple(way.layouts[i] if i is not None else "array" for i in old) if way.layouts else ()
    moved = lambda chosen: tuple(k for k, i in enumerate(old) if i in chosen)
    return replace(way, layouts=layouts, donate=moved(way.donate), closed=moved(way.closed))


def _ways(way: Way) -> Iterator[Way]:
    plain = Way(way.executor)
    for field in fields(way):
        if getattr(way, field.name) != getattr(plain, field.name):
            yield replace(way, **{field.name: getattr(plain, field.name)})
    for name, _ in way.settings:
        yield replace(way, settings=tuple(s for s in way.settings if s[0] != name))
    for i in way.donate:
        yield replace(way, donate=tuple(k for k in way.donate if k != i))
    if way.calls > 2:
        yield replace(way, calls=2)


def _programs(program: GeneratedProgram) -> Iterator[GeneratedProgram]:
    body = program.body
    if len(body.results) > 1:
        for name in body.results:
            yield replace(program, body=replace(body, results=(name,)))
    for step in body.steps:
        # An earlier value instead of the last.
        for name in (step.name, f"{step.name}[0]", f"{step.name}[1]"):
            if body.results != (name,):
                yield replace(program, body=replace(body, results=(name,)))
    for step in body.walk():
        for operand in dict.fromkeys(step.operands):
            yield replace(program, body=_without(body, step, operand))
    for step in body.steps:
        yield from _cut(program, step)
    for step in body.steps:
        for block in step.blocks:
            yield from _inlined(program, step, block)
    for i, a in enumerate(program.args):
        for other in _arguments(a):
            yield replace(program, args=(*program.args[:i], other, *program.args[i + 1 :]))
    # All arguments of one shape together.
    for shape in dict.fromkeys(a.shape for a in program.args):
        for axis, n in enumerate(shape):
            for less in sorted({1, 2, n // 2} - {n, 0}):
                changed = (*shape[:axis], less, *shape[axis + 1 :])
                yield replace(
                    program,
                    args=tuple(replace(a, shape=changed) if a.shape == shape else a for a in program.args),
                )


def _renamed(block: GeneratedFunction, old: str, new: str) -> GeneratedFunction:
    """``block`` with another variable instead of ``old`` and its parts."""

    def name(n: str) -> str:
        return new if n == old or n.startswith(old + "[") else n

    steps = tuple(
        replace(s, operands=tuple(map(name, s.operands)), blocks=tuple(_renamed(b, old, new) for b in s.blocks))
        for s in block.steps
    )
    return replace(block, steps=steps, results=tuple(map(name, block.results)))


def _without(block: GeneratedFunction, step: GeneratedStep, operand: str) -> GeneratedFunction:
    """``block`` with ``operand`` instead of what ``step`` gives."""

    def dropped(b: GeneratedFunction) -> GeneratedFunction:
        steps = (s for s in b.steps if s.name != step.name)
        return replace(b, steps=tuple(replace(s, blocks=tuple(map(dropped, s.blocks))) for s in steps))

    return _renamed(dropped(block), step.name, operand)


def _cut(program: GeneratedProgram, step: GeneratedStep) -> Iterator[GeneratedProgram]:
    """What ``step`` gives as an argument."""
    body = program.body
    steps = tuple(s for s in body.steps if s.name != step.name)
    parts = {n for n in names_full(body) if n == step.name or n.startswith(step.name + "[")}
    if parts == {step.name}:
        a = Argument(step.name, (), "float32")
        for shape in dict.fromkeys(x.shape for x in program.args):
            for dtype in dict.fromkeys(("float32", *(x.dtype for x in program.args))):
                made = replace(a, shape=shape, dtype=dtype)
                body_ = replace(body, params=(*body.params, step.name), steps=steps)
                yield replace(program, args=(*program.args, made), body=body_)


def names_full(block: GeneratedFunction) -> set[str]:
    """The variables that a function uses, with the part that is used."""
    found = set(block.results)
    for step in block.walk():
        found |= set(step.operands)
        for inner in step.blocks:
            found |= set(inner.results)
    return found


def _inlined(program: GeneratedProgram, step: GeneratedStep, block: GeneratedFunction) -> Iterator[GeneratedProgram]:
    """The inner function's lines in the place of the step, where its parameters stand for values like them."""
    if len(step.operands) < len(block.params):
        return
    inner = block
    for param, operand in zip(block.params, step.operands[-len(block.params) :], strict=True):
        inner = _renamed(inner, param, operand)
    body = program.body
    at = body.steps.index(step)
    rest = GeneratedFunction(body.params, body.steps[at + 1 :], body.results)
    for result in dict.fromkeys(inner.results):
        moved = _renamed(rest, step.name, result)
        yield replace(program, body=replace(moved, steps=(*body.steps[:at], *inner.steps, *moved.steps)))


def _arguments(a: Argument) -> Iterator[Argument]:
    if a.data not in ("plain",) and not scalar(a):
        yield replace(a, data="plain")
    for axis, n in enumerate(a.shape):
        yield replace(a, shape=(*a.shape[:axis], *a.shape[axis + 1 :]))
        for less in sorted({1, 2, n // 2} - {n, 0}):
            yield replace(a, shape=(*a.shape[:axis], less, *a.shape[axis + 1 :]))
