"""The settings, those of nxjax and those that JAX programs set; ``NXJAX_*`` environment variables are read at import.

A setting has a value for the process, which `Config.update` sets, and one for each context in which a ``with`` block
overrides it: for the thread, and for the asyncio task, that runs the block. `current_settings` gives what holds here.
What decides what a call means is summed up in one object, ``call``, and what of that is for debugging in ``mode``: None
as long as all is at rest. Knows nothing but the environment. `table` says which settings there are, `contexts` has
JAX's context managers for them.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, ClassVar, Final, ParamSpec, TypeVar, final

from nxjax.config.forks import fork_lock
from nxjax.config.table import (
    CALL,
    FIXED,
    IDLE,
    JAX,
    MODE,
    NAMES,
    OF_THE_PROCESS,
    OWN,
    Declared,
    attribute_of,
    checked,
    first,
)
from nxjax.config.weak_registry import WeakRegistry

P = ParamSpec("P")
R = TypeVar("R")


# How many sets of overrides are kept for the next block.
_RESTING: Final = 64


@final
class CallSettings:
    """The values of the settings in `CALL`. There is one object of each combination: it is compared by its identity."""

    __slots__ = ("values",)
    names: ClassVar = CALL

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __reduce__(self) -> Any:
        return _interned, (self.values,)


_calls: dict[Any, CallSettings] = {}


def _interned(values: tuple[Any, ...]) -> CallSettings:
    key = (values, tuple(map(type, values)))  # 1 and True are equal
    return _calls.setdefault(key, CallSettings(values))


# Per setting of the process, who has to know when it changes; and who has to know which modes there are.
_watchers: dict[str, list[Callable[[Any], None]]] = {}
_mode_watchers: list[Callable[[frozenset[str]], None]] = []


def watch(name: str, callback: Callable[[Any], None]) -> None:
    """Call ``callback`` with each new value of the process's setting, before it is set; what it raises refuses it."""
    _watchers.setdefault(name, []).append(callback)


def watch_modes(callback: Callable[[frozenset[str]], None]) -> None:
    """Call ``callback`` with the settings of `MODE` that are not at rest in some thread, now and when they change."""
    _mode_watchers.append(callback)
    config.notice()


@final
class ConfigValues(Declared):
    """What all settings are in one place: for the process, or where some are overridden.

    Attributes:
        call: the `CallSettings` that these are.
        own: what is overridden; other values follow the process's.
        idle: the settings without effect.
    """

    __slots__ = ("__weakref__", "call", "idle", "own", *NAMES, "mode")
    call: CallSettings
    idle: dict[str, Any]
    own: dict[str, Any]

    def set(self, name: str, value: Any) -> None:
        if name in self.idle:
            self.idle[name] = value
            return
        setattr(self, name, value)
        if name in MODE:
            found = tuple((n, v) for n in MODE if (v := getattr(self, n)) != JAX.get(n, (False,))[0])
            self.mode = found or None
        if name in MODE or name in CALL:
            self.call = _interned(tuple(getattr(self, n) for n in CALL))


@final
class Config(Declared):
    """All settings; ``nx.config.update(name, value)`` changes one for the process.

    ``with nx.config.using(name=value):`` overrides it inside the block, for the current thread or asyncio task. Other
    threads keep their values. Threads start with the values of the process. `update` changes the value of the process
    at once. Inside such a block, the block keeps its own value to its end.

    Attributes:
        enable_x64: Python scalars and 64-bit NumPy input keep 64 bits by default.
        executor: name of the executor that `jit` uses; empty means the best one available.
        check: run `Program.check()` after every staging, every transform and every pass.
        verify: the CPU compiler checks every program before it makes code, also under ``check``.
        default_device: where `jit` runs if no argument was put on a device; see `nx.default_device`. None: on the first
            device.
        disable_jit: `jit` calls the function eagerly.
        fast_calls: False turns off every shortcut: all calls take the general path and give the same bits.
        cpu_isa: the instruction set of the CPU compiler: avx512-amx, avx512, avx2, neon, portable; empty: the best
            available.
        compile_first: the CPU executor compiles a program before its first run. Otherwise it may wait for the second
            run, if NumPy gives the same numbers sooner.
        guard: "end", "begin", "poison": protected pages next to memory of the CPU executor; empty: none. See "Guard
            mode" in the documentation.
        progress: False: only progress bars that are requested.
        reproducible: floats have the same bits on every processor, with any number of threads and any batch size. Ops
            that cannot promise that are errors. See "The same bits everywhere" in the documentation.
        traceback_filtering: errors of nxjax leave its transforms without the frames inside nxjax.
        debug_nans, debug_infs, debug_key_reuse, check_tracer_leaks: see "Debugging" in the documentation.
        log_compiles, explain_cache_misses: `jit` logs (logger ``nxjax``) what it traces and compiles, and the reason
            for each retrace.
        numpy_dtype_promotion: ``strict``: operands of different dtypes are errors.
        numpy_rank_promotion: ``warn`` or ``raise`` if operands of different ranks are broadcast.
        no_tracing, no_execution: tracing, or running anything, is an error.
        default_matmul_precision: ``precision`` of products and convolutions that are given none, such as ``bfloat16``.
        enable_custom_prng, legacy_prng_key: kept for JAX programs, without effect.
        mode: the active ones of these, for calls; None: none. Computed from the others.

    These belong to the process, so `using` changes them for all threads:

    Attributes:
        cache_dir: folder of the on-disk executable cache, an absolute path; empty: no cache.
        cache_bytes: the size limit of that cache; -1: none. The least recently used files are deleted.
        num_cpu_devices: how many devices the CPU has; 0: from ``XLA_FLAGS``, else one. Set it before the first use.
        platforms: the default platforms of `jit`, such as "tpu,cpu": the first available one; empty: cpu.
        ipu_model: the IPU system that ``device="ipu"`` models, such as "bow" or "m2000"; naming one lists its devices.
        num_threads: how many threads the CPU executor uses; 0: as many as the process may run on.
        cpu_pool_bytes: how much free memory the CPU executor keeps for its next results.

    >>> with nx.config.using(check=True):
    ...     nx.config.check
    True
    """

    __slots__ = ("_here", "_lock", "_overriding", "_process", "_resting")

    def __init__(self) -> None:
        made = ConfigValues()
        made.own, made.idle = {}, dict(IDLE)
        for name in NAMES:
            setattr(made, name, first(name))
        made.set("disable_jit", made.disable_jit)  # and with it what follows from it
        put = object.__setattr__
        put(self, "_process", made)
        put(self, "_here", ContextVar("nxjax_settings", default=made))
        # All others that somebody may still have. They follow the process's where they do not override it.
        put(self, "_overriding", WeakRegistry[ConfigValues]())
        # Those without a mode stay for the next block with the same overrides: making one takes longer than a call.
        put(self, "_resting", {})
        put(self, "_lock", fork_lock())

    _process: ConfigValues
    _here: ContextVar[ConfigValues]
    _overriding: WeakRegistry[ConfigValues]
    _resting: dict[Any, ConfigValues]
    _lock: Any

    @property
    def process(self) -> ConfigValues:
        """The settings of the process: what holds where nothing is overridden."""
        return self._process

    @property
    def here(self) -> ContextVar[ConfigValues]:
        """The context variable that holds what `current_settings` gives."""
        return self._here

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in NAMES:
            raise AttributeError(f"config has no setting {name!r}")
        self.update(name, value)

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={getattr(self, n)!r}" for n in NAMES)
        return f"Config({shown})"

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is no attribute.
        if name.startswith("jax_"):
            return self.read(name)
        raise AttributeError(f"config has no setting {name!r}")

    def read(self, name: str) -> Any:
        """The value of a setting, by its name here or in JAX; ``config.jax_...`` reads it, too.

        >>> config.read("jax_enable_x64"), config.jax_numpy_rank_promotion
        (False, 'allow')
        """
        attribute = attribute_of(name)
        if attribute in FIXED:
            return FIXED[attribute][0]
        here = self._here.get()
        if attribute in here.idle:
            return here.idle[attribute]
        if attribute in NAMES or attribute == "mode":
            value = getattr(here, attribute)
            return (value or None) if attribute in ("platforms", "cache_dir") and name.startswith("jax_") else value
        raise AttributeError(f"config has no setting {name!r}")

    @property
    def values(self) -> dict[str, Any]:
        """All settings by JAX's names, and those of nxjax by their own."""
        names = (*(f"jax_{n}" for n in (*JAX, *FIXED, *IDLE)), "jax_enable_x64", "jax_disable_jit")
        own = {n: getattr(self, n) for n in (*OWN, *OF_THE_PROCESS, "mode")}
        return {**own, **{n: self.read(n) for n in names}}

    def config_with_absl(self) -> None:
        """Nothing: there are no command-line flags. JAX programs call it."""

    def parse_flags_with_absl(self) -> None:
        """There are no command-line flags. Those of a program that uses absl can be read afterwards, as in JAX."""
        flags: Any = sys.modules.get("absl.flags")
        if flags is not None and not flags.FLAGS.is_parsed():
            flags.FLAGS([""])

    def update(self, name: str, value: Any) -> None:
        """Set one setting for the process; JAX's ``jax_`` prefix is accepted.

        Threads see it at once, but for those inside of a ``with`` block that overrides it.

        >>> config.update("jax_enable_x64", False)
        """
        name, value = checked(name, value)
        if name in FIXED:
            return
        with self._lock:
            for told in _watchers.get(name, ()):
                told(value)
            for settings in (self._process, *self._overriding):
                if name not in settings.own:
                    settings.set(name, value)
        if name in MODE or name == "fast_calls":
            self.notice()

    def using(self, **values: Any) -> Override:
        """Override settings for the current thread, or asyncio task, inside a ``with`` block, or a decorated function.

        Those that belong to the process are changed for all threads, and changed back.
        """
        return Override(self, dict(checked(name, value) for name, value in values.items()))

    def overridden(self, base: ConfigValues, changes: dict[str, Any]) -> ConfigValues:
        """``base`` with other overrides; what is `_NOT` is one no more."""
        with self._lock:
            own = {n: v for n, v in {**base.own, **changes}.items() if v is not _NOT}
            if not own:
                return self._process
            key = tuple((n, type(v), v) for n, v in own.items())
            if (known := self._resting.get(key)) is not None:
                return known
            made = ConfigValues()
            for name, value in zip(_COPIED, _copied(self._process), strict=True):
                setattr(made, name, value)
            made.own, made.idle = own, dict(made.idle)
            for name, value in own.items():
                made.set(name, value)
            self._overriding.add(made)
            if made.mode is None and made.fast_calls and len(self._resting) < _RESTING:
                self._resting[key] = made
        if made.mode is not None or not made.fast_calls:
            self.notice()
            weakref.finalize(made, self.notice).atexit = False
        return made

    def notice(self) -> None:
        """Tell who has to know what is not at rest somewhere."""
        with self._lock:
            everywhere = [self._process, *self._overriding]
            found = {name for s in everywhere for name, _ in s.mode or ()}
            if not all(s.fast_calls for s in everywhere):
                found.add("fast_calls")
            for told in _mode_watchers:
                told(frozenset(found))


@final
class Override(ContextDecorator):
    """What `Config.using` gives."""

    def __init__(self, config: Config, values: dict[str, Any]) -> None:
        self._config = config
        self._shared = {n: v for n, v in values.items() if n in OF_THE_PROCESS}
        self._own = {n: v for n, v in values.items() if n not in OF_THE_PROCESS and n not in FIXED}
        # For each block that was entered and not left: the settings outside and inside, and the process's before.
        self._entered: list[tuple[ConfigValues, ConfigValues, dict[str, Any]]] = []

    def __repr__(self) -> str:
        values = ", ".join(f"{n}={v!r}" for n, v in {**self._shared, **self._own}.items())
        return f"<settings inside: {values}>"

    def _recreate_cm(self) -> Override:
        return Override(self._config, {**self._shared, **self._own})  # a call of a function has its own

    def __enter__(self) -> None:
        config = self._config
        outer = config.here.get()
        inner = config.overridden(outer, self._own) if self._own else outer
        before = {n: config.read(n) for n in self._shared}
        try:
            for name, value in self._shared.items():
                config.update(name, value)
        except BaseException:
            self._restore(before)
            raise
        self._entered.append((outer, inner, before))
        config.here.set(inner)

    def __exit__(self, *exc: object) -> None:
        outer, inner, before = self._entered.pop()
        here = self._config.here
        if here.get() is inner:
            here.set(outer)
        else:  # blocks may end in another order than they began: those of generators, which share their caller's
            own = {n: outer.own.get(n, _NOT) for n in self._own}
            here.set(self._config.overridden(here.get(), own))
        self._restore(before)

    def _restore(self, before: dict[str, Any]) -> None:
        for name, value in before.items():
            self._config.update(name, value)


_NOT: Final = object()
_COPIED: Final = (*NAMES, "mode", "call", "idle")
_copied: Final = attrgetter(*_COPIED)


def _property(name: str) -> Any:
    """The attribute of `Config` that is a setting."""

    def read(self: Config) -> Any:
        return getattr(self.here.get(), name)

    return property(read)


for _name in (*NAMES, "mode"):
    setattr(Config, _name, _property(_name))


config = Config()
# What all settings are here: for what reads them often.
current_settings = config.here.get


def with_current_settings(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` under the settings of now, wherever it is called: for what another thread runs for this one.

    >>> import threading
    >>> with config.using(enable_x64=True):
    ...     thread = threading.Thread(target=with_current_settings(lambda: print(config.enable_x64)))
    >>> thread.start(), thread.join(), config.enable_x64
    True
    (None, None, False)
    """
    settings = current_settings()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        before = config.here.get()
        config.here.set(settings)
        try:
            return function(*args, **kwargs)
        finally:
            config.here.set(before)

    return run
