"""Which arguments of a program are weights, and the program with their values known.

A device that wants weights as constants gets those that a call was given. That is a guess about later calls, never
about results: whoever binds values compares them at every call. Names ops only where operands hold weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, Var
from nxjax.transforms.inline import inlined

# Products, and the operands of theirs that hold what was learned.
_PRODUCTS: Final = {
    "dot_general": (1,),
    "conv_general_dilated": (1,),
    "qdot": (1, 2, 3),
    "qconv": (1, 2, 3),
    "layer_norm": (1, 2),
    "rms_norm": (1,),
    "batch_norm_inference": (1, 2, 3, 4),
    "prelu": (1,),
    "qprelu": (1,),
    "gather": (0,),
}
_MOVES: Final = frozenset(("broadcast_in_dim", "reshape", "copy", "transpose"))
# What repeats a value of so many elements more is computed where it is read.
_GROWN: Final = 4096


def weight_inputs(program: Program) -> tuple[int, ...]:
    """Positions of the inputs of a flat program that look like weights.

    Inputs that reach the second operand of a product, its scales or biases, on a way without other products, and no
    product's first operand; and those of at most one dimension that are only spread over larger values.

    >>> f = lambda p, x: nx.nn.relu(x @ p["w"] + p["b"])
    >>> weight_inputs(inlined(nx.make_jaxpr(f)({"w": nx.ones((3, 2)), "b": nx.ones(2)}, nx.ones((4, 3)))))
    (0, 1)
    """
    # Inputs that a variable depends on without a product between; and of which it is nothing but a copy.
    reach: dict[Var, set[int]] = {v: {i} for i, v in enumerate(program.inputs)}
    copies: dict[Var, set[int]] = dict(reach)
    data: set[int] = set()
    fed: set[int] = set()
    weights: set[int] = set()
    elsewhere: set[int] = set()
    for e in program.equations:
        read = [a for a in e.inputs if isinstance(a, Var)]
        held = _PRODUCTS.get(e.op.name)
        moves = e.op.name in _MOVES
        for n, a in enumerate(e.inputs):
            if isinstance(a, Var) and held is not None:
                (weights if n in held else data).update(reach.get(a, ()))
                fed.update(copies.get(a, ()) if n not in held else ())
            elif a in program.inputs and not moves:
                elsewhere.update(reach.get(a, ()))  # pyright: ignore[reportArgumentType]
        for v in e.outputs:
            reach[v] = set() if held is not None else set[int]().union(*(reach.get(a, ()) for a in read))
            copies[v] = copies.get(read[0], set()) if moves and read else set()
    results = {i for i, v in enumerate(program.inputs) if v in program.outputs}
    read_ones = {a for e in program.equations for a in e.inputs}
    spread = {
        i
        for i, v in enumerate(program.inputs)
        if len(v.type.shape) == 1 and v in read_ones and i not in elsewhere | fed
    }
    return tuple(sorted((weights - data | spread) - results))


def settled(program: Program, compute: Callable[[Program], Sequence[Array]]) -> Program:
    """A flat program without what depends on its consts alone: computed once by ``compute``, and made consts.

    ``compute`` runs a program that has no inputs. Results that are much larger than what they are made of, such as a
    bias spread over a batch, stay equations.
    """
    flat = dead_code_eliminated(inlined(program))
    known: set[Var] = set(flat.constvars)
    read_by_known: set[Var] = set()
    fixed: list[bool] = []
    for e in flat.equations:
        read = [a for a in e.inputs if isinstance(a, Var)]
        fixed.append(not e.effect and all(a in known for a in read))
        if fixed[-1]:
            known.update(e.outputs)
            read_by_known.update(read)
    done: list[Equation] = []
    left: list[Equation] = []
    for e, still in zip(flat.equations, fixed, strict=True):
        grown = sum(v.type.size for v in e.outputs) - sum(a.type.size for a in e.inputs if isinstance(a, Var))
        spread = grown > _GROWN and read_by_known.isdisjoint(e.outputs)
        (done if still and not spread else left).append(e)
    if not done:
        return _trimmed(flat, flat.equations, dict(zip(flat.constvars, flat.values, strict=True)))
    # In their order: times are kept by what a program is, which depends on the order of its consts.
    made = [v for e in done for v in e.outputs]
    wanted = {a for e in left for a in e.inputs if isinstance(a, Var)} | {a for a in flat.outputs if isinstance(a, Var)}
    outputs = [v for v in made if v in wanted]
    values: dict[Var, Any] = dict(zip(flat.constvars, flat.values, strict=True))
    if outputs:
        part = Program((), done, outputs, flat.constvars, flat.values, f"{program.name}_known")
        values.update(zip(outputs, compute(part), strict=True))
    return _trimmed(flat, left, values)


def _trimmed(flat: Program, equations: Sequence[Equation], values: dict[Var, Any]) -> Program:
    """The program of these equations, with the consts that it reads."""
    read = {a for e in equations for a in e.inputs} | set(flat.outputs)
    consts = [v for v in values if v in read]
    return Program(flat.inputs, equations, flat.outputs, consts, [values[v] for v in consts], flat.name)
