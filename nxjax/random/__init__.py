"""Random numbers from explicit keys, with JAX's bits.

    key = nx.random.key(0)
    key, use = nx.random.split(key)
    x = nx.random.normal(use, (3,))

A key determines what is drawn; drawing twice with one key gives the same numbers twice. The same key, shape and dtype
give what `jax.random` gives, compiled or not, alone or under `vmap`.
"""

from __future__ import annotations

from nxjax.random.keys import (
    PRNGKey as PRNGKey,
)
from nxjax.random.keys import (
    clone as clone,
)
from nxjax.random.keys import (
    fold_in as fold_in,
)
from nxjax.random.keys import (
    key as key,
)
from nxjax.random.keys import (
    key_data as key_data,
)
from nxjax.random.keys import (
    key_dtype as key_dtype,
)
from nxjax.random.keys import (
    key_impl as key_impl,
)
from nxjax.random.keys import (
    split as split,
)
from nxjax.random.keys import (
    wrap_key_data as wrap_key_data,
)
from nxjax.random.normals import lognormal as lognormal
from nxjax.random.normals import normal as normal
from nxjax.random.normals import truncated_normal as truncated_normal
from nxjax.random.uniforms import (
    bernoulli as bernoulli,
)
from nxjax.random.uniforms import (
    bits as bits,
)
from nxjax.random.uniforms import (
    rademacher as rademacher,
)
from nxjax.random.uniforms import (
    randint as randint,
)
from nxjax.random.uniforms import (
    uniform as uniform,
)
