"""``nxjax doctor`` on files: one table, JSON or a page; one line for each error."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.__main__ import main

W = jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32))


def net(x):
    return nx.nn.relu(x @ W)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One network as a file of each format."""
    here = tmp_path_factory.mktemp("models")
    x = jnp.ones((1, 6))
    nx.compile(net, target="onnx", verify=False)(x).save(here / "net.onnx")
    nx.compile(net, target="tflite", verify=False)(x).save(here / "net.tflite")
    quantized = nx.quantize(net, "int8", calibrate=[(x,)])
    nx.compile(quantized, target="tflite", verify=False)(x).save(here / "whole.tflite")
    (here / "net.mlir").write_bytes(nx.compile(net, target="stablehlo", verify=False)(x).bytes)
    np.savez(here / "data.npz", np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32))
    return here


def run(capsys, *arguments):
    status = main(["doctor", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("file", ["net.onnx", "net.tflite", "whole.tflite", "net.mlir"])
def test_any_format_without_a_line_of_python(folder, capsys, file):
    status, out, err = run(capsys, folder / file, "--targets", "tflite,edgetpu")
    assert status == 0, err
    assert out.startswith(f"{file}: ") and "drawn from the shapes" in out
    lines = out.splitlines()
    assert any(line.startswith("tflite") and "takes it" in line for line in lines)
    assert any(line.startswith("edgetpu") and "takes it" in line for line in lines)
    # A line for each target as soon as it is there.
    told = [line.split(":")[0] for line in err.splitlines() if line.endswith(" s)")]
    assert told == ["tflite", "edgetpu"]


@pytest.mark.parametrize("name", ["eval", "train"])
def test_an_exported_program_of_pytorch(capsys, name):
    file = Path(__file__).parents[1] / "interop" / "torch" / "files" / f"{name}.pt2"
    status, out, err = run(capsys, file, "--targets", "tflite,stablehlo", "--policy", "float32", "--json")
    found = json.loads(out)
    assert status in (0, 1), err
    assert found["targets"][1]["files"] and found["targets"][1]["sqnr"] in ("inf", pytest.approx(120, abs=60))


def test_a_quantized_file_stays_on_its_grids(folder, capsys):
    status, out, _ = run(capsys, folder / "whole.tflite", "--targets", "tflite", "--json")
    found = json.loads(out)
    (t,) = found["targets"]
    assert status == 0 and t["policy"] == "as in the file" and t["deviation"]["exact"] and not found["layers"]


def test_data_of_a_file(folder, capsys):
    status, out, _ = run(capsys, folder / "net.onnx", "--targets", "tflite", "--data", folder / "data.npz", "--json")
    found = json.loads(out)
    assert status == 0 and found["data"] == "3 inputs of data.npz"
    assert found["takes"] and len(found["layers"]) >= 1


def test_a_page_beside_the_table(folder, capsys, tmp_path):
    page = tmp_path / "report.html"
    status, out, _ = run(capsys, folder / "net.onnx", "--targets", "tflite", "--html", page)
    assert status == 0 and "takes it" in out
    assert page.read_text().startswith("<!doctype html>")


def test_status_1_where_no_target_takes_it(folder, capsys):
    status, out, _ = run(capsys, folder / "net.onnx", "--targets", "onnx")
    assert status == 1 and "unknown" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.onnx"], "missing.onnx: no such file"),
        (["."], "a folder"),
        (["net.onnx", "--targets", "ethos-u56"], "no such target; got 'ethos-u56'; did you mean 'ethos-u85' or"),
        (["net.onnx", "--data", "none.npz"], "none.npz: no such file"),
        (["net.onnx", "--data", "broken.npz"], "broken.npz: no .npz file, or a damaged one"),
        (["net.onnx", "--data", "one.npy"], "one.npy: one array"),
        (["two.onnx", "--data", "names.npz"], "missing input_1; unknown z"),
        (["net.onnx", "--data", "shape.npz"], "another shape"),
        (["net.onnx", "--data", "dtype.npz"], "would lose by conversion"),
        (["damaged.onnx"], "damaged.onnx"),
        (["damaged.tflite"], "tflite"),
        (["text.bin"], "of no format that can be read"),
        (["net.onnx", "--shape", "x"], "NAME=1,3,224,224"),
        (["net.onnx", "--shape", "y=1,6"], "no input of this name"),
        (["net.onnx", "--shape", "input_0=1,7"], "the shape of"),
        (["net.onnx", "--html", "nowhere/report.html"], "no such folder"),
        (["net.onnx", "--policy", "int3", "--targets", "tflite"], "int3"),
    ],
)
def test_one_line_for_each_error(folder, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    x = jnp.ones((1, 6))
    data = (folder / "net.onnx").read_bytes()
    (folder / "damaged.onnx").write_bytes(data[: len(data) // 2])
    (folder / "damaged.tflite").write_bytes((folder / "net.tflite").read_bytes()[:50])
    (folder / "text.bin").write_bytes(b"hello")
    (folder / "broken.npz").write_bytes((folder / "data.npz").read_bytes()[:60])
    nx.compile(lambda a, b: a + b, target="onnx", verify=False)(x, x).save(folder / "two.onnx")
    np.save(folder / "one.npy", np.ones(3))
    np.savez(folder / "names.npz", input_0=np.ones((1, 6)), z=np.ones((1, 6)))
    np.savez(folder / "shape.npz", np.ones((3, 7), np.float32))
    np.savez(folder / "dtype.npz", np.ones((3, 6), np.complex64))
    status, out, err = run(capsys, *arguments)
    assert status == 2 and not out, (out, err)
    (line,) = [line for line in err.splitlines() if line.startswith("nxjax doctor: ")]
    assert words in line, line


def test_help_names_every_option():
    done = subprocess.run(
        [sys.executable, "-m", "nxjax", "doctor", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert all(o in done.stdout for o in ("--targets", "--data", "--shape", "--policy", "--fix", "--html", "--json"))
