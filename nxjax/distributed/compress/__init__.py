"""`nx.distributed.compress`: means of gradients over devices in fewer bytes than `lax.pmean`, for `nx.shard_map`.

compressor = compress.int8("data")
memory = compressor.init(params, devices=4)
mean, memory = compressor(grads, memory)                       # on each device

A compressor adds what it did not send to the next gradients (error feedback: Seide et al., 2014; Karimireddy et al.,
2019). So nothing is lost, only delayed.
"""

from __future__ import annotations

from nxjax.distributed.compress.base import Compressor, Memory, none
from nxjax.distributed.compress.low_rank import power_sgd
from nxjax.distributed.compress.rounded import int8
from nxjax.distributed.compress.sparse import top_k

__all__ = ["Compressor", "Memory", "int8", "none", "power_sgd", "top_k"]
