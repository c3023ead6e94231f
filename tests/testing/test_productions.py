"""The table of productions draws every function there is, or says why not."""

import importlib
import inspect
import re

import pytest

from nxjax.testing.productions import ROWS, floats, indexing
from nxjax.testing.productions.templates import Template

# What no line of a program calls, by module, and why.
NEITHER = {
    "jnp": {
        "reads or writes files and texts": "array_repr array_str from_dlpack fromfile fromiter fromstring load save "
        "savez get_printoptions set_printoptions printoptions",
        "needs values to know its shape": "trim_zeros",
        "tells of types and shapes, or makes functions; gives no array": "can_cast einsum_path iscomplexobj isdtype "
        "isrealobj isscalar issubdtype iterable ndim promote_types result_type shape size frompyfunc",
    },
    "lax": {
        "tells of types and shapes": "broadcast_shapes conv_dimension_numbers conv_general_permutations dtype stage "
        "conv_general_shape_tuple conv_shape_tuple conv_transpose_shape_tuple padtype_to_pads shape_as_value "
        "reduce_window_shape_tuple DotDimensionNumbers",
        "orders effects": "after_all create_token",
        "of several devices": "pbroadcast pcast with_sharding_constraint",
        "the derivatives by the first parameter, series of their own in JAX": "igamma_grad_a random_gamma_grad",
        "random numbers that are another generator's in JAX": "rng_bit_generator rng_uniform",
        "formats of accelerators": "scaled_dot",
        "an alias of a function that is drawn": "broadcast_like",
    },
    "jax.nn": {"formats of accelerators": "get_scaled_dot_general_config scaled_dot_general scaled_matmul"},
}
MODULES = ("jnp", "jnp.fft", "jnp.linalg", "lax", "lax.linalg", "jax.nn", "jax.scipy.special")
NAMES = {"jnp": "numpy", "lax": "lax", "jax": ""}


def module(name, package):
    first, _, rest = name.partition(".")
    return importlib.import_module(".".join(filter(None, (package, NAMES[first], rest))))


@pytest.mark.parametrize("name", MODULES)
def test_every_function_is_drawn(name):
    """What no line calls could be wrong in every program."""
    ours, theirs = (module(name, package) for package in ("nxjax", pytest.importorskip("jax").__name__))
    texts = [r.write.text if isinstance(r.write, Template) else inspect.getsource(r.write) for r in ROWS]
    texts += [*floats._FUNCTIONS, *(f"lax.{name}" for name in indexing._LAX_SCATTERS)]
    called = set(re.findall(re.escape(name) + r"\.(\w+)", "\n".join(texts)))
    called |= set(re.findall(r"\}\.(\w+)\(", "\n".join(texts))) if name == "jnp" else set()
    there = {n for n in dir(theirs) if not n.startswith("_") and not n.endswith("_p")}
    there = {n for n in there if callable(f := getattr(ours, n, None)) and not inspect.isclass(f)}
    spared = set(" ".join(NEITHER.get(name, {}).values()).split())
    assert there - called == spared, (sorted(there - called - spared), sorted(spared - (there - called)))
