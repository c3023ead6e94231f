"""The carry of a loop must have one type: find it, or say which leaf changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nxjax.errors import NxError
from nxjax.ops.collectives import as_varying
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays
from nxjax.trace.program import Program
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.nested import pvary_results

Step = Callable[[Any, Arrays], tuple[Any, list[Any]]]


def stage_loop_body(
    where: str, error: type[NxError], init: Any, extra: Sequence[ArrayType], step: Step, name: str
) -> tuple[list[Array], tree.TreeDef, Program]:
    """Stage ``step(carry, extra values) -> (carry, more leaves)`` so that the carry keeps its type.

    A carry that starts weak (from Python numbers) takes the dtype of a step, as in JAX; every other change is an
    ``error`` that names the leaves.

    Returns:
        the leaves of ``init``, converted; their structure; the program.
    """
    leaves, carry_def = tree.flatten(init)
    values = [as_value(x, f"{where}: carry") for x in leaves]
    names = tree.path_names(init, "carry")
    count = len(values)
    arg_names = [*names, *("x",) * len(extra)]
    while True:
        program, found = _attempt(step, carry_def, [*(x.type for x in values), *extra], count, name, arg_names)
        if found != carry_def:
            raise error(f"{where}: the function changes the structure of the carry", got=found, expected=carry_def)
        out_types = program.out_types[:count]
        wanted = [_widened(x.type, t) for x, t in zip(values, out_types, strict=True)]
        if all(w == x.type for w, x in zip(wanted, values, strict=True)):
            break
        values = [
            as_varying(x if w == x.type.with_vma(w.vma) else convert_element_type(x, dtype=w.dtype, weak=w.weak), w.vma)
            for x, w in zip(values, wanted, strict=True)
        ]
    wrong = [(n, x.type, t) for n, x, t in zip(names, values, out_types, strict=True) if not x.type.typematch(t)]
    if wrong:
        raise error(
            f"{where}: the function changes the type of the carry",
            got="; ".join(f"{n} is {t} after a step" for n, _, t in wrong),
            expected="; ".join(f"{n}: {t}" for n, t, _ in wrong),
            fix=_fix(*wrong[0]),
        )
    whole = [*(x.type.vma for x in values), *(t.vma for t in program.out_types[count:])]
    return values, carry_def, pvary_results(program, whole)


def _attempt(
    step: Step,
    carry_def: tree.TreeDef,
    types: Sequence[ArrayType],
    count: int,
    name: str,
    arg_names: Sequence[str],
) -> tuple[Program, tree.TreeDef]:
    """The program of one step, and the structure of the carry it gives."""
    found: list[tree.TreeDef] = []

    def flat(*xs: Array) -> Sequence[Any]:
        carry, more = step(tree.unflatten(carry_def, xs[:count]), xs[count:])
        out, out_def = tree.flatten(carry)
        found.append(out_def)
        return [*out, *more]

    return stage(flat, types, name, arg_names), found[0]


def _widened(before: ArrayType, after: ArrayType) -> ArrayType:
    """The type a carry takes before the next attempt; ``before`` where nothing is to be done.

    A weak one takes the dtype of a step's result, and one that is the same on all devices varies if a step makes it so.
    """
    if not after.vma <= before.vma:
        return before.with_vma(before.vma | after.vma)
    if not before.weak or before.shape != after.shape or before.dtype == after.dtype:
        return before
    if before.dtype not in dtypes.NUMERIC or after.dtype not in dtypes.NUMERIC:
        return before
    dtype, _ = dtypes.promote((before.dtype, before.weak), (after.dtype, after.weak))
    return ArrayType(before.shape, dtype, False, before.vma)


def _fix(name: str, before: ArrayType, after: ArrayType) -> str:
    if before.shape != after.shape:
        return f"start {name} with shape {after.shape}, or give back shape {before.shape}"
    short = dtypes.short_name(before.dtype)
    return f"give {name} back with .astype({before.dtype.name}) ({short}), or start it as {after.dtype.name}"
