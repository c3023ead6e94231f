"""From the tree and the types of arguments to a program: a jitted function, traced.

Knows nothing of how the program is compiled or called.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

from nxjax.config import current_settings
from nxjax.config.named_tuple import NamedTuple
from nxjax.errors import TransformDisabledError
from nxjax.trace import tree
from nxjax.trace.core import Array
from nxjax.trace.sharding import Sharding
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType
from nxjax.transforms.jit_options import shardings_of, with_sharding
from nxjax.transforms.jit_stages import CallInfo, Traced

if TYPE_CHECKING:
    from nxjax.transforms.jit import Jitted


@final
class TracedCall(NamedTuple):
    """What a trace takes from a call.

    Attributes:
        args, kwargs: the arguments.
        in_tree, types: of those that are not static, flat.
        statics: the others, as `Arguments.statics` gives them.
        state: what a program depends on besides.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    in_tree: tree.TreeDef
    types: tuple[ArrayType, ...]
    statics: Any
    state: Any


def traced(jitted: Jitted[..., Any], call: TracedCall) -> Traced:
    """The program of ``jitted`` for the types of ``call``."""
    args, kwargs, in_tree, types, statics, _ = call
    arguments = jitted.arguments
    if current_settings().no_tracing:
        raise TransformDisabledError(
            f"jit: {arguments.name} would be traced, and `no_tracing` is set",
            got=", ".join(map(str, types)),
            fix="call it with arguments of these types before, or see nx.explain_retrace(f)",
        )
    jitted.trace_count += 1
    fixed = {name: value for name, _, value in statics or ()}
    out_trees: list[tree.TreeDef] = []

    def flat(*xs: Array) -> Sequence[Any]:
        if ins:
            xs = tuple(with_sharding(x, s) for x, s in zip(xs, ins, strict=True))
        dynamic_args, dynamic_kwargs = tree.unflatten(in_tree, xs)
        rest = iter(dynamic_args)
        full = [fixed[i] if i in fixed else next(rest) for i in range(len(args))]
        named = {k: v for k, v in fixed.items() if isinstance(k, str)}
        result = jitted.fun(*full, **dynamic_kwargs, **named)
        ys, out_tree = tree.flatten(result)
        out_trees.append(tree.with_sorted_keys(out_tree))
        outs[:] = shardings_of(jitted.out_shardings, result, "jit: out_shardings")
        return [with_sharding(y, s) for y, s in zip(ys, outs, strict=True)] if outs else ys

    names = arguments.names(args, kwargs)
    names = names if len(names) == len(types) else []
    ins, outs = arguments.shardings(args, kwargs), list[Sharding | None]()
    for i, (s, t) in enumerate(zip(ins, types, strict=False)):
        if s is not None:
            s.check(t.shape, f"jit: in_shardings of argument {names[i] if i < len(names) else i}")
    program = stage(flat, types, arguments.name, names)
    donate = arguments.donated(args, kwargs)
    return Traced(program, in_tree, out_trees[0], jitted, donate, CallInfo(ins, outs, names))
