"""How mlir-aie's tools are called and what is made of their answers: stand-ins on the PATH that check and answer."""

import os
import stat
import struct
import sys

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ExecutionError
from nxjax.vendors.amd.aie import aiecc

W = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)

# Stand-ins that leave files which depend on what they are given, as compilers do.
CLANG = f"""#!{sys.executable}
import os, shutil, sys
words = " ".join(sys.argv[1:])
open(os.environ["NXJAX_TEST_LOG"], "a").write("clang++ " + words + "\\n")
source, _, made = sys.argv[-3:]
if "--target=aie2-none-unknown-elf" not in words or not source.endswith(".cc") or not made.endswith(".o"):
    print("bad command")
    raise SystemExit(3)
if source == "f.cc" and "aie::mmul" not in open(source).read():
    raise SystemExit(4)
shutil.copy(os.environ["NXJAX_TEST_FILES"] + "/object", made)
"""
AIECC = f"""#!{sys.executable}
import hashlib, os, sys
open(os.environ["NXJAX_TEST_LOG"], "a").write("aiecc " + " ".join(sys.argv[1:]) + "\\n")
design = sys.argv[-1]
made = design.replace(".mlir", ".o")
if not os.path.exists(made):
    print("error: no such file", file=sys.stderr)
    raise SystemExit(1)
text = open(design, "rb").read()
if b'link_with = "' + made.encode() not in text:
    raise SystemExit(5)
names = dict(a[2:].split("=", 1) for a in sys.argv if a.startswith("--") and "=" in a)
for flag, kind in (("xclbin-name", "xclbin"), ("npu-insts-name", "insts")):
    data = open(os.environ["NXJAX_TEST_FILES"] + "/" + kind, "rb").read()
    mark = b"" if len(data) < 20 or os.environ.get("NXJAX_TEST_CANNED") == kind else hashlib.sha256(text).digest()[:4]
    if data[:8].isalnum():
        mark = mark.hex().encode() + bytes(bool(mark)).replace(bytes(1), b"\\n")
    open(names[flag], "wb").write(data[: len(data) - len(mark)] + mark)
"""
FAILS = """#!/bin/sh
echo "f.mlir:3:5: error: 'aie.tile' op is not what this stand-in likes" >&2
exit 7
"""
SILENT = "#!/bin/sh\nexit 0\n"
OBJECT = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack("<H", 1) + bytes(60)
# The length at 304, one section (AIE_PARTITION) at 448, its header at 456, its bytes at 496.
XCLBIN = (
    b"xclbin2\0".ljust(304, b"\xff") + struct.pack("<Q", 504) + bytes(136) + struct.pack("<I4x", 1)
    + struct.pack("<I16s4xQQ", 32, b"partition", 496, 8) + bytes(8)
)  # fmt: skip
INSTS = struct.pack("<7I", 0x06030100, 0x0105, 1, 28, 0, 0x1D000, 7)
KINDS = {"object": OBJECT, "xclbin": XCLBIN, "insts": INSTS}


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
        monkeypatch.setenv("NXJAX_TEST_FILES", str(tmp_path))
        for kind, data in KINDS.items():
            (tmp_path / kind).write_bytes(data)
        return tmp_path / "log"

    return install


def compiled(**options):
    def f(params, x):
        return x @ params["w"]

    q = nx.quantize(f, "int8", calibrate=[({"w": W}, X)])
    return nx.compile(q, target="aie-npu1", **options)({"w": W}, X)


@pytest.mark.parametrize("name", ["aiecc", "aiecc.py"])
def test_designs_are_compiled_where_the_tools_are(tools, name):
    log = tools(CLANG, AIECC, name)
    artifact = compiled()
    assert artifact.label == "vendor-compiled"
    assert artifact.files["f.xclbin"][:-4] == XCLBIN[:-4] and artifact.files["f.insts.bin"][:-4] == INSTS[:-4]
    assert "array model" in artifact.runs_on and artifact.deviation.exact
    # Then it is asked for files of what is no design, and of another one, for each of the two.
    first, second, *rest = log.read_text().splitlines()
    assert [line.split()[-1] for line in rest if line.startswith("aiecc")] == ["none.mlir", "another.mlir", "none.mlir"]
    assert "no file of no model, another of another model" in artifact.evidence[0].checked
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
    assert artifact.label == "own-model" and "f.xclbin" not in artifact.files
    assert words in " ".join(artifact.notes)
    assert artifact.deviation.exact


def test_the_tools_can_be_left_alone(tools):
    log = tools(CLANG, AIECC)
    assert compiled(aiecc=False).label == "own-model" and not log.exists()


def test_without_the_cores_compiler_the_error_says_what_to_install():
    with pytest.raises(ExecutionError, match="Peano"):
        aiecc.compile_design(aiecc.Tools("aiecc", None, None, "include"), "f", {}, "aie2-none-unknown-elf", {})


WRONG = [
    ("object", b"garbage\n", "begins with b'garb'"),
    ("object", OBJECT[:16] + b"\2\0" + OBJECT[18:], "no relocatable"),
    ("xclbin", b"garbage\n", "begins with b'garbage"),
    ("xclbin", XCLBIN[:300], "header is cut"),
    ("xclbin", XCLBIN[:500], "says 504 bytes"),
    ("xclbin", XCLBIN[:448] + struct.pack("<I", 9) + XCLBIN[452:], "says 9 sections"),
    ("xclbin", XCLBIN[:480] + struct.pack("<QQ", 496, 99) + bytes(8), "a section ends behind it"),
    ("xclbin", XCLBIN[:456] + b"\6" + XCLBIN[457:], "no section with an array"),
    ("insts", b"garbage\n", "no header"),
    ("insts", INSTS + bytes(4), "1 instructions of 28 bytes"),
    ("insts", bytes(28), "0 instructions"),
]


@pytest.mark.parametrize(("kind", "data", "words"), WRONG)
def test_what_is_no_object_no_xclbin_and_no_instructions_is_not_compiled(tools, kind, data, words):
    log = tools(CLANG, AIECC)
    (log.parent / kind).write_bytes(data)
    artifact = compiled()
    assert artifact.label == "own-model" and "f.xclbin" not in artifact.files
    assert words in " ".join(artifact.notes)


def test_instructions_in_hexadecimal_digits_are_the_same_words(tools):
    log = tools(CLANG, AIECC)
    (log.parent / "insts").write_text("".join(f"{word:08X}\n" for word in struct.unpack("<7I", INSTS)))
    assert compiled().files["f.insts.bin"][:-4] == INSTS[:-4]


@pytest.mark.parametrize("kind", ["xclbin", "insts"])
def test_a_compiler_that_leaves_one_file_whatever_the_design_has_compiled_nothing(tools, monkeypatch, kind):
    tools(CLANG, AIECC)
    monkeypatch.setenv("NXJAX_TEST_CANNED", kind)
    artifact = compiled()
    assert artifact.label == "own-model" and "f.xclbin" not in artifact.files
    assert "the same file of another model" in " ".join(artifact.notes)
