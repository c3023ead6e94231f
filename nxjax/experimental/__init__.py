"""`jax.experimental`'s names."""

from nxjax.transforms.callback import io_callback

__all__ = ["io_callback"]
