"""`jax.custom_derivatives`' names."""

from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.custom_jvp import custom_jvp, custom_jvp_call
from nxjax.transforms.custom_vjp import (
    CustomVJPPrimal,
    closure_convert,
    custom_gradient,
    custom_vjp,
    custom_vjp_call,
    custom_vjp_primal_tree_values,
)
from nxjax.transforms.linear_call import linear_call
from nxjax.transforms.symbolic_zero import SymbolicZero, zero_from_primal

custom_jvp_call_p = custom_jvp_call
custom_vjp_call_p = custom_vjp_call

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]
__getattr__ = _refusing(__name__)
