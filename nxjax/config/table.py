"""Which settings there are: their names here and in JAX, their values at first, and what values they take.

``NXJAX_*`` environment variables are read here. Knows not who reads or sets them; that is `nxjax.config`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError, SettingError

# What an environment variable may say of a setting that is True or False: what JAX takes, and nothing at all.
_TRUE: Final = ("1", "true", "t", "yes", "y", "on")
_FALSE: Final = ("0", "false", "f", "no", "n", "off", "")


def _flag(name: str, default: bool) -> bool:
    given = os.environ.get(name, "1" if default else "0")
    if given.lower() not in (*_TRUE, *_FALSE):
        raise ParameterError(f"config: the environment variable {name}", got=repr(given), expected="1 or 0, on or off")
    return given.lower() in _TRUE


def _number(name: str, default: int, least: int = 0) -> int:
    given = os.environ.get(name) or str(default)
    try:
        number = int(given)
    except ValueError:
        number = least - 1
    if number < least:
        raise ParameterError(
            f"config: the environment variable {name}", got=repr(given), expected=f"a whole number from {least}"
        )
    return number


# JAX's settings that mean something here: the value at rest, and the values there are (None: True and False).
JAX: Final[dict[str, tuple[Any, tuple[Any, ...] | None]]] = {
    "debug_nans": (False, None),
    "debug_infs": (False, None),
    "check_tracer_leaks": (False, None),
    "debug_key_reuse": (False, None),
    "log_compiles": (False, None),
    "explain_cache_misses": (False, None),
    "no_tracing": (False, None),
    "no_execution": (False, None),
    "enable_custom_prng": (False, None),
    "legacy_prng_key": ("allow", ("allow", "warn", "error")),
    "numpy_dtype_promotion": ("standard", ("standard", "strict")),
    "numpy_rank_promotion": ("allow", ("allow", "warn", "raise")),
    "default_matmul_precision": (
        None,
        (
            *(None, "default", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", "fastest"),
            *(f"BF16_BF16_F32{passes}" for passes in ("", "_X3", "_X6", "_X9")),
        ),
    ),
}
# What of these, and of the others, calls have to know of.
MODE: Final = (
    "disable_jit", "debug_nans", "debug_infs", "debug_key_reuse", "check_tracer_leaks", "no_execution",
    "enable_custom_prng", "legacy_prng_key", "numpy_dtype_promotion", "numpy_rank_promotion",
    "default_matmul_precision", "reproducible",
)  # fmt: skip
# What can only be one way here: setting it to that is no mistake.
FIXED: Final[dict[str, tuple[Any, ...]]] = {
    "threefry_partitionable": (True,),
    "default_prng_impl": ("threefry2x32",),
}
# What programs set for other executors, or for other ways of keeping house: kept, read back, and without effect, as it
# changes no result. The first value is the one at rest.
IDLE: Final[dict[str, Any]] = {
    "allow_f16_reductions": True, "array_garbage_collection_guard": "allow", "auto_pcast": True,
    "compilation_cache_expect_pgle": False, "compilation_cache_include_metadata_in_key": False,
    "compiler_enable_remat_pass": True, "cpu_collectives_implementation": "gloo",
    "cpu_enable_async_dispatch": True, "cuda_visible_devices": "all", "custom_vjp3": False,
    "debug_log_modules": "", "disable_bwd_checks": False, "disable_most_optimizations": False,
    "disallow_mesh_context_manager": False, "distributed_debug": False, "dump_ir_to": "",
    "enable_compilation_cache": True, "enable_pgle": False, "enable_recoverability": False,
    "exec_time_optimization_effort": 0.0, "experimental_unsafe_xla_runtime_errors": False,
    "explicit_x64_dtypes": "allow", "hlo_source_file_canonicalization_regex": None,
    "include_full_tracebacks_in_locations": True, "log_checkpoint_residuals": False, "logging_level": "NOTSET",
    "memory_fitting_effort": 0.0, "mutable_array_checks": True, "optimization_level": "UNKNOWN",
    "persistent_cache_enable_xla_caches": "", "persistent_cache_min_compile_time_secs": 0.0,
    "persistent_cache_min_entry_size_bytes": 0, "pgle_aggregation_percentile": 90, "pgle_profiling_runs": 3,
    "pprint_use_color": False, "raise_persistent_cache_errors": False,
    "rocm_visible_devices": "all", "share_binary_between_hosts": False, "softmax_custom_jvp": True,
    "thread_guard": False, "threefry_gpu_kernel_lowering": False, "traceback_in_locations_limit": 10,
    "tracer_error_num_traceback_frames": 5, "transfer_guard": "allow", "transfer_guard_device_to_device": "allow",
    "transfer_guard_device_to_host": "allow", "transfer_guard_host_to_device": "allow", "use_direct_linearize": True,
    "use_shardy_partitioner": True, "xla_backend": "", "xla_profile_version": 0,
    "remove_size_one_mesh_axis_from_type": False, "use_magma": "auto",
}  # fmt: skip
_GUARDS: Final = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
# JAX's names of settings that nxjax had names for.
_RENAMED: Final = {
    "enable_checks": "check", "compilation_cache_dir": "cache_dir", "compilation_cache_max_size": "cache_bytes",
    "platform_name": "platforms",
}  # fmt: skip
# nxjax's own that are True or False, and what they are at first.
_FLAGS: Final = {
    "check": False,
    "compile_first": False,
    "disable_jit": False,
    "enable_x64": False,
    "fast_calls": True,
    "progress": True,
    "reproducible": False,
    "traceback_filtering": True,
    "verify": True,
}
# All of nxjax's own, and where their first values are from. Those that the whole process has in common come last.
OWN: Final[dict[str, Callable[[], Any]]] = {
    **{name: partial(_flag, f"NXJAX_{name.upper()}", first) for name, first in _FLAGS.items()},
    "cpu_isa": lambda: _isa(os.environ.get("NXJAX_CPU_ISA", "")),
    "default_device": lambda: None,
    "executor": lambda: os.environ.get("NXJAX_EXECUTOR", ""),
    "guard": lambda: _guard(os.environ.get("NXJAX_GUARD", "")),
}
OF_THE_PROCESS: Final[dict[str, Callable[[], Any]]] = {
    "cache_bytes": lambda: _number("NXJAX_CACHE_BYTES", 512 * 2**20, least=-1),
    "cache_dir": lambda: os.environ.get("NXJAX_CACHE_DIR", _default_cache()),
    "cpu_pool_bytes": lambda: _number("NXJAX_CPU_POOL_BYTES", 2**30),
    "ipu_model": lambda: os.environ.get("NXJAX_IPU_MODEL", ""),
    "num_cpu_devices": lambda: _number("NXJAX_NUM_CPU_DEVICES", 0),
    "num_threads": lambda: _number("NXJAX_NUM_THREADS", 0),
    "platforms": lambda: os.environ.get("NXJAX_PLATFORMS", ""),
}
# Those that are numbers from 0, and what they count.
_COUNTS: Final = {
    "cpu_pool_bytes": "a number of bytes, at least 0",
    "num_cpu_devices": "a number of devices, or 0",
    "num_threads": "a number of threads, or 0",
}
# Those that are a name, or names; what there is of that name shows when it is needed.
_TEXTS: Final = ("executor", "ipu_model", "platforms")
# Instruction sets of all processors; which of them run here is known by who asks the processor.
ISAS: Final = ("avx512-amx", "avx512", "avx512-base", "avx2", "neon", "portable")
# Every setting that has a meaning here.
NAMES: Final = (*OWN, *OF_THE_PROCESS, *JAX)
# What decides what a call of a jitted function means, besides its arguments, the axes in scope and the mesh.
CALL: Final = ("default_device", "enable_x64", "executor", "cpu_isa", "fast_calls", "guard", "mode")


class Declared:
    """The settings and their types; see `Config`."""

    __slots__ = ()
    check: bool
    compile_first: bool
    cpu_isa: str
    default_device: Any
    disable_jit: bool
    enable_x64: bool
    executor: str
    fast_calls: bool
    guard: str
    progress: bool
    reproducible: bool
    traceback_filtering: bool
    verify: bool
    cache_bytes: int
    cache_dir: str
    cpu_pool_bytes: int
    ipu_model: str
    num_cpu_devices: int
    num_threads: int
    platforms: str
    mode: tuple[Any, ...] | None
    debug_nans: bool
    debug_infs: bool
    check_tracer_leaks: bool
    debug_key_reuse: bool
    log_compiles: bool
    explain_cache_misses: bool
    no_tracing: bool
    no_execution: bool
    enable_custom_prng: bool
    legacy_prng_key: str
    numpy_dtype_promotion: str
    numpy_rank_promotion: str
    default_matmul_precision: str | None


def first(name: str) -> Any:
    """The value of a setting when the process begins."""
    made = OWN.get(name) or OF_THE_PROCESS.get(name)
    if made is not None:
        return made()
    variable = "NXJAX_" + name.upper()
    given = os.environ.get(variable)
    if given is None:
        return JAX[name][0]
    return _one_of(name, given if JAX[name][1] else _flag(variable, False))


def _guard(value: Any) -> str:
    """A value of the setting ``guard``; 1 is "end"."""
    modes = {"": "", "0": "", "1": "end", "end": "end", "begin": "begin", "poison": "poison"}
    if value not in modes:
        raise ParameterError("config: guard", got=repr(value), expected=", ".join(map(repr, modes)))
    return modes[value]


def _isa(value: Any) -> str:
    """A value of the setting ``cpu_isa``; None is the best one here."""
    if not (value is None or (isinstance(value, str) and value in ("", *ISAS))):
        raise ParameterError("config: cpu_isa", got=repr(value), expected=", ".join(map(repr, ("", *ISAS))))
    return value or ""


def _default_cache() -> str:
    """``nxjax`` in the user's folder for caches; empty where there is none. Relative paths count as not given (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
    return os.path.join(home, "nxjax") if os.path.isabs(home) else ""


def attribute_of(name: str) -> str:
    """What a setting is called here, by the name that JAX or the environment has for it."""
    attribute = name.removeprefix("jax_")
    return _RENAMED.get(attribute, attribute)


def _one_of(name: str, value: Any) -> Any:
    """``value`` as the setting takes it."""
    _, values = JAX[name]
    if values is None:
        return _truth(name, value)
    value = JAX[name][0] if value is None and None not in values else getattr(value, "value", value)
    if value not in values:
        raise ParameterError(f"config: {name}", got=repr(value), expected=", ".join(map(repr, values)))
    return value


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, int, np.bool_)) or value not in (True, False):
        raise ParameterError(f"config: {name}", got=repr(value), expected="True or False")
    return bool(value)


def _near(name: str, names: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    return "perhaps " + " or ".join(map(repr, close)) if close else "one of nx.config.values"


def checked(name: str, value: Any) -> tuple[str, Any]:
    """The attribute that ``name`` means, and ``value`` as it takes it."""
    attribute = attribute_of(name)
    if attribute in FIXED:
        if value not in FIXED[attribute]:
            raise ParameterError(
                f"config: {attribute} has one value here", got=repr(value), expected=repr(FIXED[attribute][0])
            )
        return attribute, value
    if attribute in IDLE:
        if attribute.startswith("transfer_guard") and value is not None and value not in _GUARDS:
            raise ParameterError(f"config: {attribute}", got=repr(value), expected=", ".join(map(repr, _GUARDS)))
        return attribute, value
    if attribute not in NAMES:
        raise SettingError(
            f"config: no setting {name!r}",
            expected=_near(attribute, (*NAMES, *FIXED, *IDLE)),
            fix="`nx.config.values` lists them all",
        )
    if attribute in JAX:
        value = _one_of(attribute, value)
    if attribute in ("platforms", "cache_dir") and value is None:
        value = ""
    if attribute == "cache_dir":
        value = os.fspath(value)
    if attribute == "cache_bytes" and (type(value) is not int or value < -1):
        raise ParameterError("config: cache_bytes", got=repr(value), expected="a number of bytes, or -1")
    if attribute == "traceback_filtering" and isinstance(value, str):
        value = value != "off"
    if attribute == "guard":
        value = _guard(value)
    if attribute == "cpu_isa":
        value = _isa(value)
    if attribute == "num_cpu_devices" and value == -1:
        value = 0  # JAX's way to say: none was asked for
    if attribute in _COUNTS and (type(value) is not int or value < 0):
        raise ParameterError(f"config: {attribute}", got=repr(value), expected=_COUNTS[attribute])
    if attribute == "default_device" and not (value is None or hasattr(value, "platform")):
        raise ParameterError("config: default_device", got=repr(value), expected="one of nx.devices(), or None")
    if attribute in _FLAGS:
        value = _truth(attribute, value)
    if attribute in _TEXTS and not (value is None or isinstance(value, str)):
        raise ParameterError(f"config: {attribute}", got=repr(value), expected="a str")
    return attribute, value
