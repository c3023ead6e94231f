"""`cond` and `switch`: one of several functions, chosen by an index.

They stage the functions, and bring the results to one structure and one type. What becomes of the branches then is up
to the op (`cond_op`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.config import config
from nxjax.errors import BranchTypeError, DtypeError, ParameterError, ShapeError
from nxjax.ops.arithmetic import max as maximum
from nxjax.ops.arithmetic import min as minimum
from nxjax.ops.collectives import as_varying
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes, tree
from nxjax.trace.annotations import ArrayLike, PyTree
from nxjax.trace.array import DeviceArray, as_value, wrap
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays
from nxjax.trace.program import Literal, Program, run
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.trace.wrapping import name_of
from nxjax.transforms.control.cond_branches import Branches
from nxjax.transforms.control.cond_op import cond_op
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.nested import pvary_inputs
from nxjax.transforms.subprograms import forwarded_inputs, hoist_all_consts, select_inputs_and_results


@api_boundary
def cond(
    pred: ArrayLike, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: PyTree, **old: PyTree
) -> PyTree:
    """``true_fun(*operands)`` if ``pred`` else ``false_fun(*operands)``; only one of them runs.

    Args:
        pred: boolean scalar; a number means "is not zero".
        true_fun, false_fun: functions with results of the same structure and types.
        *operands: pytrees; ``operand=x`` is accepted for a single one, and so is the old order
            ``cond(pred, true_operand, true_fun, false_operand, false_fun)``.

    Raises:
        BranchTypeError: the two results differ in structure or type.
        ParameterError: not two functions, or unknown arguments.
        ShapeError, DtypeError: ``pred`` is not a boolean or number without dimensions.

    >>> float(cond(True, lambda x: x + 1, lambda x: x - 1, 1.0))
    2.0
    """
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        # The former order: cond(pred, true_operand, true_fun, false_operand, false_fun).
        yes, no = false_fun, operands[1]
        pair = (true_fun, operands[0])
        return cond(pred, lambda xs: yes(xs[0]), lambda xs: no(xs[1]), pair)
    if not (callable(true_fun) and callable(false_fun)):
        raise ParameterError(
            "cond: needs two functions",
            got=f"{type(true_fun).__name__} and {type(false_fun).__name__}",
            fix="cond(pred, true_fun, false_fun, *operands)",
        )
    if "operand" in old:
        if operands:
            raise ParameterError("cond: operands given twice", got="positions and operand=")
        operands = (old.pop("operand"),)
    old.pop("linear", None)
    if old:
        raise ParameterError("cond: unknown arguments", got=", ".join(old))
    value = as_value(pred, "cond: pred")
    if value.shape:
        raise ShapeError("cond: pred must be a scalar", got=value.type, fix="use nx.where to choose element by element")
    if value.dtype not in dtypes.NUMERIC:
        raise DtypeError("cond: pred must be boolean or a number", got=value.type)
    if value.dtype != dtypes.bool_:
        value = convert_element_type(value, dtype=dtypes.bool_)
    index = convert_element_type(value, dtype=dtypes.int32)
    return _choose_branch("cond", index, (false_fun, true_fun), operands, ("false_fun", "true_fun"))


@api_boundary
def switch(
    index: ArrayLike, branches: Sequence[Callable[..., Any]], *operands: PyTree, operand: PyTree = tree.NOT_GIVEN
) -> PyTree:
    """``branches[index](*operands)``; the index is clamped into range.

    Args:
        index: an integer without dimensions.
        branches: functions of ``operands`` whose results have one structure, shape and dtype.
        operands: pytrees of arrays; ``operand=x`` is accepted for a single one.

    Raises:
        BranchTypeError: the branches' results differ in structure or type.
        ParameterError: not a sequence of functions, or operands given twice.
        ShapeError, DtypeError: ``index`` is not an integer scalar.

    >>> float(switch(1, [lambda x: x, lambda x: x * 10], 2.0))
    20.0
    """
    functions = tuple(branches)
    if not functions or not all(callable(f) for f in functions):
        raise ParameterError("switch: needs a sequence of functions", got=f"{len(functions)} branches")
    if operand is not tree.NOT_GIVEN:
        if operands:
            raise ParameterError("switch: operands given twice", got="positions and operand=")
        operands = (operand,)
    value = as_value(index, "switch: index")
    if value.shape:
        raise ShapeError("switch: the index must be a scalar", got=value.type)
    if value.dtype not in dtypes.INTEGER:
        raise DtypeError("switch: the index must be an integer", got=value.type)
    if len(functions) == 1:
        return functions[0](*operands)
    if value.dtype != dtypes.int32:
        if value.dtype in dtypes.UNSIGNED:
            # The most that int32 holds, too, and no more than the index's own dtype does.
            most = min(len(functions) - 1, int(dtypes.integer_info(value.dtype).max))
            value = minimum(value, wrap(np.asarray(most, value.dtype)))
        value = convert_element_type(value, dtype=dtypes.int32)
    last = wrap(np.asarray(len(functions) - 1, np.int32))
    clamped = minimum(maximum(value, wrap(np.asarray(0, np.int32))), last)
    return _choose_branch("switch", clamped, functions, operands, [f"branch {i}" for i in range(len(functions))])


def _choose_branch(
    where: str, index: Array, functions: Sequence[Callable[..., Any]], operands: tuple[Any, ...], names: Sequence[str]
) -> Any:
    if config.disable_jit and isinstance(index, DeviceArray):
        return functions[int(index.numpy())](*operands)
    leaves, treedef = tree.flatten(operands)
    vma = index.type.vma
    xs = [as_varying(as_value(x, where), vma) for x in leaves]
    types = [x.type for x in xs]
    arg_names = tree.path_names(operands, "operands")
    flats = [FlatFunction(f, treedef) for f in functions]
    programs = [stage(f, types, name_of(f.function, where), arg_names) for f in flats]
    out_def = _one_structure(where, names, [f.out_def for f in flats])
    paths = tree.path_names(tree.unflatten(out_def, range(out_def.num_leaves)), "result")
    columns = zip(*(p.out_types for p in programs), strict=True)
    wanted = [_common_type(where, path, names, column) for path, column in zip(paths, columns, strict=True)]
    if vma:
        wanted = [t.with_vma(t.vma | vma) for t in wanted]
    branches, consts = hoist_all_consts(programs)
    if vma:
        # Devices may take different branches: what they share with each other, they share outside. So this comes before
        # results are made to vary, whose transpose is a sum over all devices.
        branches = tuple(pvary_inputs(b, [vma] * len(b.inputs)) for b in branches)
        consts = [as_varying(c, vma) for c in consts]
    branches = tuple(_converted(b, wanted) for b in branches)
    every = (*consts, *xs)
    handed = _forwarded_operands(branches, every)
    branches = tuple(select_inputs_and_results(b, b.inputs, [x is None for x in handed]) for b in branches)
    out = iter(cond_op(index, *every, branches=branches))
    return tree.unflatten(out_def, [next(out) if x is None else x for x in handed])


def _one_structure(where: str, names: Sequence[str], found: Sequence[tree.TreeDef]) -> tree.TreeDef:
    for name, out_def in zip(names, found, strict=True):
        if out_def != found[0]:
            raise BranchTypeError(
                f"{where}: results differ in structure",
                got=f"{name} gives {out_def}",
                expected=f"{found[0]}, as {names[0]} gives",
            )
    return found[0]


def _forwarded_operands(branches: Branches, operands: Arrays) -> list[Array | None]:
    """The results that do not depend on the choice: what all branches hand on from one operand, or from outside."""
    handed = [
        [
            a.value if isinstance(a, Literal) else None if i is None else operands[i]
            for a, i in zip(b.outputs, forwarded_inputs(b), strict=True)
        ]
        for b in branches
    ]
    return [column[0] if all(_equal(x, column[0]) for x in column) else None for column in zip(*handed, strict=True)]


def _equal(x: Array | None, y: Array | None) -> bool:
    """Whether two operands are one value: the same one, or scalars with the same bits."""
    if x is y:
        return True
    if not (isinstance(x, DeviceArray) and isinstance(y, DeviceArray)) or x.shape or x.type != y.type:
        return False
    return x.dtype in dtypes.NUMERIC and x.numpy().tobytes() == y.numpy().tobytes()


def _common_type(where: str, path: str, names: Sequence[str], types: Sequence[ArrayType]) -> ArrayType:
    """The one type of a result. Weak ones yield to others; of equal dtypes it is weak if the first is, as in JAX."""
    first = types[0]
    vma = first.vma.union(*(t.vma for t in types))
    if all(t.typematch(first) for t in types):
        return ArrayType(first.shape, first.dtype, first.weak, vma)
    strong = {t.dtype for t in types if not t.weak}
    if all(t.shape == first.shape and t.dtype in dtypes.NUMERIC for t in types) and len(strong) <= 1:
        dtype, weak = dtypes.promote(*((t.dtype, t.weak) for t in types))
        if not strong or dtype in strong:
            return ArrayType(first.shape, dtype, weak, vma)
    raise BranchTypeError(
        f"{where}: branches give different types at {path}",
        got="; ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True)),
        expected="equal shapes and dtypes",
        fix="cast with .astype(...)" if all(t.shape == first.shape for t in types) else "give equal shapes",
    )


def _converted(program: Program, wanted: Sequence[ArrayType]) -> Program:
    if all(t.typematch(w) and t.vma == w.vma for t, w in zip(program.out_types, wanted, strict=True)):
        return program
    hoisted, consts = program.hoist_consts()

    def flat(*xs: Array) -> Arrays:
        ys = run(hoisted, [*consts, *xs])
        return [
            as_varying(y if y.type.typematch(w) else convert_element_type(y, dtype=w.dtype, weak=w.weak), w.vma)
            for y, w in zip(ys, wanted, strict=True)
        ]

    return stage(flat, program.in_types, program.name)
