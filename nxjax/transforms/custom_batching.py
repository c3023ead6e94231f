"""`custom_vmap`: a function with the user's own way to be batched; `sequential_vmap`: a loop over the batch.

The call is one op that holds the traced function and the rule. `jit`, `scan` and forward mode keep the rule; reverse
mode differentiates the function, as if it had none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar, final

from nxjax.errors import MissingRuleError, ParameterError, TreeError
from nxjax.ops.base import move_batch
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.program import Program, run
from nxjax.transforms.control.mapping import map as map_op
from nxjax.transforms.custom_call import CustomCall, CustomFunction
from nxjax.transforms.has_aux import check_pair
from nxjax.transforms.jvp import jvp_flat, zero_tangent
from nxjax.transforms.nested import batch_to_front, jvp_program
from nxjax.transforms.partial_eval import PartialTrace
from nxjax.transforms.subprograms import Mask, expand_by_mask, not_none_mask

P = ParamSpec("P")
R = TypeVar("R")

# (size, which arguments are batched, arguments) -> (results, which are batched)
Rule = Callable[[int, Mask, Arrays], tuple[list[Array], Mask]]


@final
class CustomVmapCall(CustomCall):
    """``rule`` is a `Rule`."""

    name = "custom_vmap_call"
    aliases = {"call": "program"}

    def jvp(
        self, primals: Arrays, tangents: Tangents, *, program: Program, num_consts: int, rule: Rule
    ) -> tuple[Any, Any]:
        varying = not_none_mask(tangents)
        pushed, varies = jvp_program(program, varying)
        hoisted, consts = pushed.hoist_consts()
        lifted = _JvpRule(rule, len(consts), num_consts, varying, varies)
        operands = [*consts, *primals, *(t for t in tangents if t is not None)]
        out = self(*operands, program=hoisted, num_consts=len(consts) + num_consts, rule=lifted)
        n = len(program.outputs)
        return out[:n], tuple(expand_by_mask(out[n:], varies))

    def partial_eval(
        self, trace: PartialTrace, args: Arrays, known: Mask, *, program: Program, num_consts: int, rule: Rule
    ) -> tuple[Array, ...]:
        return tuple(run(program, args))

    def batch_axis(
        self, axis_name: Any, size: int, args: Arrays, dims: Dims, *, program: Program, num_consts: int, rule: Rule
    ) -> tuple[Any, Any]:
        mask = not_none_mask(dims)
        if any(mask[:num_consts]) and not isinstance(rule, _JvpRule):
            raise ParameterError(
                f"custom_vmap: {program.name or 'the function'} closes over a value that is batched",
                got="a traced value that is not an argument",
                fix="pass it as an argument of the function, so that the rule can answer for it",
            )
        front = batch_to_front(args, dims, size)
        if isinstance(rule, _JvpRule):
            ys, out = rule(size, mask, front)
        else:
            ys, out = rule(size, mask[num_consts:], front[num_consts:])
        for y, batched, t in zip(ys, out, program.out_types, strict=True):
            wanted = (size, *t.shape) if batched else t.shape
            if y.shape != wanted:
                raise ParameterError(
                    "custom_vmap: the rule gives a result of another shape",
                    got=y.type,
                    expected=f"{'the batch first, ' if batched else ''}shape {wanted}",
                )
        return tuple(ys), tuple(0 if b else None for b in out)


custom_vmap_call = CustomVmapCall()


@final
class _UserRule:
    """The user's rule on flat arguments."""

    def __init__(self, owner: custom_vmap[..., Any], in_def: tree.TreeDef) -> None:
        self.owner = owner
        self.in_def = in_def
        self.__qualname__ = f"vmap of {owner.__name__}"

    def __call__(self, size: int, mask: Mask, args: Arrays) -> tuple[list[Array], Mask]:
        assert self.owner.vmap_rule is not None
        name = self.owner.__name__
        found = self.owner.vmap_rule(
            size, list(tree.unflatten(self.in_def, list(mask))), *tree.unflatten(self.in_def, args)
        )
        y, batched = check_pair(f"custom_vmap: the rule of {name}", found, "(results, which of them are batched)")
        ys, y_def = tree.flatten(y)
        flags, flag_def = tree.flatten(batched)
        if flag_def != y_def:
            raise TreeError(
                f"custom_vmap: the rule of {name} says of another structure which results are batched",
                got=flag_def,
                expected=y_def,
            )
        return [as_value(v, "custom_vmap") for v in ys], tuple(bool(f) for f in flags)


@final
class _JvpRule:
    """The forward derivative of ``rule``: arguments are consts, primals, and tangents of the ``varying`` ones."""

    def __init__(self, rule: Rule, new_consts: int, num_consts: int, varying: Mask, varies: Mask) -> None:
        self.rule = rule
        self.new_consts = new_consts
        self.num_consts = num_consts
        self.varying = varying
        self.varies = varies
        self.__qualname__ = f"jvp of {getattr(rule, '__qualname__', 'rule')}"

    def __call__(self, size: int, mask: Mask, args: Arrays) -> tuple[list[Array], Mask]:
        n = len(self.varying)
        primals, ts = list(args[self.new_consts :][:n]), expand_by_mask(args[self.new_consts + n :], self.varying)
        batched_p = list(mask[self.new_consts :][:n])
        batched_t = expand_by_mask(mask[self.new_consts + n :], self.varying)
        for i, t in enumerate(ts):
            if t is not None and batched_t[i] != batched_p[i]:  # both vary, or none does
                if batched_p[i]:
                    ts[i] = move_batch(t, None, size)
                else:
                    primals[i] = move_batch(primals[i], None, size)
                    batched_p[i] = True
        flags: list[Mask] = []
        skip = 0 if isinstance(self.rule, _JvpRule) else self.num_consts

        def call(*xs: Array) -> Arrays:
            ys, out = self.rule(size, tuple(batched_p[skip:]), xs[skip:])
            flags[:] = [out]
            return ys

        ys, dys = jvp_flat(call, primals, ts)
        pushed: list[Array] = []
        for y, t, varies in zip(ys, dys, self.varies, strict=True):
            if varies:
                pushed.append(move_batch(zero_tangent(y.type), 0, size) if t is None else t)
        out = flags[0]
        return [*ys, *pushed], (*out, *(b for b, v in zip(out, self.varies, strict=True) if v))


@final
class custom_vmap(CustomFunction[P, R]):
    """A function with a custom batching rule, set by `def_vmap`.

    Args:
        fun: function of pytrees.

    Raises:
        AttributeError: called before its rule is defined.

    >>> @custom_vmap
    ... def f(x, y):
    ...     return x + y
    >>> @f.def_vmap
    ... def f_vmap(axis_size, in_batched, xs, ys):
    ...     return xs * ys, True
    >>> nx.vmap(f)(nx.arange(3), nx.arange(1, 4)).tolist()
    [0, 2, 6]
    """

    transform = "custom_vmap"
    op = custom_vmap_call

    def __init__(self, fun: Callable[P, R]) -> None:
        super().__init__(fun)
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """``vmap_rule(axis_size, in_batched, *args) -> (results, which are batched)``; batches are in dimension 0.

        ``in_batched`` has the arguments' structure, and the second result has that of the results.
        """
        self.vmap_rule = vmap_rule
        self._rules.clear()
        return vmap_rule

    def has_rule(self) -> bool:
        if self.vmap_rule is None:
            raise MissingRuleError(
                f"custom_vmap: {self.__name__} has no rule", fix=f"give it one with {self.__name__}.def_vmap"
            )
        return True

    def flat_rule(self, args: Sequence[Any], in_def: tree.TreeDef) -> _UserRule:
        return _UserRule(self, in_def)


def sequential_vmap(f: Callable[P, R]) -> custom_vmap[P, R]:
    """A function that `vmap` calls for one element after the other, in a loop.

    >>> @sequential_vmap
    ... def f(x):
    ...     return x + 1
    >>> nx.vmap(f)(nx.arange(3)).tolist()
    [1, 2, 3]
    """
    function: custom_vmap[..., Any] = custom_vmap(f)

    def rule(axis_size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        leaves, treedef = tree.flatten(args)
        mask = tree.leaves(tuple(in_batched))
        moving = [x for x, b in zip(leaves, mask, strict=True) if b]

        def one(xs: Any) -> Any:
            rest = iter(xs)
            return function(
                *tree.unflatten(treedef, [next(rest) if b else x for x, b in zip(leaves, mask, strict=True)])
            )

        out = map_op(one, moving)
        return out, tree.map(lambda _: True, out)

    function.def_vmap(rule)
    return function
