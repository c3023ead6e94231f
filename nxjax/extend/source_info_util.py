"""`jax.extend.source_info_util`: which files are no user's, when an error names a line."""

from nxjax.errors import exclude_from_sources as register_exclusion
from nxjax.trace.lazy import getattr_with_hints as _refusing

__all__ = ["register_exclusion"]
__getattr__ = _refusing(__name__)
