"""`jax.custom_derivatives`' names."""

from nxjax.transforms.custom_jvp import custom_jvp
from nxjax.transforms.custom_vjp import CustomVJPPrimal, closure_convert, custom_gradient, custom_vjp

__all__ = ["CustomVJPPrimal", "closure_convert", "custom_gradient", "custom_jvp", "custom_vjp"]
