"""Control flow, collectives and derivative helpers under `jax.lax`'s names."""

from nxjax.transforms.collectives import (
    all_gather,
    all_to_all,
    axis_index,
    axis_size,
    pargmax,
    pargmin,
    pbroadcast,
    pcast,
    pmax,
    pmean,
    pmin,
    ppermute,
    pshuffle,
    psum,
    psum_scatter,
    pswapaxes,
    pvary,
)
from nxjax.transforms.control.cond import cond, switch
from nxjax.transforms.control.implicit import custom_linear_solve, custom_root
from nxjax.transforms.control.mapping import associative_scan, map
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import fori_loop, while_loop

__all__ = [
    "all_gather",
    "all_to_all",
    "associative_scan",
    "axis_index",
    "axis_size",
    "cond",
    "custom_linear_solve",
    "custom_root",
    "fori_loop",
    "map",
    "pargmax",
    "pargmin",
    "pbroadcast",
    "pcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
    "pvary",
    "scan",
    "switch",
    "while_loop",
]
