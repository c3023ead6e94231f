"""JAX's public names and parameters are nxjax's, or docs/coming_from_jax.md names them and says why not."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.sharding import AbstractMesh

PAGE = (Path(__file__).parents[1] / "docs" / "coming_from_jax.md").read_text()
MODULES = [
    "ad_checkpoint", "core", "custom_batching", "custom_derivatives", "debug", "distributed", "dlpack", "dtypes",
    "errors", "export", "extend", "extend.core", "experimental", "experimental.checkify", "experimental.jet",
    "experimental.mesh_utils", "experimental.multihost_utils", "experimental.ode", "experimental.shard_map",
    "example_libraries.optimizers", "example_libraries.stax", "flatten_util", "image", "interpreters",
    "interpreters.ad", "interpreters.batching", "interpreters.mlir", "lax", "lax.linalg", "monitoring", "nn",
    "nn.initializers", "numpy", "numpy.fft", "numpy.linalg", "ops", "profiler", "random", "scipy", "scipy.cluster.vq",
    "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.ndimage", "scipy.optimize",
    "scipy.signal", "scipy.sparse.linalg", "scipy.spatial.transform", "scipy.special", "scipy.stats", "sharding",
    "stages", "tree", "tree_util", "typing",
]  # fmt: skip
# Parameters that are found by their place: JAX's documentation and programs never name them.
PLACES = {
    "": "new_val", "custom_derivatives.custom_vjp_primal_tree_values": "tree", "debug.inspect_array_sharding": "value",
    "debug.visualize_array_sharding": "arr", "dlpack.from_dlpack": "external_array", "dtypes.issubdtype": "a b",
    "interpreters.ad.defbilinear": "prim", "interpreters.ad.get_primitive_transpose": "p",
}  # fmt: skip


def modules() -> list[str]:
    stats = importlib.import_module("jax.scipy.stats")
    return ["", *MODULES, *(f"scipy.stats.{m.name}" for m in pkgutil.iter_modules(stats.__path__))]


def both(name: str) -> tuple[ModuleType, Any]:
    """JAX's module, and ours or None."""
    theirs = importlib.import_module(f"jax.{name}".rstrip("."))
    try:
        return theirs, importlib.import_module(f"nxjax.{name}".rstrip("."))
    except ImportError:
        return theirs, None


def public(module: ModuleType) -> list[str]:
    """What a module of JAX offers: its own modules and what they define, not what it imports for itself."""

    def own(x: Any) -> bool:
        home = x.__name__ if isinstance(x, ModuleType) else getattr(x, "__module__", None) or "jax"
        return home.split(".")[0] == "jax" and (not isinstance(x, ModuleType) or not home.startswith("jax._src"))

    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    # Files of examples and of one function import half of JAX.
    if module.__name__.startswith(("jax.example_libraries.", "jax.experimental.")):
        names = [n for n in names if getattr(getattr(module, n), "__module__", "") == module.__name__]
    return [n for n in names if own(getattr(module, n))]


def test_every_name_is_here_or_on_the_page():
    rows = " ".join(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    named = set(re.findall(r"\w+", rows))
    whole = {w.removeprefix("jax.") for w in re.findall(r"([\w.]+)\.\*", rows)}
    missing = []
    for name in modules():
        theirs, ours = both(name)
        if name not in whole:
            missing += [f"{name}.{n}" for n in public(theirs) if not hasattr(ours, n) and n not in named]
    assert not missing


def parameters(f: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return {}


def missing_parameters(theirs: Any, ours: Any) -> list[str]:
    """Parameters of JAX that can be given by name, and that ours refuses."""
    given, taken = parameters(theirs), parameters(ours)
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):
        return []
    # Where a decorator hides its function's names, they are not for use.
    by_name = {n for n, p in given.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return sorted(n for n in by_name - taken.keys() if not n.startswith("_"))


def test_functions_have_the_parameters_of_jax():
    found = {}
    seen = 0
    for name in modules():
        theirs, ours = both(name)
        # Of what interprets programs, classes and parameters are JAX's own; what is there is used by name only.
        if ours is None or name.startswith("extend"):
            continue
        for n in public(theirs):
            f, g = getattr(theirs, n), getattr(ours, n, None)
            if not inspect.isfunction(f) and not inspect.ismethod(f) and not hasattr(f, "__wrapped__"):
                continue
            seen += g is not None
            allowed = f"{PLACES.get(f'{name}.{n}', '')} {PLACES['']}".split()
            if g is not None and (left := [p for p in missing_parameters(f, g) if p not in allowed]):
                found[f"{name}.{n}"] = left
    assert not found and seen > 900


# --- what the rarer ones mean ---


def same(f: Any) -> None:
    ours, theirs = f(nx, nx.numpy), f(jax, jnp)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), ours, theirs)


def test_rare_parameters_mean_the_same():
    three = (0, None)
    pair = lambda x, y: (x * y, x.sum(), y)
    same(lambda m, n: m.vmap(pair, three, (None, 0, None), sum_match=True)(n.arange(3.0), n.ones(2)))
    same(lambda m, n: m.lax.cond(True, lambda x: x, lambda x: -x, operand=3.0))
    same(lambda m, n: [m.lax.switch(1, [lambda x: 1, lambda x: 2], operand=None), m.lax.switch(0, [abs], operand=-2)])
    flags = partial(dict, return_weak_type_flag=True)
    kinds = lambda m, n: [m.dtypes.result_type(1, n.float32(2), **flags()), m.dtypes.result_type(1, 2.0, **flags())]
    assert kinds(nx, nx.numpy) == kinds(jax, jnp)
    assert nx.numpy.result_type(None, "float16") == jnp.result_type(None, "float16") == np.float32
    assert nx.local_devices(host_id=0) == nx.local_devices()
    assert float(nx.jit(lambda x: x, compiler_options={"xla_cpu_enable_fast_math": False})(1.0)) == 1
    assert nx.ShapeDtypeStruct((2,), "int8", manual_axis_type=None, is_ref=False).shape == (2,)
    with pytest.raises(nx.errors.ParameterError, match="no mutable references"):
        nx.ShapeDtypeStruct((2,), "int8", is_ref=True)
    with pytest.raises(nx.errors.AxisSpecError, match="out_axes is None"):
        nx.vmap(lambda x: x, out_axes=None)(nx.arange(3))
    with pytest.raises(nx.errors.ParameterError, match="vary along the axis"):
        nx.vmap(lambda x: nx.lax.all_gather(x, "i", to="reduced"), axis_name="i")(nx.arange(3))


def test_checkpoint_keeps_named_arguments_as_they_are():
    kept = []

    def f(x, y, how):
        kept.append(how)
        return nx.sin(x) * y["a"] if how == "sine" else x

    wrapped = nx.checkpoint(static_argnames="how")(f)
    assert float(nx.grad(wrapped)(0.0, y={"a": 2.0}, how="sine")) == 2.0
    assert float(nx.jit(nx.grad(wrapped), static_argnames="how")(3.0, {"a": 1.0}, how="other")) == 1.0
    assert set(kept) == {"sine", "other"}


def test_smap_is_shard_map_over_one_axis():
    with nx.sharding.use_abstract_mesh(AbstractMesh((2, 2), ("x", "y"))):

        @partial(nx.smap, in_axes=(0, {"k": 1}), out_axes=(0, None), axis_name="x")
        def f(a, b):
            return a - a.max(), nx.lax.psum(b["k"].sum(), "x")

        difference, total = f(nx.arange(4.0), {"k": nx.ones((2, 4))})
        assert difference.tolist() == [-1, 0, -1, 0] and float(total) == 8
        assert nx.smap(lambda a: a * 2, in_axes=None, out_axes=None, axis_name="y")(nx.arange(3)).tolist() == [0, 2, 4]
        for wrong in ({"in_axes": -1}, {"in_axes": "x"}, {"in_axes": 0, "axis_name": ("x", "y")}):
            with pytest.raises(nx.errors.ParameterError, match="smap"):
                nx.smap(lambda a: a, **{"out_axes": 0, "axis_name": "x"} | wrong)(nx.arange(4))
        with pytest.raises(nx.errors.ShardingError, match="in_axes is missing"):
            nx.smap(lambda a: a, out_axes=0, axis_name="x")


# --- what is not here says so ---


def test_a_name_of_jax_that_is_not_here_is_refused_with_its_row():
    seen = 0
    for name in modules():
        theirs, ours = both(name)
        for n in public(theirs) if ours is not None else ():
            if not hasattr(ours, n) and (name, n) != ("", "ad"):  # which `jax` imports for itself
                with pytest.raises(AttributeError, match="nxjax explain coming_from_jax"):
                    getattr(ours, n)
                seen += 1
    assert seen > 80


@pytest.mark.parametrize(
    "line",
    [
        "import nxjax.experimental.pallas as pl",
        "from nxjax.experimental import pallas",
        "from nxjax.experimental.pallas import tpu",
        "from nxjax import new_ref",
        "from nxjax.lax import psend",
        "import nxjax.nn.functional",
    ],
)
def test_importing_it_is_refused_with_its_row(line):
    with pytest.raises(ImportError, match="  docs:     nxjax explain coming_from_"):
        exec(line)


def test_other_modules_that_are_not_there_are_what_python_says():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'nxjax\.nonsense'"):
        importlib.import_module("nxjax.nonsense")
    assert importlib.util.find_spec("nxjax.nonsense") is None
