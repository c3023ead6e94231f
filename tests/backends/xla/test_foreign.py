"""Modules written elsewhere: what becomes functions of ours, and what is refused before it could run."""

import subprocess
import sys

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla import foreign, guard, portable
from nxjax.errors import LoweringError, ParameterError
from nxjax.trace.types import ArrayType

F = ArrayType((2,), np.dtype(np.float32))


def module(body, takes="%x: tensor<2xf32>", gives="tensor<2xf32>", more=""):
    return f"module @m {{ func.func public @main({takes}) -> ({gives}) {{\n{body}\n}}\n{more}}}".encode()


def test_symbols_get_the_prefix_and_calls_follow():
    text = module(
        "%0 = call @inner(%x) : (tensor<2xf32>) -> tensor<2xf32>\nreturn %0 : tensor<2xf32>",
        more="func.func private @inner(%x: tensor<2xf32>) -> tensor<2xf32> {\nreturn %x : tensor<2xf32>\n}",
    )
    found = foreign.functions(text, "p7", [F])
    assert found.main == "p7_main" and "@p7_inner" in found.text and "call @p7_inner" in found.text
    assert "private @p7_main" in found.text and "public" not in found.text
    assert found.in_types == found.out_types == ("tensor<2xf32>",)


def test_annotations_of_shardings_go():
    text = b"""module @m { sdy.mesh @mesh = <["x"=2]>
      func.func public @main(%x: tensor<2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<2xf32> {
        %0 = sdy.sharding_constraint %x <@mesh, [{"x"}]> : tensor<2xf32>
        %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{replicated}"} : (tensor<2xf32>) -> tensor<2xf32>
        return %1 : tensor<2xf32> } }"""
    found = foreign.functions(text, "p", [F])
    assert "sdy" not in found.text and "Sharding" not in found.text and "return %arg0" in found.text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) {api_version = 4 : i32, '
         'mhlo.backend_config = {index = 7 : ui64}} : (tensor<2xf32>) -> tensor<2xf32>', "xla_ffi_python"),
        ('%0 = stablehlo.custom_call @lapack_of_my_own(%x) : (tensor<2xf32>) -> tensor<2xf32>', "lapack_of_my_own"),
    ],
)  # fmt: skip
def test_custom_calls_that_could_run_anything_are_refused(line, words):
    with pytest.raises(LoweringError, match=words):
        foreign.functions(module(f"{line}\nreturn %0 : tensor<2xf32>"), "p", [F])


def test_hosts_are_not_talked_to():
    line = (
        "%t = stablehlo.create_token : !stablehlo.token\n"
        '%t2 = "stablehlo.outfeed"(%x, %t) {outfeed_config = ""}'
        " : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token"
    )
    with pytest.raises(LoweringError, match="outfeed"):
        foreign.functions(module(f"{line}\nreturn %x : tensor<2xf32>"), "p", [F])


def test_sizes_and_the_platform_become_constants():
    text = module(
        '%0 = "stablehlo.case"(%p) ({\nstablehlo.return %x : tensor<?xf32>\n}, {\n'
        "%1 = stablehlo.add %x, %x : tensor<?xf32>\nstablehlo.return %1 : tensor<?xf32>\n}) "
        ": (tensor<i32>) -> tensor<?xf32>\nreturn %0 : tensor<?xf32>",
        takes="%p: tensor<i32>, %x: tensor<?xf32>",
        gives="tensor<?xf32>",
    )
    found = foreign.functions(text, "p", [F], platform=1)
    assert "add" in found.text and "?" not in found.text
    assert found.out_types == ("tensor<2xf32>",)
    assert "add" not in foreign.functions(text, "p", [F], platform=0).text.replace("p_main", "")


def test_wrong_modules():
    with pytest.raises(LoweringError, match="cannot be read"):
        foreign.functions(b"no module", "p", [F])
    with pytest.raises(LoweringError, match="no function main"):
        foreign.functions(b"module @m {}", "p", [F])
    with pytest.raises(LoweringError, match="number of arguments"):
        foreign.functions(module("return %x : tensor<2xf32>"), "p", [F, F])
    with pytest.raises(ParameterError, match="do not fit"):
        foreign.functions(module("return %x : tensor<?x3xf32>", "%x: tensor<?x3xf32>", "tensor<?x3xf32>"), "p", [F])


def test_a_child_reads_modules_first(tmp_path, monkeypatch):
    data, _ = portable.serialized(portable.legalized(module("return %x : tensor<2xf32>").decode()))
    calls = []
    run = subprocess.run
    monkeypatch.setattr(guard.subprocess, "run", lambda *a, **k: calls.append(1) or run(*a, **k))
    with nx.config.using(cache_dir=str(tmp_path)):
        guard._read.clear()
        guard.checked(data)
        guard.checked(data)
        guard._read.clear()
        guard.checked(data)  # known on disk
        assert len(calls) == 1
        with pytest.raises(LoweringError, match="cannot be read"):
            guard.checked(data[: len(data) // 2])
        with pytest.raises(LoweringError, match="not a portable artifact"):
            guard.checked(b"text")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status -11"),
        ("import time; time.sleep(60)", "takes over"),
        ("raise SystemExit('a reason')", "a reason"),
    ],
)
def test_a_child_that_ends_or_hangs_is_an_error(program, words, monkeypatch):
    run = subprocess.run
    monkeypatch.setattr(guard, "SECONDS", (1.0, 0.0))
    monkeypatch.setattr(guard.subprocess, "run", lambda a, **k: run([sys.executable, "-c", program], **k))
    with pytest.raises(LoweringError, match=words):
        guard.checked(b"ML\xefR and more " + program.encode())
