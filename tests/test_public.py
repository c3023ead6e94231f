"""Every public name resolves, however it is imported, and the stubs' modules are those that exist."""

import abc
import enum
import importlib
import inspect
import pickle
import pkgutil
import pydoc
import re
import subprocess
import sys
from typing import Any, get_args, get_origin

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.numpy import documented
from nxjax.random import sampler
from nxjax.scipy.special import operands
from nxjax.trace.core import Op


@pytest.mark.parametrize("name", sorted(nx._HOMES))
def test_names_at_the_top(name):
    assert getattr(nx, name) is not None


@pytest.mark.parametrize("name", sorted(nx._MODULES))
def test_modules_at_the_top(name):
    assert getattr(nx, name) is not None


@pytest.mark.parametrize("name", sorted(nx._PLACES))
def test_modules_under_other_names(name):
    module = importlib.import_module(name)
    assert module is importlib.import_module(nx._PLACES[name]) and module.__spec__.name == nx._PLACES[name]
    subprocess.run([sys.executable, "-c", f"from {name} import __doc__ as said; assert said"], check=True)


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        (nx.Device(nx.DeviceType.CPU, 0), b"nxjax.device", b"nxjax.runtime.device"),
        (nx.tree_util.Partial(pow, 2), b"nxjax.trace.partial", b"nxjax.trace.tree_partial"),
        (nx.quant.Scheme("int8"), b"nxjax.transforms.quantize.scheme", b"nxjax.quant.scheme"),
    ],
)
def test_what_was_pickled_before_its_file_moved(value, old, new):
    data = pickle.dumps(value, 0).replace(new, old)
    again = pickle.loads(data)
    assert old in data and type(again) is type(value) and repr(again) == repr(value)


@pytest.mark.parametrize(
    "package", ["numpy", "lax", "nn", "random", "scipy", "numpy.linalg", "numpy.fft", "nn.initializers"]
)
def test_names_of_a_package(package):
    module = importlib.import_module(f"nxjax.{package}")
    names = [n for n in dir(module) if not n.startswith("_")]
    assert len(names) >= 4
    assert all(getattr(module, n) is not None for n in names if n != "newaxis")


def test_no_public_module_shows_what_completes_docstrings():
    helpers = [documented.example, documented.named, documented.with_calls, operands.described]
    helpers += [sampler.sampler, sampler.placed]
    places = [nx._PLACES.get(f"nxjax.{m}", f"nxjax.{m}") for m in nx._MODULES]
    inner = ["numpy.linalg", "numpy.fft", "lax.linalg", "nn.initializers"]
    inner += [f"scipy.{m}" for m in nx.scipy._MODULES] + [f"scipy.stats.{m}" for m in nx.scipy.stats._MODULES]
    faces = [importlib.import_module(name) for name in ["nxjax", *places, *(f"nxjax.{m}" for m in inner)]]
    shown = {
        face.__name__: [n for n, x in vars(face).items() if not n.startswith("_") and any(x is h for h in helpers)]
        for face in faces
    }
    assert len(shown) > 60 and not any(shown.values()), {face: names for face, names in shown.items() if names}


def test_unknown_names_are_attribute_errors():
    for module in (nx, nx.numpy, nx.lax, nx.nn, nx.random, nx.scipy, nx.ops):
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            _ = module.nonsense


IMPORTS = """
from nxjax import Array, grad, jit, lax, nn, random, vmap
from nxjax import numpy as jnp
from nxjax.core import Tracer
from nxjax.flatten_util import ravel_pytree
from nxjax.nn import initializers
from nxjax.numpy.linalg import norm
from nxjax.scipy.stats import norm as normal
from nxjax.tree_util import Partial, register_pytree_node_class, tree_map
from nxjax.typing import ArrayLike
assert isinstance(jnp.ones(2), Array) and isinstance(jnp.ones(2), ArrayLike)
seen = []
jit(lambda x: seen.append(isinstance(x, Tracer) and isinstance(x, Array)) or x)(1.0)
assert seen == [True]
"""


def test_run_time_checkers_understand_array_like():
    arrays = next(a for a in get_args(nx.typing.ArrayLike) if get_origin(a) is np.ndarray)
    assert get_origin(get_args(arrays)[1]) is np.dtype  # they refuse `ndarray[Any, Any]`: NumPy's second is a dtype


def test_the_usual_imports_in_a_fresh_process():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True)


@pytest.mark.parametrize("name", ["segment_sum", "segment_prod", "segment_max", "segment_min"])
def test_segments(name):
    ours, peer = getattr(nx.ops, name), getattr(jax.ops, name)
    data = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    ids = np.array([0, 2, 0, 5, 2, 9], np.int32)
    np.testing.assert_allclose(ours(data, ids, 4), peer(data, ids, 4), rtol=1e-6)
    np.testing.assert_allclose(ours(data, ids), peer(data, ids), rtol=1e-6)
    np.testing.assert_allclose(nx.jit(ours, static_argnums=2)(data, ids, 4), peer(data, ids, 4), rtol=1e-6)
    with pytest.raises(nx.errors.ShapeError, match="num_segments"):
        nx.jit(ours)(data, ids)
    with pytest.raises(nx.errors.ShapeError, match="one segment id per row"):
        ours(data, ids[:3])
    if name == "segment_sum":
        gradient = nx.grad(lambda d: nx.sum(ours(d, ids, 4) ** 2))(data)
        np.testing.assert_allclose(gradient, jax.grad(lambda d: (peer(d, ids, 4) ** 2).sum())(data), rtol=1e-5)


def test_named_calls():
    text = str(nx.make_jaxpr(nx.named_call(lambda x: nx.sin(x), name="wave"))(1.0))
    assert "@wave" in text


@pytest.mark.parametrize("package", ["quant", "deploy", "nn", "numpy", "lax", "random"])
def test_no_file_of_a_package_hides_a_public_name(package):
    """Importing ``nxjax.quant.f`` makes ``nx.quant.f`` that module, whatever the table of lazy names says."""
    module = importlib.import_module(f"nxjax.{package}")
    files = {m.name for m in pkgutil.iter_modules(module.__path__)}
    lazy = set(getattr(module, "_HOMES", ()))
    assert not files & lazy
    assert all(getattr(module, name) is getattr(module, name) for name in lazy)


def _public_callables():
    """Functions and classes of nxjax that have a public name, by it: not types of annotations, errors, enumerations."""
    homes = ["", *sorted(nx._MODULES), "numpy.linalg", "numpy.fft", "lax.linalg", "nn.initializers"]
    homes += [f"scipy.{m}" for m in nx.scipy._MODULES]
    for home in homes:
        module = importlib.import_module(nx._PLACES.get(f"nxjax.{home}", f"nxjax.{home}").rstrip("."))
        for name in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
            thing = getattr(module, name)
            own = str(getattr(thing, "__module__", "")).startswith("nxjax")
            aside = isinstance(thing, Op) or (isinstance(thing, type) and issubclass(thing, (BaseException, enum.Enum)))
            if own and not aside and (isinstance(thing, type) or inspect.isroutine(thing)):
                yield f"{home}.{name}".lstrip("."), thing


def test_signatures_and_docstrings_say_what_is_taken():
    found = dict(_public_callables())
    assert len(found) > 1200
    shown = {name: str(inspect.signature(thing)) for name, thing in found.items()}
    hidden = [n for n, s in shown.items() if re.match(r"\(\*args\b[^,]*, \*\*\w+[^,]*\)", s)]
    # A class of annotations, whose values others make.
    assert not set(hidden) - {"nn.initializers.Initializer", "testing.Sample"}, hidden
    assert not [n for n, s in shown.items() if " at 0x" in s]
    assert not [n for n, thing in found.items() if not inspect.getdoc(thing)]
    assert shown["nn.Linear"].startswith("(in_features: 'int', out_features: 'int', bias: 'bool' = True, *, key: ")
    assert not inspect.signature(nx.nn.ReLU).parameters and "in_features" in pydoc.render_doc(nx.nn.Linear)


def _public_classes():
    """Classes of nxjax that have a public name, by it."""
    found = {}
    for home in ("", *sorted(nx._MODULES)):
        module = getattr(nx, home) if home else nx
        for name in getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]:
            thing = getattr(module, name, None)
            if type(thing) in (type, abc.ABCMeta) and thing.__module__.startswith("nxjax"):
                found[f"{home}.{name}".lstrip(".")] = thing
    return found


def test_objects_say_what_they_are():
    own = [c for c in _public_classes().values() if not issubclass(c, Op) and not getattr(c, "_is_protocol", False)]
    assert len(own) > 100
    # Names of types that are never made, for `isinstance` and annotations.
    names = ("nxjax.core.ClosedJaxpr", "nxjax.core.Jaxpr", "nxjax.core.ShapedArray", "nxjax.experimental.MutableArray")
    mute = {f"{c.__module__}.{c.__name__}" for c in own if c.__repr__ is object.__repr__}
    assert mute <= set(names)
    for thing in (nx.config, nx.numpy.mgrid, nx.numpy.c_, nx.checkpoint_policies, nx.tree_util.default_registry):
        assert " object at 0x" not in repr(thing)
    equation = nx.make_jaxpr(lambda x: nx.numpy.sum(x * 2, axis=1))(nx.ones((2, 3))).equations[-1]
    assert repr(equation).startswith("f32[2] = reduce_sum[axes=(1,)] f32[2,3]  # test_public.py:")
    assert repr(nx.quant.Percentile(99.0)) == "Percentile(percent=99.0)"
    lowered = nx.jit(lambda x: x + 1).lower(nx.ones(3))
    assert repr(lowered) == "<lowered <lambda>: f32[3] -> f32[3]>"
    assert repr(nx.custom_jvp(abs)) == "<custom_jvp of abs>"


def test_signatures_say_what_functions_take():
    """`help` and `inspect.signature` show a type for every parameter, as the stubs do."""
    rooms = ("numpy", "lax", "nn", "random", "scipy", "interop", "deploy", "image")
    found = {n: thing for n, thing in _public_callables() if "." not in n or n.split(".")[0] in rooms}
    # `dir` of a module without `__all__` finds what it imports; a list's signature and a protocol's are not ours.
    helpers = ("nxjax.numpy.promotion", "nxjax.trace.array", "nxjax.lax.sharding")
    classes = (nx.deploy.Targets, nx.nn.initializers.Initializer)
    found = {n: thing for n, thing in found.items() if thing.__module__ not in helpers and thing not in classes}
    assert len(found) > 900
    told = {n: inspect.signature(thing).parameters.values() for n, thing in found.items()}
    untold = (None, "Any", inspect.Parameter.empty, Any)
    assert [f"{n}({p.name})" for n, given in told.items() for p in given if p.annotation in untold] == []


# Turns of phrase that a reader has to read twice.
_TURNS = r"hears?|nobody|whoever|thereof|whatever|on demand|behind each other|the number with|is none of the|as what"


def test_docstrings_are_in_plain_english():
    said = {n: re.split(r"\n>>>", inspect.getdoc(thing) or "")[0] for n, thing in _public_callables()}
    assert [n for n, text in said.items() if re.search(rf"(?i)\b({_TURNS})\b", text)] == []
