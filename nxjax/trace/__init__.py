"""The language: types, values, traces, programs. Names no op."""

from nxjax.trace.light import install as _install

# Before any file imports them.
_install("optree", "_C", ("PyTreeSpec", "PyTreeKind"))
_install("ml_dtypes", "_ml_dtypes_ext")
