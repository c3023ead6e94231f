"""Looking into running programs: prints, callbacks, a debugger, and shardings of arrays.

Settings (`nx.debug_nans`, ...) turn on the searches for NaNs, leaked tracers and reused keys, and load their files of
this package.
"""

from nxjax.debug.progress import progress_bar
from nxjax.debug.prompt import DebugEffect, OrderedDebugEffect, breakpoint, log
from nxjax.debug.sharding_text import inspect_array_sharding, visualize_array_sharding, visualize_sharding
from nxjax.transforms.callback import debug_callback as callback
from nxjax.transforms.callback import debug_print as print

__all__ = [
    "DebugEffect",
    "OrderedDebugEffect",
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "progress_bar",
    "visualize_array_sharding",
    "visualize_sharding",
]
