"""`jax.ad_checkpoint`'s names."""

from typing import NamedTuple

from nxjax.transforms.checkpoint import (
    checkpoint,
    checkpoint_name,
    checkpoint_policies,
    print_saved_residuals,
    remat,
    saved_residuals,
)

Saveable = True  # what a policy says of values that may be kept,
Recompute = False  # and of those that are computed again


class Offloadable(NamedTuple):
    """A policy's answer for values to keep in another memory. nxjax has one memory and keeps them there.

    >>> bool(Offloadable("device", "pinned_host"))
    True
    """

    src: str
    dst: str


__all__ = [
    "Offloadable",
    "Recompute",
    "Saveable",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
    "saved_residuals",
]
