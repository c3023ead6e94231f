"""The compiler's child process: silent, several at a time, its refusals and its ends in nxjax's words."""

import subprocess
import sys
import threading

import pytest

from nxjax.backends.tpu import child, compiler
from nxjax.backends.tpu.chips import parsed
from nxjax.errors import DeviceMemoryError, ExecutionError, LoweringError, MissingExtraError, ParameterError

V5E = parsed("v5e")
GOOD = """module @m { func.func public @main(%a: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %0 = stablehlo.tanh %a : tensor<8x128xf32>
  return %0 : tensor<8x128xf32> } }"""
UNKNOWN = GOOD.replace("stablehlo.tanh %a", "stablehlo.custom_call @nobody_knows(%a)").replace(
    ": tensor<8x128xf32>\n  return", ": (tensor<8x128xf32>) -> tensor<8x128xf32>\n  return"
)


@pytest.mark.usefixtures("libtpu")
def test_modules_of_one_call_are_answered_each():
    good, unknown, broken = compiler.compile_texts([GOOD, UNKNOWN, "module @m { nonsense }"], V5E)
    assert good.executable and good.hlo.startswith("HloModule") and good.seconds > 0 and "TPU" in good.version
    assert good.memory.arguments == good.memory.results == 4096 and good.memory.total > 8192
    assert isinstance(unknown, LoweringError) and "nobody_knows" in unknown.got
    assert isinstance(broken, LoweringError)
    with pytest.raises(LoweringError, match="nobody_knows"):
        compiler.compile_text(UNKNOWN, V5E)


@pytest.mark.usefixtures("libtpu")
def test_several_processes_compile_at_a_time():
    found = []
    threads = [threading.Thread(target=lambda: found.append(compiler.compile_text(GOOD, V5E))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [f.memory.arguments for f in found] == [4096] * 3


@pytest.mark.usefixtures("libtpu")
def test_nothing_is_printed_and_nothing_is_loaded_into_this_process():
    code = f"""
import sys
from nxjax.backends.tpu import compiler
from nxjax.backends.tpu.chips import parsed
compiler.compile_text({GOOD!r}, parsed("v4"))
print(sorted(m for m in sys.modules if m.split(".")[0] in ("jaxlib", "libtpu", "jax")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.usefixtures("libtpu")
def test_topologies_that_the_compiler_does_not_know():
    with pytest.raises(ParameterError, match=r"no such topology(.|\n)*it says"):
        compiler.compile_text(GOOD, parsed("v5e:3x3"))


@pytest.mark.usefixtures("libtpu")
def test_a_compilation_that_takes_too_long_is_given_up():
    with pytest.raises(ExecutionError, match=r"longer than 0\.01 s"):
        compiler.compile_text(GOOD, V5E, timeout=0.01)


@pytest.mark.usefixtures("libtpu")
@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", "SIGABRT"),
        ("import sys; print('F1 check.cc:3] Check failed: x', file=sys.stderr); sys.exit(9)", "Check failed: x"),
        ("pass", "status 0"),
    ],
    ids=["abort", "check", "silent"],
)
def test_a_child_that_ends_without_an_answer_is_an_error_with_its_last_words(monkeypatch, tmp_path, script, says):
    (tmp_path / "child.py").write_text(script)
    monkeypatch.setattr(child, "__file__", str(tmp_path / "child.py"))
    with pytest.raises(ExecutionError, match=says):
        compiler.compile_text(GOOD, V5E)


def test_a_missing_compiler_names_the_extra(monkeypatch):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    assert not compiler.available()[0] and "nxjax[tpu]" in compiler.available()[1]
    with pytest.raises(MissingExtraError, match=r"nxjax\[tpu\]"):
        compiler.compile_text(GOOD, V5E)


SHORT = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (55.93G) exceeds available HBM (15.75G). HLO module: m."
)
LONG = """RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. Exceeded capacity.

Largest program allocations in hbm:

  1. Size: 4.00G
     Operator: op_name="layer/dot" source_file="net.py" source_line=7
     Shape: f32[32768,32768]{1,0:T(8,128)}
     ==========================

  2. Size: 512.0M
     Shape: bf16[16384,16384]{1,0}
     ==========================
"""


@pytest.mark.parametrize(
    ("said", "needs", "buffers"),
    [
        (SHORT, 55.93, ()),
        (LONG, 20.5, (4 * 2**30, 512 * 2**20)),
        ("RESOURCE_EXHAUSTED: something of its own", None, ()),
    ],
    ids=["short", "long", "other"],
)
def test_what_does_not_fit_says_by_how_much(said, needs, buffers):
    error = compiler.refused(said, V5E)
    assert isinstance(error, DeviceMemoryError) and isinstance(error, MemoryError)
    if needs is None:
        assert error.required is None and "something of its own" in error.got
        return
    assert error.required == pytest.approx(needs * 2**30) and error.available == pytest.approx(15.75 * 2**30)
    assert tuple(size for size, _ in error.buffers) == buffers
    assert "in_shardings" in error.fix and "tpu-v5e:2x2" in error.fix and "donate" in error.fix
    if buffers:
        assert 'source_file="net.py"' in error.buffers[0][1]
