"""Random programs as texts: Python functions of JAX's public names, grown line by line, and written again smaller.

A program is a list of steps; a step is a row of `nxjax.testing.productions`, the names of its operands, and a seed that
its other choices come from. So a step can be written again for other operands: of other shapes, or fewer of them.
Knows no row, and nothing of how programs are run and judged.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

import nxjax
from nxjax.backends.quiet import quiet
from nxjax.testing.inputs import Argument
from nxjax.testing.steps import KINDS, GeneratedProgram, Production, StepRefused, Unfit, names_of, without_dead
from nxjax.testing.writer import MEDIUM, ProgramWriter

_DIMS: Final = (1, 2, 2, 3, 3, 4, 5, 5, 7, 8, 16, 17, 33)
_RARE_DIMS: Final = (0, 1, 64, 65, 100, 129, 1000, 1025)


def random_arguments(rng: random.Random, x64: bool, large: bool = False) -> list[Argument]:
    """One to four arguments whose shapes often fit one another; ``large`` ones are worth several threads."""
    rank = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5))
    dims = [rng.choice(_RARE_DIMS if rng.random() < 0.08 else _DIMS) for _ in range(rank)]
    if rng.random() < 0.3:
        dims = [rng.choice((1, 2, 3)) for _ in dims[:3]]  # cheap, and small enough for derivatives by differences
    if large:
        dims = _large_dims(rng)
    while np.prod(dims) > MEDIUM and not large:
        dims[int(np.argmax(dims))] = rng.choice((1, 2, 3))
    main = tuple(dims)
    floats = ["float32"] * 8 + ["float16", "bfloat16", "bfloat16"] + (["float64"] * 8 if x64 else [])
    others = ["int32", "int32", "int8", "int16", "uint8", "uint16", "uint32", "bool", "complex64", "int4", "uint4"]
    others += ["float8_e4m3fn", "float8_e5m2"] + (["int64", "uint64", "complex128"] if x64 else [])
    own = rng.choice(floats) if rng.random() < 0.94 else rng.choice([n for n, kind in KINDS.items() if kind == "n"])
    whole = rng.random() < (0.4 if large else 0.12)
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


def _large_dims(rng: random.Random) -> list[int]:
    """Sizes around those that kernels are cut at: of vectors, blocks of columns and rows, work for a thread."""
    few, many = rng.choice((1, 2, 3, 17, 65, 127, 300, 1000)), rng.choice((64, 256, 512, 1024, 2048, 4096, 50_000))
    many += rng.choice((-1, 0, 1, 9, many // 2))
    rest = max(300_000 // many, 1)
    dims = [min(few, rest), many] if rng.random() < 0.8 else [max(min(few, rest) // 7, 1), 7, many]
    return rng.choice((dims, dims, dims[::-1], [math.prod(dims)]))


def _data(rng: random.Random, dtype: str, shape: tuple[int, ...], special: bool) -> str:
    kind = KINDS[dtype]
    if shape == () and dtype in ("float32", "int32", "bool") and rng.random() < 0.3:
        return "python"
    if kind == "f" and special:
        return rng.choice(("special", "special", "huge", "tiny"))
    if kind == "f":
        return rng.choice(("plain",) * 11 + ("points", "points", "ties", "ties", "offset", "constant"))
    return rng.choice(("plain", "plain", "plain", "small", "extreme")) if kind in "iu" else "plain"


def random_text(
    rows: Sequence[Production],
    seed: int,
    refused: Callable[[str, Sequence[Argument], bool], bool] | None = None,
    arguments: Callable[[random.Random, bool, bool], list[Argument]] | None = None,
) -> GeneratedProgram:
    """The random program of ``seed``.

    Args:
        refused: whether a program that raises should not; None: what raises does not fit.
        arguments: what draws its arguments, if not `random_arguments`; without ``enable_x64``.
    """
    for attempt in range(20):
        rng = random.Random(f"{seed}/{attempt}")
        x64 = rng.random() < 0.12 and arguments is None
        writer = ProgramWriter(rows, rng.getrandbits(62))
        with nxjax.config.using(enable_x64=x64, executor="reference"), quiet():
            try:
                large = rng.random() < 0.06
                steps = rng.choice((1, 1, 1, 2, 3) if large else (1, 2, 3, 4, 4, 5, 5, 6, 7, 8, 10))
                args = (arguments or random_arguments)(rng, x64, large)
                return used(rows, writer.program(args, None, x64, steps))
            except Unfit:
                continue
            except StepRefused as error:
                text, given = error.args
                if refused is not None and refused(text, given, x64):
                    raise
    raise Unfit(f"no program for seed {seed}")


def written(rows: Sequence[Production], program: GeneratedProgram) -> GeneratedProgram:
    """``program``, whose steps or arguments were changed, written again; raises `Unfit` if it cannot be."""
    with nxjax.config.using(enable_x64=program.x64, executor="reference"), quiet():
        return ProgramWriter(rows, 0).program(program.args, program.body, program.x64)


def used(rows: Sequence[Production], program: GeneratedProgram) -> GeneratedProgram:
    """``program`` without steps, results of inner functions and arguments that nothing needs."""
    body = without_dead(program.body)
    needed = names_of(body)
    args = tuple(a for a in program.args if a.name in needed) or program.args[:1]
    body = replace(body, params=tuple(a.name for a in args))
    return written(rows, replace(program, args=args, body=body))
