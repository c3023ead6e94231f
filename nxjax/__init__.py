"""nxjax: JAX-style functional arrays with a tracing JIT, for the chips that JAX forgot.

Public names are loaded when they are first used. This file connects what no other file does: what the outermost trace
computes with (`install_execute`, `install_compiler`), and the operators of arrays (`nxjax.numpy` attaches them).

Examples in docstrings presume ``import nxjax as nx``, ``import nxjax.numpy as jnp`` and ``from nxjax import lax``.
"""

from __future__ import annotations

import gc as _gc
import importlib as _importlib
import sys as _sys
from importlib.machinery import ModuleSpec as _ModuleSpec
from typing import Any as _Any

_collects = _gc.isenabled()
_gc.disable()  # as `trace.lazy.load` does
try:
    from nxjax import config as _config
    from nxjax import ops as _ops
    from nxjax.config import config as config  # here, or the submodule of that name would stand in its place
    from nxjax.trace import core as _core
    from nxjax.trace import pages as _pages
    from nxjax.trace import program as _program
    from nxjax.trace.lazy import load as _load
    from nxjax.trace.lazy import missing_attribute as _missing
    from nxjax.trace.lazy import replacement_hint as _instead
    from nxjax.trace.lazy import settle as _settle

    _settle()
finally:
    if _collects:
        _gc.enable()

__array_api_version__ = "2024.12"  # `nxjax` is as good a namespace of the standard as `nxjax.numpy`

# name -> module. Names that are not here are looked up in nxjax.numpy.
_HOMES: dict[str, str] = {
    **dict.fromkeys(("Array",), "nxjax.trace.core"),
    **dict.fromkeys(("ShapeDtypeStruct",), "nxjax.trace.types"),
    **dict.fromkeys(("Program",), "nxjax.trace.program"),
    **dict.fromkeys(("parse_program",), "nxjax.trace.text"),
    **dict.fromkeys(("named_scope", "named_call"), "nxjax.trace.scope"),
    **dict.fromkeys(("float0",), "nxjax.trace.dtypes"),
    **dict.fromkeys(("config",), "nxjax.config"),
    **dict.fromkeys(("__array_namespace_info__",), "nxjax.numpy.standard"),
    **dict.fromkeys(("jit",), "nxjax.transforms.jit"),
    **dict.fromkeys(("explain_retrace",), "nxjax.transforms.retrace"),
    **dict.fromkeys(("grad", "value_and_grad", "vjp"), "nxjax.transforms.grad"),
    **dict.fromkeys(("jvp",), "nxjax.transforms.jvp"),
    **dict.fromkeys(("linearize",), "nxjax.transforms.linearize"),
    **dict.fromkeys(("linear_transpose",), "nxjax.transforms.transpose"),
    **dict.fromkeys(("vmap",), "nxjax.transforms.vmap"),
    **dict.fromkeys(("shard_map",), "nxjax.transforms.shard_map"),
    **dict.fromkeys(("smap",), "nxjax.transforms.smap"),
    **dict.fromkeys(("pmap",), "nxjax.runtime.pmap"),
    **dict.fromkeys(("bucketed",), "nxjax.transforms.bucketing.bucketed"),
    **dict.fromkeys(("jacfwd", "jacrev", "jacobian", "hessian"), "nxjax.transforms.jacobian"),
    **dict.fromkeys(("checkpoint", "remat", "checkpoint_policies"), "nxjax.transforms.checkpoint"),
    "fit_in": "nxjax.transforms.fit_in",
    **dict.fromkeys(("custom_jvp",), "nxjax.transforms.custom_jvp"),
    **dict.fromkeys(("custom_vjp", "custom_gradient", "closure_convert"), "nxjax.transforms.custom_vjp"),
    **dict.fromkeys(("eval_shape", "make_jaxpr"), "nxjax.transforms.shapes"),
    **dict.fromkeys(("quantize",), "nxjax.quant.function"),
    **dict.fromkeys(("compile", "explain"), "nxjax.deploy.compile"),
    **dict.fromkeys(("Artifact",), "nxjax.deploy.artifact"),
    **dict.fromkeys(("targets",), "nxjax.deploy.targets"),
    **dict.fromkeys(("calibrate",), "nxjax.quant.calibration"),
    **dict.fromkeys(("profile", "cost"), "nxjax.profiling.measure"),
    **dict.fromkeys(("QArray",), "nxjax.quant.qarray"),
    **dict.fromkeys(("pure_callback",), "nxjax.transforms.callback"),
    **dict.fromkeys(("Tensor",), "nxjax.numpy.tensors"),
    **dict.fromkeys(("typeof", "live_arrays", "copy_to_host_async", "effects_barrier", "fwd_and_bwd", "host_count", "host_id", "host_ids", "print_environment_info"), "nxjax.runtime.introspect"),
    **dict.fromkeys(("simulate",), "nxjax.deploy.simulate"),
    **dict.fromkeys(("MemoryPools",), "nxjax.backends.memory.pool"),
    **dict.fromkeys(("UnifiedBuffer", "unified_buffer"), "nxjax.backends.memory.unified"),
    **dict.fromkeys(("write_into",), "nxjax.backends.memory.into"),
    **dict.fromkeys(("DoubleBuffer", "prefetch"), "nxjax.backends.memory.double"),
    **dict.fromkeys(("custom_op",), "nxjax.extend.custom_operator"),
    **dict.fromkeys(("kernel",), "nxjax.extend.custom_kernel"),
    **dict.fromkeys(("Device", "DeviceType"), "nxjax.runtime.device"),
    **dict.fromkeys(("Hybrid",), "nxjax.hybrid"),
    **dict.fromkeys(("tune",), "nxjax.tuning.tune"),
    **dict.fromkeys(("make_array_from_callback", "make_array_from_process_local_data", "make_array_from_single_device_arrays", "Shard"), "nxjax.runtime.global_arrays"),
    **dict.fromkeys(("NamedSharding", "P", "make_mesh", "reshard", "set_mesh"), "nxjax.sharding"),
    **dict.fromkeys(
        ("allow_f16_reductions", "array_garbage_collection_guard", "auto_pcast", "check_tracer_leaks", "checking_leaks", "debug_infs",
         "debug_key_reuse", "debug_nans", "default_matmul_precision", "default_prng_impl", "enable_checks", "enable_custom_prng",
         "explain_cache_misses", "legacy_prng_key", "log_compiles", "no_execution", "no_tracing", "numpy_dtype_promotion",
         "numpy_rank_promotion", "remove_size_one_mesh_axis_from_type", "softmax_custom_jvp", "thread_guard", "threefry_partitionable", "transfer_guard",
         "transfer_guard_device_to_device", "transfer_guard_device_to_host", "transfer_guard_host_to_device"),
        "nxjax.config.contexts",
    ),
    **dict.fromkeys(("scan",), "nxjax.transforms.control.scan"),
    **dict.fromkeys(("associative_scan",), "nxjax.transforms.control.mapping"),
    **dict.fromkeys(("while_loop", "fori_loop"), "nxjax.transforms.control.while_loop"),
    **dict.fromkeys(("cond", "switch"), "nxjax.transforms.control.cond"),
    **dict.fromkeys(
        ("devices", "local_devices", "device_count", "local_device_count", "default_backend", "default_device", "device_put", "device_get",
         "block_until_ready", "ensure_compile_time_eval", "clear_caches", "disable_jit", "enable_x64", "process_index", "process_count", "process_indices"),
        "nxjax.runtime",
    ),
}  # fmt: skip
_MODULES = frozenset(
    ("config", "errors", "testing", "numpy", "lax", "nn", "random", "scipy", "tree", "tree_util", "flatten_util", "debug",
     "dtypes", "backends", "ops", "trace", "transforms", "lower", "typing", "experimental", "core", "quant", "generation", "deploy", "image", "export", "nas", "predict", "checkpoints", "interop", "api_util", "custom_derivatives", "ad_checkpoint", "runtime", "device", "distributed", "global_arrays", "hardware", "hybrid", "sharding", "extend", "interpreters", "custom_batching",
     "dlpack", "example_libraries", "monitoring", "profiler", "stages", "test_util", "version")
)  # fmt: skip
# Modules and packages that programs import, or pickles name, otherwise than their files are called.
_PLACES: dict[str, str] = {
    "nxjax.device": "nxjax.runtime.device",
    "nxjax.global_arrays": "nxjax.runtime.global_arrays",
    "nxjax.interop.stablehlo": "nxjax.stablehlo",
    "nxjax.launch": "nxjax.distributed.launch",
    "nxjax.trace.partial": "nxjax.trace.tree_partial",
    "nxjax.transforms.quantize": "nxjax.quant",
}


def _execute(op: _Any, args: _Any, params: _Any) -> _Any:
    """The first op computed: from then on the executor is called directly."""
    from nxjax.backends import dispatch

    _core.install_execute(dispatch.execute)
    return dispatch.execute(op, args, params)


def _compiler() -> _Any:
    """Whoever compiles for `jit`, imported at the first compilation."""
    return _load("nxjax.backends.dispatch").compiler


def _vocabulary(name: str) -> None:
    """The op of a name, for programs that come as text."""
    from nxjax.ops.vocabulary import load

    load(name)


def _flaw(equation: _program.Equation) -> str | None:
    """What the rules apart from the ops say; they are loaded when a program is first checked."""
    from nxjax.lower.type_rules.table import flaw

    _program.install_type_rules(flaw)
    return flaw(equation)


_core.install_execute(_execute)
_core.install_compiler(_compiler)
_core.install_vocabulary(_vocabulary)
_program.install_type_rules(_flaw)
_pages.install_pages("nxjax.notebook")


def _watch(set: frozenset[str]) -> None:
    """Settings for debugging have changed; what they need is loaded when one is first set."""
    if set or "nxjax.debug.runtime_checks" in _sys.modules:
        _importlib.import_module("nxjax.debug.runtime_checks").changed(set)


_load("nxjax.numpy")  # gives arrays their operators and methods
_config.watch_modes(_watch)  # which is told at once what the environment has set


def _place(name: str) -> _Any:
    """The name of the file, for another name of a module or of its package."""
    package, _, last = name.rpartition(".")
    return _PLACES.get(name) or (f"{_PLACES[package]}.{last}" if package in _PLACES else None)


class _OtherNames:
    """`import nxjax.device` gives the module that has this name in `_PLACES`: a finder, and the loader of what it finds.

    While `sys.modules["jax"]` is nxjax, `import jax.lax` gives nxjax.lax in the same way. There is no second copy of a file.
    """

    @staticmethod
    def find_spec(name: str, path: _Any = None, target: _Any = None) -> _Any:
        if _place(name) is not None:
            return _ModuleSpec(name, _OtherNames)  # type: ignore[arg-type]
        if name.startswith("jax.") and _sys.modules.get("jax") is _sys.modules[__name__]:
            return _importlib.import_module("nxjax.interop.alias").spec(name)
        return None

    @staticmethod
    def create_module(spec: _Any) -> None:
        return None

    @staticmethod
    def exec_module(module: _Any) -> None:
        _sys.modules[module.__name__] = _importlib.import_module(_place(module.__name__))

    @staticmethod
    def get_code(name: str) -> _Any:
        """For ``python -m``."""
        there: _Any = _importlib.import_module(_place(name)).__spec__
        return there.loader.get_code(there.name)


_sys.meta_path.insert(0, _OtherNames)  # type: ignore[arg-type]


class _NoModules:
    """`import nxjax.experimental.pallas`, or ``from nxjax import new_ref``: what no other finder has found."""

    @staticmethod
    def find_spec(name: str, path: _Any = None, target: _Any = None) -> None:
        if name.startswith("nxjax.") and (said := _instead(name.removeprefix("nxjax."))):
            # Without the name of the module: `from nxjax import new_ref` would pass over an error that has it.
            raise ModuleNotFoundError(f"there is no {name!r}{said}")


_sys.meta_path.append(_NoModules)  # type: ignore[arg-type]


def _segments(name: str) -> _Any:
    """`jax.ops`' functions on the package of that name, which itself knows nothing above it."""
    if name.startswith("segment_"):
        return getattr(_importlib.import_module("nxjax.lax.segments"), name)
    raise AttributeError(f"module 'nxjax.ops' has no attribute {name!r}")


_ops.__getattr__ = _segments


def __getattr__(name: str) -> _Any:
    home = _HOMES.get(name)
    if name in ("__version__", "__version_info__"):
        return getattr(_importlib.import_module("nxjax.version"), name)  # not kept: see there
    if home is not None:
        value = getattr(_load(home), name)
    elif name in _MODULES:
        value = _load(f"nxjax.{name}")
    elif name.startswith("_"):
        raise AttributeError(f"module 'nxjax' has no attribute {name!r}")
    else:
        try:
            value = getattr(_importlib.import_module("nxjax.numpy"), name)
        except AttributeError:
            raise _missing(__name__, name) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    numpy = _importlib.import_module("nxjax.numpy")
    return sorted({*globals(), *_HOMES, *_MODULES, *getattr(numpy, "__all__", ())})
