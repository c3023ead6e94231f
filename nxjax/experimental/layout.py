"""`jax.experimental.layout`: see `nxjax.runtime.layout`."""

from nxjax.runtime.layout import Format, Layout

__all__ = ["Format", "Layout"]
