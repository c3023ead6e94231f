"""Rules of `torch.cond`, `while_loop`, `map`, `scan` and of wrapped graphs."""

from __future__ import annotations

from typing import Any

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import as_numpy, concrete
from nxjax.interop.torch.graph import TorchGraph
from nxjax.interop.torch.walk import TorchWalker, rule
from nxjax.trace.core import Array


def _arrays(xs: Any) -> list[Any]:
    return [x if isinstance(x, Array) or x is None else jnp.asarray(x) for x in xs]


@rule("higher_order.cond")
def _cond(pred: Any, true_fn: TorchGraph, false_fn: TorchGraph, operands: Any = (), *, walker: TorchWalker) -> Any:
    taken, other = walker.function(true_fn), walker.function(false_fn)
    if not isinstance(pred, Array) or concrete(pred):
        return (taken if bool(as_numpy(pred)) else other)(*operands)
    return list(
        lax.cond(pred.reshape(()), lambda *xs: tuple(taken(*xs)), lambda *xs: tuple(other(*xs)), *_arrays(operands))
    )


@rule("higher_order.while_loop")
def _while(
    cond_fn: TorchGraph, body_fn: TorchGraph, carried_inputs: Any, additional_inputs: Any = (), *, walker: TorchWalker
) -> Any:
    goes, turn, more = walker.function(cond_fn), walker.function(body_fn), tuple(additional_inputs)

    def body(state: Any) -> Any:
        return tuple(y.astype(x.dtype) for x, y in zip(state, _arrays(turn(*state, *more)), strict=True))

    def on(state: Any) -> Any:
        (go,) = goes(*state, *more)
        return jnp.asarray(go).reshape(()) != 0

    return list(lax.while_loop(on, body, tuple(_arrays(carried_inputs))))


@rule("higher_order.map_impl")
def _map(f: TorchGraph, xs: Any, pos_args: Any = (), *, walker: TorchWalker) -> Any:
    turn = walker.function(f)
    return list(lax.map(lambda row: tuple(turn(*row, *pos_args)), tuple(xs)))


@rule("higher_order.scan")
def _scan(combine_fn: TorchGraph, init: Any, xs: Any, additional_inputs: Any = (), *, walker: TorchWalker) -> Any:
    turn, count = walker.function(combine_fn), len(init)

    def step(carry: Any, row: Any) -> Any:
        ys = turn(*carry, *row, *additional_inputs)
        return tuple(ys[:count]), tuple(ys[count:])

    last, rows = lax.scan(step, tuple(_arrays(init)), tuple(xs))
    return [*last, *rows]


@rule("higher_order.associative_scan")
def _associative_scan(combine_fn: TorchGraph, xs: Any, additional_inputs: Any = (), *, walker: TorchWalker) -> Any:
    turn = walker.function(combine_fn)
    return list(lax.associative_scan(lambda a, b: tuple(turn(*a, *b, *additional_inputs)), tuple(xs), axis=0))


@rule("higher_order.wrap_with_set_grad_enabled")
def _with_grad(enable_grad: bool, wrapped_func: TorchGraph, *args: Any, walker: TorchWalker) -> Any:
    made = walker.function(wrapped_func)(*args)
    return made if enable_grad else [lax.stop_gradient(y) if isinstance(y, Array) else y for y in made]


@rule("higher_order.wrap_with_autocast")
def _with_autocast(
    device_type: str, dtype: Any, enabled: bool, cache_enabled: bool | None, wrapped_func: TorchGraph, *args: Any,
    walker: TorchWalker,
) -> Any:  # fmt: skip
    return walker.function(wrapped_func)(*args)


@rule("higher_order.tag_activation_checkpoint", "higher_order.wrap", "higher_order.invoke_subgraph")
def _wrapped(wrapped_func: TorchGraph, *args: Any, walker: TorchWalker, **_: Any) -> Any:
    given = args[1:] if args and isinstance(args[0], str) else args
    return walker.function(wrapped_func)(*given)
