"""Networks as pytrees: thin modules over the pure functions of `nxjax.nn` and `nxjax.lax`. See `base.Module`."""
