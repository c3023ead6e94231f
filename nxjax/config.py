"""The settings, those of nxjax and those that JAX programs set; ``NXJAX_*`` environment variables are read at import.

Knows nothing but the environment. Most settings change no result. Those that change what a traced program is, or how it
must be run, are summed up in ``mode``: None as long as all are at rest, so that calls have one thing to ask for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, final

from nxjax.errors import ParameterError, SettingError


def _flag(name: str, default: bool) -> bool:
    return os.environ.get(name, "1" if default else "0").lower() not in ("0", "false", "no", "")


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
_JAX: Final[dict[str, tuple[Any, tuple[Any, ...] | None]]] = {
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
        (None, "default", "high", "highest", "bfloat16", "bfloat16_3x", "tensorfloat32", "float32", "fastest"),
    ),
}
# What of these, and of the others, calls have to know of.
_MODE: Final = (
    "disable_jit", "debug_nans", "debug_infs", "debug_key_reuse", "check_tracer_leaks", "no_execution",
    "enable_custom_prng", "legacy_prng_key", "numpy_dtype_promotion", "numpy_rank_promotion",
    "default_matmul_precision",
)  # fmt: skip
# What can only be one way here: setting it to that is no mistake.
_FIXED: Final[dict[str, tuple[Any, ...]]] = {
    "threefry_partitionable": (True,),
    "default_prng_impl": ("threefry2x32",),
}
# What programs set for other executors, or for other ways of keeping house: kept, read back, and without effect, as it
# changes no result. The first value is the one at rest.
_IDLE: Final[dict[str, Any]] = {
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
_modes: dict[tuple[Any, ...], tuple[Any, ...]] = {}  # equal modes are one object: machine code compares addresses

# Per setting, who has to know when it changes.
_watchers: dict[str, list[Callable[[Any], None]]] = {}


def watch(name: str, told: Callable[[Any], None]) -> None:
    """``told`` is called with each new value of a setting, before it is set; what it raises refuses the value."""
    _watchers.setdefault(name, []).append(told)


@final
class Config:
    """Process-wide settings; ``nx.config.update(name, value)`` changes one.

    Attributes:
        enable_x64: Python scalars and 64-bit NumPy input keep 64 bits by default.
        executor: name of the executor that `jit` uses; empty means the best one available.
        cache_dir: folder of the on-disk executable cache, an absolute path; empty switches it off.
        cache_bytes: what all files of that cache may take; -1: any amount. The least recently used go.
        check: run `Program.check()` after every staging and every pass.
        default_device: where `jit` computes of arguments that were put nowhere; see `nx.default_device`. None: on the
            first device.
        disable_jit: `jit` calls the function eagerly.
        num_cpu_devices: how many devices the CPU is; 0: as ``XLA_FLAGS`` says, else one. Set before the first use.
        platforms: the platforms that `jit` runs on by default, such as "tpu,cpu": the first that is here; empty: cpu.
        ipu_model: the IPU system that ``device="ipu"`` models, such as "bow" or "m2000"; naming one lists its devices.
        cpu_isa: the instruction set that the CPU compiler emits: avx512, avx2, neon, portable; empty: the best here.
        num_threads: how many threads the CPU executor uses; 0: as many as the process may run on.
        compile_first: the CPU executor makes machine code before a program's first run; else it may wait for the second
            where NumPy gives the same numbers sooner.
        cpu_pool_bytes: how much free memory the CPU executor keeps for its next results.
        progress: False: no progress bars but those that are asked for.
        traceback_filtering: errors of nxjax leave its transforms without the frames inside nxjax.
        debug_nans, debug_infs, debug_key_reuse, check_tracer_leaks: see "Debugging" in the documentation.
        log_compiles, explain_cache_misses: `jit` logs (logger ``nxjax``) what it traces and compiles, and why again.
        numpy_dtype_promotion: ``strict``: operands of different dtypes are errors.
        numpy_rank_promotion: ``warn`` or ``raise`` where operands of different ranks are broadcast.
        no_tracing, no_execution: tracing, or running anything, is an error.
        default_matmul_precision, enable_custom_prng, legacy_prng_key: kept for JAX programs, without effect.
        mode: what of these is not at rest, as calls have to know; None: nothing. It follows from the others.

    >>> import nxjax as nx
    >>> with nx.config.using(check=True):
    ...     nx.config.check
    True
    """

    __slots__ = (
        "_idle", "cache_bytes", "cache_dir", "check", "compile_first", "cpu_isa", "cpu_pool_bytes", "default_device",
        "disable_jit", "enable_x64", "executor", "ipu_model", "mode", "num_cpu_devices", "num_threads", "platforms",
        "progress", "traceback_filtering", *_JAX,
    )  # fmt: skip
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

    def __init__(self) -> None:
        object.__setattr__(self, "mode", None)
        self._idle = dict(_IDLE)
        for name, (rest, values) in _JAX.items():
            given = os.environ.get("NXJAX_" + name.upper())
            object.__setattr__(
                self, name, rest if given is None else given if values else _flag("NXJAX_" + name.upper(), False)
            )
        self.enable_x64 = _flag("NXJAX_ENABLE_X64", False)
        self.executor = os.environ.get("NXJAX_EXECUTOR", "")
        self.cache_dir = os.environ.get("NXJAX_CACHE_DIR", _default_cache())
        self.cache_bytes = _number("NXJAX_CACHE_BYTES", 512 * 2**20, least=-1)
        self.check = _flag("NXJAX_CHECK", False)
        self.default_device: Any = None
        self.disable_jit = _flag("NXJAX_DISABLE_JIT", False)
        self.num_cpu_devices = _number("NXJAX_NUM_CPU_DEVICES", 0)
        self.platforms = os.environ.get("NXJAX_PLATFORMS", "")
        self.ipu_model = os.environ.get("NXJAX_IPU_MODEL", "")
        self.compile_first = _flag("NXJAX_COMPILE_FIRST", False)
        self.cpu_isa = os.environ.get("NXJAX_CPU_ISA", "")
        self.num_threads = _number("NXJAX_NUM_THREADS", 0)
        self.cpu_pool_bytes = _number("NXJAX_CPU_POOL_BYTES", 2**30)
        self.progress = _flag("NXJAX_PROGRESS", True)
        self.traceback_filtering = _flag("NXJAX_TRACEBACK_FILTERING", True)
        for name in _JAX:
            self.update(name, getattr(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        for told in _watchers.get(name, ()):
            told(value)
        object.__setattr__(self, name, value)
        if name in _MODE:
            self._sum_up()

    def _sum_up(self) -> None:
        at_rest = {n: rest for n, (rest, _) in _JAX.items()}
        found = tuple((n, v) for n in _MODE if (v := getattr(self, n, False)) != at_rest.get(n, False))
        mode = _modes.setdefault(found, found) if found else None
        if mode is not self.mode:
            self.mode = mode

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)!r}" for n in self.__slots__ if n not in ("_idle", "mode"))
        return f"Config({shown})"

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is no slot, or is none yet.
        if name.startswith("jax_"):
            return self.read(name)
        raise AttributeError(f"config has no setting {name!r}")

    def read(self, name: str) -> Any:
        """The value of a setting, by its name here or in JAX; ``config.jax_...`` reads it, too.

        >>> config.read("jax_enable_x64"), config.jax_numpy_rank_promotion
        (False, 'allow')
        """
        attribute = _attribute(name)
        if attribute in _FIXED:
            return _FIXED[attribute][0]
        if attribute in self._idle:
            return self._idle[attribute]
        if attribute in self.__slots__:
            value = getattr(self, attribute)
            return (value or None) if attribute in ("platforms", "cache_dir") and name.startswith("jax_") else value
        raise AttributeError(f"config has no setting {name!r}")

    @property
    def values(self) -> dict[str, Any]:
        """All settings by JAX's names, and those of nxjax by their own."""
        names = (*(f"jax_{n}" for n in (*_JAX, *_FIXED, *self._idle)), "jax_enable_x64", "jax_disable_jit")
        own = {n: getattr(self, n) for n in self.__slots__ if n not in _JAX and not n.startswith("_")}
        return {**own, **{n: self.read(n) for n in names}}

    def parse_flags_with_absl(self) -> None:
        """Nothing: there are no command-line flags. JAX programs call it."""

    config_with_absl = parse_flags_with_absl

    def update(self, name: str, value: Any) -> None:
        """Set one setting; JAX's ``jax_`` prefix is accepted.

        >>> config.update("jax_enable_x64", False)
        """
        attribute = _attribute(name)
        if attribute in _FIXED:
            if value not in _FIXED[attribute]:
                raise ParameterError(
                    f"config: {attribute} has one value here", got=repr(value), expected=repr(_FIXED[attribute][0])
                )
            return
        if attribute in self._idle:
            if attribute.startswith("transfer_guard") and value is not None and value not in _GUARDS:
                raise ParameterError(f"config: {attribute}", got=repr(value), expected=", ".join(map(repr, _GUARDS)))
            self._idle[attribute] = value
            return
        if attribute not in self.__slots__ or attribute in ("mode", "_idle"):
            raise SettingError(
                f"config: no setting {name!r}",
                expected=_near(attribute, (*self.__slots__, *_FIXED, *_IDLE)),
                fix="`nx.config.values` lists them all",
            )
        if attribute in _JAX:
            value = _checked(attribute, value)
        if attribute in ("platforms", "cache_dir") and value is None:
            value = ""
        if attribute == "cache_dir":
            value = os.fspath(value)
        if attribute == "cache_bytes" and (type(value) is not int or value < -1):
            raise ParameterError("config: cache_bytes", got=repr(value), expected="a number of bytes, or -1")
        if attribute == "traceback_filtering" and isinstance(value, str):
            value = value != "off"
        if attribute == "num_cpu_devices" and value == -1:
            value = 0  # JAX's way to say: none was asked for
        if attribute == "num_cpu_devices" and (not isinstance(value, int) or value < 0):
            raise ParameterError("config: num_cpu_devices", got=repr(value), expected="a number of devices, or 0")
        if attribute == "default_device" and not (value is None or hasattr(value, "platform")):
            raise ParameterError("config: default_device", got=repr(value), expected="one of nx.devices(), or None")
        if isinstance(value, str) and isinstance(getattr(self, attribute), bool):
            raise ParameterError(f"config: {attribute}", got=repr(value), expected="True or False")
        setattr(self, attribute, value)

    @contextmanager
    def using(self, **values: Any) -> Generator[None]:
        """Change settings inside a ``with`` block."""
        before = {name: self.read(name) for name in values}
        try:
            for name, value in values.items():
                self.update(name, value)
            yield
        finally:
            for name, value in before.items():
                self.update(name, value)


def _default_cache() -> str:
    """``nxjax`` in the user's folder for caches; empty where there is none. Relative paths count as not given (XDG)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
    return os.path.join(home, "nxjax") if os.path.isabs(home) else ""


def _attribute(name: str) -> str:
    attribute = name.removeprefix("jax_")
    return _RENAMED.get(attribute, attribute)


def _checked(name: str, value: Any) -> Any:
    """``value`` as the setting takes it."""
    _, values = _JAX[name]
    if values is None:
        if value not in (True, False):
            raise ParameterError(f"config: {name}", got=repr(value), expected="True or False")
        return bool(value)
    value = _JAX[name][0] if value is None and None not in values else getattr(value, "value", value)
    if value not in values:
        raise ParameterError(f"config: {name}", got=repr(value), expected=", ".join(map(repr, values)))
    return value


def _near(name: str, names: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(name, names, 3)
    return "perhaps " + " or ".join(map(repr, close)) if close else "one of nx.config.values"


config = Config()
