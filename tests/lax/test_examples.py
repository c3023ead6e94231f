"""Public names of nxjax.lax show what they do, by examples in their docstrings that tests/test_docs.py executes."""

from types import ModuleType
from typing import Any

import nxjax.lax
import nxjax.lax.linalg
from tests.numpy.test_examples import executed


def public(module: ModuleType, names: list[str]) -> dict[str, Any]:
    """Functions and classes of these names; aliases of types and primitives, which say what their op does, aside."""
    found = {name: getattr(module, name) for name in names if not name.endswith("_p")}
    return {name: x for name, x in found.items() if callable(x) and x.__module__.startswith("nxjax")}


def test_every_public_name_has_an_example_that_is_executed():
    lax = public(nxjax.lax, [n for n in dir(nxjax.lax) if n != "linalg"])
    linalg = public(nxjax.lax.linalg, list(nxjax.lax.linalg.__all__))
    assert len(lax) > 200 and len(linalg) > 20
    missing = [name for name, x in (*lax.items(), *linalg.items()) if x.__doc__ not in executed(x.__module__)]
    assert not missing


def test_primitives_say_what_they_are():
    names = [n for n in dir(nxjax.lax) if n.endswith("_p")]
    assert names and all(getattr(nxjax.lax, name).__doc__ for name in names)
