"""Variables: handles, reads and writes of what a model keeps from call to call, as an explicit state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.graph import TFLiteFile, TFLiteNode
from nxjax.interop.tflite.walk import TFLiteScope, TFLiteWalker, on_grid_of, rule


@final
@dataclass(frozen=True)
class Handle:
    """What names a variable or a table between operators."""

    name: str


def first_state(model: TFLiteFile, seed: int) -> dict[str, Any]:
    """What variables hold before the first call: what graphs that run once assign, zeros in tensors of operators."""
    walker = TFLiteWalker(model, {}, None, seed)
    for tensor in (t for g in model.graphs for t in g.tensors if t.variable):
        zero = np.zeros(tensor.shape, tensor.dtype)
        if tensor.grid is not None:
            zero = zero + tensor.grid.zeros[0].astype(tensor.dtype)
        walker.state[tensor.name] = on_grid_of(tensor, jnp.asarray(zero))
    for node in (n for g in model.graphs for n in g.nodes if n.kind == "CALL_ONCE"):
        walker.call(int(node.options["init_subgraph_index"]), ())
    return walker.state


@rule("CALL_ONCE")
def _call_once() -> Any:
    return ()


@rule("VAR_HANDLE")
def _handle(*, container: Any, shared_name: Any) -> Any:
    return Handle("/".join(filter(None, (container, shared_name))) or "variable")


@rule("READ_VARIABLE", on_grids="held")
def _read(handle: Handle, *, scope: TFLiteScope, node: TFLiteNode) -> Any:
    found = scope.walker.state.get(handle.name)
    if found is None:
        raise Refused("from_tflite: a variable is read before it is set", got=f"{handle.name} at {node}")
    return on_grid_of(node.out, found)


@rule("ASSIGN_VARIABLE", on_grids="held")
def _assign(handle: Handle, x: Any, *, scope: TFLiteScope) -> Any:
    scope.walker.state[handle.name] = x
    return ()
