"""Types of what functions accept: arrays, dtypes, shapes, trees, devices. `nxjax.typing` makes them public.

For annotations only: no function asks whether a value is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from nxjax.trace.core import Array

ArrayLike: TypeAlias = Array | np.ndarray[Any, np.dtype[Any]] | np.generic | bool | int | float | complex
# A scalar type (`nx.float32`) is a `type`.
DTypeLike: TypeAlias = str | type | np.dtype[Any]
Shape: TypeAlias = Sequence[int]
# Any nesting of tuples, lists, dicts and registered nodes, with arrays or other values as leaves.
PyTree: TypeAlias = Any
# A `Device`, a `Sharding`, the name of a backend such as "cpu", or None.
DeviceLike: TypeAlias = Any
# A `NamedSharding`, another `Sharding`, a `PartitionSpec`, or None.
ShardingLike: TypeAlias = Any
# A `lax.AccuracyMode`, a `lax.Tolerance`, or None.
AccuracyLike: TypeAlias = Any
