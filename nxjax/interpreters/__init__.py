"""`jax.interpreters`' names: where a program's own primitives get their rules. See `nxjax.transforms.primitive`."""

from nxjax.trace.lazy import lazy as _lazy

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]
__getattr__, _ = _lazy(__name__, {}, __all__)
