"""`jax.interpreters.partial_eval`: what of a function known values decide. See `nxjax.transforms.partial_eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.trace.array import as_value
from nxjax.trace.core import Array, current_trace, use
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.trace.program import Program
from nxjax.trace.stage import StageTracer as DynamicJaxprTracer
from nxjax.trace.stage import StageTracer as JaxprTracer
from nxjax.trace.types import ArrayType
from nxjax.transforms.linear_util import WrappedFun
from nxjax.transforms.partial_eval import PartialTrace

__all__ = ["DynamicJaxprTracer", "JaxprTracer", "PartialVal", "trace_to_jaxpr_nounits"]
__getattr__ = _refusing(__name__)


@final
class PartialVal(tuple[Any, Any]):
    """A pair of a type and a value, one of which is None: the type of what is unknown, or a known value.

    >>> PartialVal.unknown(nx.core.ShapedArray((2,), nx.float32)).is_known(), PartialVal.known(1.0).get_known()
    (False, 1.0)
    """

    @classmethod
    def known(cls, value: Any) -> PartialVal:
        return cls((None, value))

    @classmethod
    def unknown(cls, aval: ArrayType) -> PartialVal:
        return cls((aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """The value; None if it is unknown."""
        return self[1]

    def get_aval(self) -> ArrayType:
        """The type, of both kinds."""
        return as_value(self[1], "PartialVal").type if self[0] is None else self[0]


def trace_to_jaxpr_nounits(
    fun: WrappedFun, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False
) -> tuple[Program, list[PartialVal], list[Array]]:
    """Run a flat function on known values and types: what depends on known values only is computed.

    Args:
        fun: what `linear_util.wrap_init` gives, of flat arguments and results.
        pvals: its arguments.
        instantiate: whether results count as unknown even if they are known; one for all, or one each.

    Returns:
        the program of the rest, a function of the unknown arguments with what it reads of the known part as consts;
        the results, each known or unknown; the consts.

    >>> from nxjax.transforms.linear_util import wrap_init
    >>> pvals = [PartialVal.known(2.0), PartialVal.unknown(nx.core.ShapedArray((), nx.float32))]
    >>> program, out, _ = trace_to_jaxpr_nounits(wrap_init(lambda x, y: [nx.numpy.sin(x), x * y]), pvals)
    >>> [v.is_known() for v in out], [e.primitive.name for e in program.eqns]
    ([True, False], ['mul'])
    """
    trace = PartialTrace(current_trace(), fun.__name__)
    inputs = [v.get_known() if v.is_known() else trace.input(v.get_aval()) for v in pvals]
    with use(trace):
        outputs = list(fun.call_wrapped(*inputs))
    forced = [instantiate] * len(outputs) if isinstance(instantiate, bool) else list(instantiate)
    values = [as_value(y, fun.__name__) for y in outputs]
    staged = [force or not known for force, known in zip(forced, trace.known(values), strict=True)]
    program = trace.finish([y for y, late in zip(values, staged, strict=True) if late])
    results = [
        PartialVal.unknown(v.type) if late else PartialVal.known(y)
        for v, y, late in zip(values, outputs, staged, strict=True)
    ]
    return program, results, list(program.values)
