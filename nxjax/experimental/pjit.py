"""`jax.experimental.pjit`: the name that `jit` had for programs over several devices."""

from nxjax.transforms.jit import jit as pjit

__all__ = ["pjit"]
