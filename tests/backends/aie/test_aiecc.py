"""How mlir-aie's tools are called and what is made of their answers: stand-ins on the PATH that check and answer."""

import os
import stat

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.aie import aiecc
from nxjax.errors import ExecutionError

W = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)

CLANG = """#!/bin/sh
echo "clang++ $@" >> "$NXJAX_TEST_LOG"
case "$*" in *--target=aie2-none-unknown-elf*-c*.cc*-o*.o*) ;; *) echo "bad command"; exit 3;; esac
grep -q aie::mmul f.cc || exit 4
echo object > f.o
"""
AIECC = """#!/bin/sh
echo "aiecc $@" >> "$NXJAX_TEST_LOG"
[ -f f.o ] || { echo "error: f.o: no such file" >&2; exit 1; }
grep -q 'link_with = "f.o"' f.mlir || exit 5
for a in "$@"; do case "$a" in
  --xclbin-name=*) echo xclbin-bytes > "${a#*=}";;
  --npu-insts-name=*) echo insts > "${a#*=}";;
esac; done
"""
FAILS = """#!/bin/sh
echo "f.mlir:3:5: error: 'aie.tile' op is not what this stand-in likes" >&2
exit 7
"""
SILENT = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def tools(tmp_path, monkeypatch):
    def install(clang, driver, name="aiecc"):
        for where, text in ((tmp_path / "peano/bin/clang++", clang), (tmp_path / "bin" / name, driver)):
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_text(text)
            where.chmod(where.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PEANO_INSTALL_DIR", str(tmp_path / "peano"))
        monkeypatch.setenv("NXJAX_TEST_LOG", str(tmp_path / "log"))
        return tmp_path / "log"

    return install


def compiled(**options):
    def f(params, x):
        return x @ params["w"]

    q = nx.quantize(f, calibrate=[({"w": W}, X)])
    return nx.compile(q, target="aie-npu1", **options)({"w": W}, X)


@pytest.mark.parametrize("name", ["aiecc", "aiecc.py"])
def test_designs_are_compiled_where_the_tools_are(tools, name):
    log = tools(CLANG, AIECC, name)
    artifact = compiled()
    assert artifact.label == "vendor-compiled"
    assert artifact.files["f.xclbin"] == b"xclbin-bytes\n" and artifact.files["f.insts.bin"] == b"insts\n"
    assert "array model" in artifact.runs_on and artifact.deviation.exact
    first, second = log.read_text().splitlines()
    assert "-std=c++20" in first and "/include" in first
    for word in ("--no-xchesscc", "--no-xbridge", "--peano=", "--aie-generate-xclbin", "--aie-generate-npu-insts"):
        assert word in second
    assert second.endswith("f.mlir")


@pytest.mark.parametrize(
    ("clang", "driver", "words"),
    [
        (CLANG, FAILS, "not what this stand-in likes"),
        (CLANG, SILENT, "left no file"),
        (FAILS, AIECC, "clang++ fails with 7"),
    ],
    ids=["aiecc fails", "aiecc leaves nothing", "clang fails"],
)
def test_what_the_tools_say_is_shown_and_the_text_stays_emitted(tools, clang, driver, words):
    tools(clang, driver)
    artifact = compiled()
    assert artifact.label == "emitted" and "f.xclbin" not in artifact.files
    assert words in " ".join(artifact.notes)
    assert artifact.deviation.exact


def test_the_tools_can_be_left_alone(tools):
    log = tools(CLANG, AIECC)
    assert compiled(aiecc=False).label == "emitted" and not log.exists()


def test_without_the_cores_compiler_the_error_says_what_to_install():
    with pytest.raises(ExecutionError, match="Peano"):
        aiecc.compile_design(aiecc.Tools("aiecc", None, None, "include"), "f", {}, "aie2-none-unknown-elf")
