"""Public names outside of nxjax.numpy show what they do, by examples in docstrings that tests/test_docs.py executes."""

import doctest
import functools
import importlib
import inspect
import pkgutil
from typing import Any

import nxjax as nx
from nxjax.config import contexts
from nxjax.scipy import stats
from tests.test_docs import whole

# tests/numpy/test_examples.py walks numpy; settings of a process cannot be shown without changing it.
ELSEWHERE = {"numpy", "lax", "scipy", "errors", "config", "distributed"}
MODULES = sorted({*nx._MODULES, "nn.initializers"} - ELSEWHERE)
# Names that stand for something which no user makes or calls.
SILENT = {
    "Alias": "what `interop.as_jax` gives, shown there",
    "Trace": "what transforms are made of; nobody makes one",
    "DebugEffect": "names an effect in JAX's signatures; nobody makes one",
    "OrderedDebugEffect": "as DebugEffect",
    "ModeResult": "what `mode` gives, shown there",
    "custom_jvp_call_p": "an op, as jaxpr interpreters compare it",
    "custom_vjp_call_p": "as custom_jvp_call_p",
}


def documented(x: Any) -> Any:
    """What carries the docstring: a function or class itself; the class of an object such as a setting."""
    return x if inspect.isroutine(x) or isinstance(x, type) else type(x)


@functools.cache
def executed(module: str) -> set[str]:
    """The docstrings with examples that doctest finds in a module."""
    found = doctest.DocTestFinder().find(whole(importlib.import_module(module)))
    return {test.docstring for test in found if test.examples}


def public() -> dict[str, dict[str, Any]]:
    """Module -> its public callables of our own; errors are shown in docs/errors.md."""
    distributions = [f"scipy.stats.{m.name}" for m in pkgutil.iter_modules(stats.__path__) if m.name != "family"]
    found = {"": {name: getattr(nx, name) for name in nx._HOMES}}
    for name in (*MODULES, *distributions):
        module = importlib.import_module(f"nxjax.{name}")
        names = getattr(module, "__all__", None) or getattr(module, "_HOMES", None)
        here = {n: getattr(module, n) for n in names or vars(module) if not n.startswith("_")}
        # Without a list of what is public, what was made there is.
        found[name] = here if names else {n: x for n, x in here.items() if _home(x) == module.__name__}
    return {
        m: {n: x for n, x in names.items() if callable(x) and _home(x).startswith("nxjax") and not _is_error(x)}
        for m, names in found.items()
    }


def _home(x: Any) -> str:
    return getattr(documented(x), "__module__", None) or ""


def _is_error(x: Any) -> bool:
    return isinstance(x, type) and issubclass(x, BaseException)


def test_every_public_name_has_an_example_that_is_executed():
    names = public()
    missing = {
        module: {n for n, x in here.items() if documented(x).__doc__ not in executed(documented(x).__module__)}
        for module, here in names.items()
    }
    silent = {n for here in missing.values() for n in here}
    assert silent == set(SILENT), {m: sorted(here - set(SILENT)) for m, here in missing.items() if here - set(SILENT)}
    assert len(names["random"]) > 40 and sum(map(len, names.values())) > 500


def test_settings_show_how_they_are_set():
    # One object each, made from a table, so that doctest finds none of them in the file.
    runner = doctest.DocTestRunner()
    for name in contexts._DOCS:
        text = getattr(contexts, name).__doc__ or ""
        runner.run(doctest.DocTestParser().get_doctest(text, {"nx": nx}, name, None, None))
    assert runner.failures == 0 and runner.tries == len(contexts._DOCS)
