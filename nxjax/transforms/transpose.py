"""Reverse mode's second half: run a linear program backwards.

Walks the equations once, last to first, and adds up cotangents. Equations that do not depend on a linear input are
computed forwards first. Knows ops by their `transpose` rule only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from nxjax.config import current_settings
from nxjax.errors import DtypeError, GradientError, needs_function
from nxjax.ops.arithmetic import add
from nxjax.ops.base import zeros
from nxjax.ops.collectives import as_varying, psum_to_vma
from nxjax.ops.convert import cast
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import PyTree
from nxjax.trace.array import as_value, type_of
from nxjax.trace.core import Array, Arrays, Tangents, UndefinedPrimal, current_trace, run_in_trace
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.wrapping import name_of
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.jvp import DERIVATIVE


def backward_pass(program: Program, args: Sequence[Array | None], cts: Tangents) -> list[Array | None]:
    """Cotangents of the linear inputs.

    Args:
        program: linear in the inputs whose ``args`` entry is None.
        args: values of the other inputs.
        cts: one cotangent per result; None is zero.

    Returns:
        One cotangent per input: None for inputs that are not linear, or whose cotangent is zero.
    """
    return run_in_trace(current_trace(), lambda: _backward(program, args, cts))


def _backward(program: Program, args: Sequence[Array | None], cts: Tangents) -> list[Array | None]:
    known: dict[Var, Array] = dict(zip(program.constvars, program.values, strict=True))
    known.update({v: x for v, x in zip(program.inputs, args, strict=True) if x is not None})
    linear = {v for v, x in zip(program.inputs, args, strict=True) if x is None}

    def value(a: Atom) -> Array:
        return known[a] if isinstance(a, Var) else a.value

    backwards: list[Equation] = []
    trace = current_trace()
    for e in program.equations:
        if any(isinstance(a, Var) and a in linear for a in e.inputs):
            linear.update(e.outputs)
            backwards.append(e)
        else:
            with replaying(e.scope, e.source):
                y = trace.process(e.op, [value(a) for a in e.inputs], e.params)
            known.update(zip(e.outputs, y if e.op.multi else (y,), strict=True))

    cotangents = _Cotangents(linear)
    for a, ct in zip(program.outputs, cts, strict=True):
        cotangents.collect(a, ct)
    reached = cotangents.variables()  # what the results depend on, also where the cotangent is zero
    for e in reversed(backwards):
        if reached.isdisjoint(e.outputs):
            continue
        reached.update(a for a in e.inputs if isinstance(a, Var))
        out_cts = [cotangents.total(v) for v in e.outputs]
        if not e.op.pulls_zeros and all(ct is None for ct in out_cts):
            continue
        if not e.op.has("transpose"):
            raise GradientError(
                f"grad: {e.op.name} has no reverse-mode derivative",
                got=f"{e.op.name} of {', '.join(repr(a.type) for a in e.inputs)}",
                fix=e.op.instead_of_transpose,
                source=e.source,
            )
        operands = [UndefinedPrimal(a.type) if isinstance(a, Var) and a in linear else value(a) for a in e.inputs]
        source = e.source
        if source is not None and current_settings().mode is not None:
            source = source.noted(f"the backward pass of {source.note.removeprefix(DERIVATIVE) or e.op.name}")
        with replaying(e.scope, source):
            in_cts = e.op.transpose(out_cts if e.op.multi else out_cts[0], *operands, **e.params)
            for a, ct in zip(e.inputs, in_cts, strict=True):
                cotangents.collect(a, ct)
    return [cotangents.total(v) if v in linear else None for v in program.inputs]


@final
class _Cotangents:
    """What the uses of each linear variable have added to its cotangent so far."""

    def __init__(self, linear: set[Var]) -> None:
        self._linear = linear
        self._sums: dict[Var, Array] = {}
        # Devices that share a value and used it differently each hold a part of its cotangent (see `ops.collectives`):
        # parts over the same axes are added up first.
        self._parts: dict[Var, dict[frozenset[Any], Array]] = {}

    def collect(self, a: Atom, ct: Array | None) -> None:
        if ct is None or not isinstance(a, Var) or a not in self._linear:
            return
        if ct.type.vma <= a.type.vma:
            self._sums[a] = add(self._sums[a], ct) if a in self._sums else ct
        else:
            found, key = self._parts.setdefault(a, {}), ct.type.vma - a.type.vma
            found[key] = add(found[key], ct) if key in found else ct

    def variables(self) -> set[Var]:
        """Those that have a cotangent now."""
        return {*self._sums, *self._parts}

    def total(self, v: Var) -> Array | None:
        """The cotangent of ``v``, which is taken out; None is zero."""
        ct = self._sums.pop(v, None)
        for part in self._parts.pop(v, {}).values():
            whole = psum_to_vma(part, v.type.vma)
            ct = whole if ct is None else add(ct, whole)
        return ct if ct is None or not v.type.vma else as_varying(ct, v.type.vma)


def transpose_program(program: Program, linear: tuple[bool, ...], nonzero: tuple[bool, ...]) -> Program:
    """The program (known inputs..., cotangents of the ``nonzero`` results...) -> cotangents of the linear inputs.

    Zero cotangents are written out. Kept with ``program``.
    """

    def make() -> Program:
        known_types = [t for t, l in zip(program.in_types, linear, strict=True) if not l]
        ct_types = [t.strong() for t, n in zip(program.out_types, nonzero, strict=True) if n]

        def flat(*xs: Array) -> Arrays:
            known = iter(xs[: len(known_types)])
            cts = iter(xs[len(known_types) :])
            args = [None if l else next(known) for l in linear]
            found = backward_pass(program, args, [next(cts) if n else None for n in nonzero])
            return [
                ct if ct is not None else zeros(t)
                for ct, t, l in zip(found, program.in_types, linear, strict=True)
                if l
            ]

        return stage(flat, [*known_types, *ct_types], f"transpose({program.name})")

    return program.derive(("transpose", linear, nonzero), make)


def linear_transpose(
    fun: Callable[..., Any], *primals: PyTree, reduce_axes: Sequence[str] = ()
) -> Callable[[Any], tuple[Any, ...]]:
    """The transpose of a linear function: cotangents of results to cotangents of arguments.

    Args:
        fun: linear in all its arguments.
        *primals: arrays or `ShapeDtypeStruct` that give the arguments' types.

    Raises:
        DtypeError: an argument that is neither float nor complex.

    >>> f_t = linear_transpose(lambda x: 3.0 * x, nx.ShapeDtypeStruct((), nx.float32))
    >>> float(f_t(nx.float32(2.0))[0])
    6.0
    """
    needs_function("linear_transpose", fun, "linear_transpose(f, x)")
    leaves, treedef = tree.flatten(primals)
    types = [type_of(x, "linear_transpose") for x in leaves]
    for t in types:
        if t.dtype not in dtypes.INEXACT:
            raise DtypeError("linear_transpose: arguments must be float or complex", got=t)
    flat = FlatFunction(fun, treedef)
    program = stage(flat, types, name_of(fun))

    def transpose(cts: Any) -> tuple[Any, ...]:
        flat_cts = flatten_cotangents(flat.out_def, program.out_types, cts, "linear_transpose")
        found = backward_pass(program, [None] * len(types), flat_cts)
        return tree.unflatten(treedef, [zeros(t) if ct is None else ct for ct, t in zip(found, types, strict=True)])

    return transpose


def flatten_cotangents(out_def: tree.TreeDef, types: Sequence[Any], cts: Any, where: str) -> list[Array | None]:
    """Leaves of ``cts``, checked against the results' types; float0 leaves are zero."""
    found: list[Array | None] = []
    for t, ct in zip(types, tree.flatten_up_to(out_def, cts, f"{where}: cotangent"), strict=True):
        if getattr(ct, "dtype", None) == dtypes.float0 or t.dtype not in dtypes.INEXACT:
            found.append(None)
            continue
        x = as_value(ct, where)
        if x.shape != t.shape or (x.dtype != t.dtype and not x.type.weak):
            raise DtypeError(f"{where}: cotangent has another type than the result", got=x.type, expected=t)
        found.append(cast(x, t.dtype))
    return found
