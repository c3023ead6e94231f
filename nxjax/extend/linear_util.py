"""`jax.extend.linear_util`: see `nxjax.transforms.linear_util`."""

from nxjax.transforms.linear_util import Store, WrappedFun, transformation, transformation_with_aux, wrap_init

__all__ = ["Store", "WrappedFun", "transformation", "transformation_with_aux", "wrap_init"]
