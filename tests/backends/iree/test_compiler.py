"""The compiler's process may end, stall or refuse: it is an error with its words and the user's line."""

import sys

import pytest

import nxjax as nx
from nxjax.backends.iree import compiler
from nxjax.backends.iree.compiler import CompilationFailed, compile_text
from nxjax.errors import LoweringError, MissingExtraError
from nxjax.lower.stablehlo.builder import lower

TEXT = "module @f {\n}\n"


def script(body):
    return (sys.executable, "-c", body)


def test_text_goes_in_and_a_module_comes_out():
    body = """import sys
with open(sys.argv[1], "rb") as text, open(sys.argv[3], "wb") as made:
    made.write(b"%d flags: " % len(sys.argv[1:]) + text.read().upper())
"""
    assert compile_text("abc", ["--one"], script(body)) == b"6 flags: ABC"


def test_a_compiler_that_crashes_takes_nobody_with_it():
    body = """import os, signal, sys
print("error: Unknown target", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGSEGV)
"""
    with pytest.raises(CompilationFailed) as caught:
        compile_text(TEXT, (), script(body))
    assert caught.value.crashed
    assert caught.value.reason == "it ended with signal SIGSEGV; Unknown target"


def test_a_compiler_that_does_not_end_is_ended():
    with pytest.raises(CompilationFailed, match=r"longer than 0\.3 s") as caught:
        compile_text(TEXT, (), script("import time; time.sleep(60)"), deadline=0.3)
    assert caught.value.crashed


def test_a_compiler_that_cannot_be_started_is_named():
    with pytest.raises(CompilationFailed, match="cannot be started"):
        compile_text(TEXT, (), ("/nowhere/iree-compile",))


def test_a_refusal_names_the_users_line():
    program = nx.make_jaxpr(lambda x: nx.numpy.tanh(x) + 1)(nx.ones(3)).jaxpr  # the line that is named
    located, _ = lower(program, devices=(None,), located=True)
    line = next(i for i, text in enumerate(located.splitlines(), 1) if "tanh" in text)
    body = f"import sys; print('<stdin>:{line}:5: error: no tanh here', file=sys.stderr); sys.exit(1)"
    with pytest.raises(CompilationFailed) as caught:
        compile_text(located, (), script(body))
    assert (caught.value.reason, caught.value.line, caught.value.crashed) == ("no tanh here", line, False)
    error = compiler.refused("vulkan", caught.value, located)
    assert isinstance(error, LoweringError)
    assert "test_compiler.py:" in str(error)
    assert "no tanh here, in %" in str(error)
    assert 'nx.Hybrid("vulkan", "cpu")' in str(error)


def test_without_the_packages_the_extra_is_named(monkeypatch):
    compiler.version.cache_clear()
    monkeypatch.setattr(compiler, "missing", lambda: "iree-base-compiler")
    with pytest.raises(MissingExtraError, match=r"nxjax\[vulkan\]"):
        compiler.version()
