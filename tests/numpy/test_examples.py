"""Public names of nxjax.numpy show what they do, by examples in their docstrings that tests/test_docs.py executes."""

import doctest
import functools
import importlib
import inspect
from typing import Any

import nxjax.numpy as jnp
from nxjax.numpy import scalar_types
from nxjax.ops.vocabulary import LISTED
from nxjax.trace import dtypes


def documented(x: Any) -> Any:
    """What carries the docstring: a function or class itself; the class of a value such as `mgrid` or of a dtype."""
    return x if inspect.isroutine(x) or type(x) is type else type(x)


@functools.cache
def executed(module: str) -> set[str]:
    """The docstrings with examples that doctest finds in a module."""
    found = doctest.DocTestFinder().find(importlib.import_module(module))
    return {test.docstring for test in found if test.examples}


def public() -> dict[str, dict[str, Any]]:
    """File -> what its public names say; constants and NumPy's own classes are documented elsewhere."""
    files = {file: {name: getattr(jnp, name) for name in names.split()} for file, names in jnp._FILES.items()}
    files["ops"] = {name: getattr(jnp, name) for name in LISTED["numpy"]}
    for file in jnp._MODULES:
        files[file] = {name: getattr(getattr(jnp, file), name) for name in getattr(jnp, file).__all__}
    ours = {file: {name: documented(x) for name, x in names.items()} for file, names in files.items()}
    return {f: {name: x for name, x in names.items() if x.__module__.startswith("nxjax")} for f, names in ours.items()}


def test_every_public_name_has_an_example_that_is_executed():
    missing = {
        file: [name for name, x in names.items() if x.__doc__ not in executed(x.__module__)]
        for file, names in public().items()
    }
    assert not any(missing.values()), {file: names for file, names in missing.items() if names}


def test_scalar_types_show_an_array():
    # They say that they are of nxjax.numpy, so that doctest does not find them in the file that makes them.
    runner = doctest.DocTestRunner()
    kinds = {name: x for name, x in vars(scalar_types).items() if isinstance(x, scalar_types.ScalarType)}
    for name, x in kinds.items():
        runner.run(doctest.DocTestParser().get_doctest(x.__doc__ or "", {"jnp": jnp}, name, None, None))
    assert runner.failures == 0 and runner.tries > len(dtypes.NUMERIC)
