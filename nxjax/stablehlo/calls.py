"""Rules of custom calls: annotations are dropped, known routines become ops, anything else is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax.lower.stablehlo.module import Opaque
from nxjax.ops import special
from nxjax.ops.shape import transpose
from nxjax.ops.sort import take_along
from nxjax.stablehlo.linalg import NAMED, config, lapack
from nxjax.stablehlo.sorting import top_k
from nxjax.stablehlo.walk import CALLBACK, TOKEN, Operation, Scope, refused, result, rule
from nxjax.trace.core import Array

# They say where and how something is computed, not what.
MARKS: Final = frozenset(
    ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "LayoutConstraint",
     "xla.sdy.FuncResultSharding", "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "ResizeAnnotation")
)  # fmt: skip
# Errors that the program raises about itself, on shapes that are known here.
CHECKS: Final = frozenset(("shape_assertion",))
_CALLBACKS: Final = ("xla_python", "xla_ffi_python", "CallbackToHost", "tf.call_tf", "xla_buffer")


def _mhlo_topk(op: Operation, x: Array) -> Any:
    a = op.attributes.get("mhlo.attributes") or config(op)
    return top_k(op, x, int(a["k"]), bool(a.get("largest", True)))


def _approx_top_k(op: Operation, values: Array, indices: Array, *starts: Array) -> Any:
    """The exact answer, which is always good enough; the comparator's name says which end is asked for."""
    a = config(op)
    axis, k = int(a["reduction_dim"]), int(a["top_k"])
    if result(op).shape[axis] != k:
        raise refused(op, "candidates that are not reduced to the k best")
    order = (*(i for i in range(values.ndim) if i != axis), axis)
    inverse = tuple(sorted(range(len(order)), key=order.__getitem__))

    (comparator,) = op.attributes["called_computations"]
    found, at = top_k(op, transpose(values, permutation=order), k, "_gt_" in comparator)
    chosen = take_along(transpose(indices, permutation=order), at, values.ndim - 1)
    return transpose(found, permutation=inverse), transpose(chosen, permutation=inverse)


_TARGETS: Final[dict[str, Callable[..., Any]]] = {
    **NAMED,
    "mhlo.topk": _mhlo_topk,
    "mhlo.erf": lambda op, x: special.erf(x),
    "TopK": lambda op, x: top_k(op, x, result(op).shape[-1], True),
    "ApproxTopK": _approx_top_k,
    "PartialReduce": _approx_top_k,
}


@rule("stablehlo.custom_call")
def _custom_call(scope: Scope, op: Operation, *xs: Any) -> Any:
    target = op.attributes["call_target_name"]
    if target in MARKS:
        if len(op.results) != 1 or not xs:
            raise refused(op, f"{target}: not an annotation of one value")
        if not op.results[0].type == xs[0].type:
            raise refused(op, f"{target} changes the shape: the parts of a partitioned program have no meaning alone")
        return xs[0]
    if target in CHECKS:
        return ()
    if target == CALLBACK and scope.importer.callbacks:
        types = tuple(result(op, i) for i in range(len(op.results)))
        return scope.importer.callbacks[int(op.attributes["backend_config"])](types, *xs)
    if target.startswith("lapack_"):
        return lapack(op, target, xs)
    found = _TARGETS.get(target)
    if found is not None:
        return found(op, *xs)
    if target.startswith(_CALLBACKS):
        raise refused(
            op, f"{target}: it calls a Python function of the process that exported it", "leave the callback out"
        )
    if op.results and all(isinstance(v.type, Opaque) for v in op.results):
        return (TOKEN,) * len(op.results)
    raise refused(op, f"nothing is known about the target {target!r}")
