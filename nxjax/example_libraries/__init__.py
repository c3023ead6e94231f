"""`jax.example_libraries`: small optimizers and layers, which older programs import. New ones have better (optax)."""

from nxjax.trace.lazy import lazy as _lazy

__getattr__, _ = _lazy(__name__, {}, ("optimizers", "stax"))
