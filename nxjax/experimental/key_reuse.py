"""`jax.experimental.key_reuse`: the check itself is `nx.debug_key_reuse`; its error is here, too."""

from nxjax.errors import KeyReuseError

__all__ = ["KeyReuseError"]
