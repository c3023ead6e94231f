"""Looking into running programs: prints, callbacks, a debugger, and where arrays lie.

What finds NaNs, leaked tracers and keys that are used twice is switched on by settings (`nx.debug_nans`, ...); its
parts are files of this package, which they load.
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
