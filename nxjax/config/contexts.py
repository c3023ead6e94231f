"""JAX's context managers for settings: ``with nx.debug_nans(True): ...`` changes one inside, for this thread.

One object per setting, made from its name; `nxjax.config` holds the values and knows what each means.
"""

from __future__ import annotations

from typing import Any, final

from nxjax.config import Override, config


@final
class ScopedSetting:
    """A setting that can be had for a while: ``with setting(value):``, or as a decorator ``@setting(value)``.

    Attributes:
        name: what `nx.config.update` calls it.

    >>> with nx.numpy_rank_promotion("raise"):
    ...     nx.config.numpy_rank_promotion
    'raise'
    """

    def __init__(self, name: str, doc: str) -> None:
        self.name = self.__name__ = name
        self.__doc__ = doc

    def __call__(self, new_val: object = True) -> Override:
        return config.using(**{self.name: new_val})

    @property
    def value(self) -> Any:
        """What the setting is now."""
        return config.read(self.name)

    def __bool__(self) -> bool:
        raise TypeError(f"nx.{self.name} is a context manager; its value is nx.{self.name}.value")

    def __repr__(self) -> str:
        return f"<setting {self.name} = {self.value!r}>"


# What the example of a setting sets; True where nothing stands here.
_SHOWN = {
    "default_matmul_precision": "highest",
    "numpy_dtype_promotion": "strict",
    "numpy_rank_promotion": "raise",
    "default_prng_impl": "threefry2x32",
    "transfer_guard": "log",
    "transfer_guard_device_to_device": "log",
    "transfer_guard_device_to_host": "log",
    "transfer_guard_host_to_device": "log",
    "legacy_prng_key": "warn",
    "array_garbage_collection_guard": "log",
}
_DOCS = {
    "debug_nans": "Inside, the first op that makes a NaN raises an error with your line: see `docs/debugging.md`.",
    "debug_infs": "As `debug_nans`, for infinities.",
    "debug_key_reuse": "Inside, using a random key twice is an error that has both lines.",
    "check_tracer_leaks": "Inside, it is an error if a traced value is still referenced after its function returned.",
    "enable_checks": "Inside, every program is checked after it is traced and after every pass.",
    "log_compiles": "Inside, `jit` logs what it traces and compiles, and how long that took (logger ``nxjax``).",
    "explain_cache_misses": "Inside, `jit` logs why it traces a function again: what `nx.explain_retrace` says.",
    "default_matmul_precision": "The ``precision`` of products that are given none: see `docs/cpu.md`.",
    "numpy_dtype_promotion": 'Inside ``"strict"``, operands of different dtypes are errors; ``"standard"``.',
    "numpy_rank_promotion": '``"raise"`` or ``"warn"`` if operands of different ranks are broadcast, or ``"allow"``.',
    "no_tracing": "Inside, tracing a function is an error: called functions must have been traced before.",
    "no_execution": "Inside, running anything is an error: for code that may only trace.",
    "enable_custom_prng": "Accepted for JAX programs, without effect: `nx.random.key` makes typed keys.",
    "legacy_prng_key": "Accepted for JAX programs, without effect: raw keys are keys.",
    "default_prng_impl": 'The generator of new keys: ``"threefry2x32"``, the only one.',
    "threefry_partitionable": "How keys are split and counted: always as in JAX with this set.",
    "transfer_guard": "Accepted for JAX programs: arrays move between devices only where a program says so.",
    "transfer_guard_device_to_device": "As `transfer_guard`.",
    "transfer_guard_device_to_host": "As `transfer_guard`.",
    "transfer_guard_host_to_device": "As `transfer_guard`.",
    "thread_guard": "Accepted for JAX programs, without effect.",
    "allow_f16_reductions": "Accepted for JAX programs, without effect.",
    "softmax_custom_jvp": "Accepted for JAX programs: softmax always has its own derivative.",
    "array_garbage_collection_guard": "Accepted for JAX programs: arrays are freed by counting references.",
    "auto_pcast": "Accepted for JAX programs, without effect.",
    "remove_size_one_mesh_axis_from_type": "Accepted for JAX programs, without effect.",
}
__all__ = sorted((*_DOCS, "checking_leaks"))


def __getattr__(name: str) -> ScopedSetting:
    doc = _DOCS.get(name)
    if doc is None:
        raise AttributeError(f"module 'nxjax.config.contexts' has no attribute {name!r}")
    shown = _SHOWN.get(name, True)
    example = f">>> with nx.{name}({shown!r}):\n...     nx.{name}.value\n{shown!r}\n"
    made = globals()[name] = ScopedSetting(name, f"{doc}\n\n{example}")
    return made


def checking_leaks() -> Override:
    """As ``check_tracer_leaks(True)``.

    >>> with checking_leaks():
    ...     config.check_tracer_leaks
    True
    """
    return ScopedSetting("check_tracer_leaks", "")(True)
