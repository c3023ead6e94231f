"""`shard_map` under its former name and with its former arguments."""

from nxjax.transforms.shard_map import shard_map_with_rep as shard_map

__all__ = ["shard_map"]
