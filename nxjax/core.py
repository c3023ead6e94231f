"""`jax.core`'s public names that programs use: tracers and concrete checks."""

from nxjax.trace.core import Tracer
from nxjax.trace.program import Equation as JaxprEqn
from nxjax.trace.program import Literal, Program, Var
from nxjax.trace.types import ArrayType as ShapedArray

Jaxpr = ClosedJaxpr = Program

__all__ = ["ClosedJaxpr", "Jaxpr", "JaxprEqn", "Literal", "Program", "ShapedArray", "Tracer", "Var"]
