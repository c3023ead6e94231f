"""`nx.tree`: functions of trees of arrays (dicts, lists, tuples, dataclasses, ...), leaf by leaf. Names as `jax.tree`.

doubled = nx.tree.map(lambda x: 2 * x, params)
leaves, treedef = nx.tree.flatten(params)
"""

from __future__ import annotations

from nxjax.trace.tree import (
    all as all,
)
from nxjax.trace.tree import (
    broadcast as broadcast,
)
from nxjax.trace.tree import (
    flatten as flatten,
)
from nxjax.trace.tree import (
    flatten_with_path as flatten_with_path,
)
from nxjax.trace.tree import (
    leaves as leaves,
)
from nxjax.trace.tree import (
    leaves_with_path as leaves_with_path,
)
from nxjax.trace.tree import (
    map as map,
)
from nxjax.trace.tree import (
    map_with_path as map_with_path,
)
from nxjax.trace.tree import (
    reduce as reduce,
)
from nxjax.trace.tree import (
    reduce_associative as reduce_associative,
)
from nxjax.trace.tree import (
    structure as structure,
)
from nxjax.trace.tree import (
    transpose as transpose,
)
from nxjax.trace.tree import (
    unflatten as unflatten,
)
from nxjax.trace.tree_nodes import static as static
