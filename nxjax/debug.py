"""Looking into running programs: `nx.debug.print` and `nx.debug.callback`."""

from nxjax.transforms.callback import debug_callback as callback
from nxjax.transforms.callback import debug_print as print

__all__ = ["callback", "print"]
