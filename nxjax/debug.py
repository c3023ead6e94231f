"""Looking into running programs: `nx.debug.print`, `nx.debug.callback`, and where arrays lie."""

from nxjax.sharding_text import inspect_array_sharding, visualize_array_sharding, visualize_sharding
from nxjax.transforms.callback import debug_callback as callback
from nxjax.transforms.callback import debug_print as print

__all__ = ["callback", "inspect_array_sharding", "print", "visualize_array_sharding", "visualize_sharding"]
