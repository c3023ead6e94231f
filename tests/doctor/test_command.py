"""``nxjax doctor`` on files: one table, JSON or a page; one line for each error."""

import json
import os
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
    assert any(line.startswith("tflite") and "runs on the host" in line for line in lines)
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


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ((), 0, ""),
        (("--require", "part"), 0, ""),
        (("--require", "all", "--min-db", "5"), 0, ""),
        (("--policy", "float32", "--require", "part"), 1, "edgetpu: leaves all to the host, and --require part"),
        (("--min-db", "99"), 1, " dB, and --min-db 99"),
    ],
)
def test_a_script_says_what_it_needs(folder, capsys, options, status, says):
    found, out, err = run(capsys, folder / "net.onnx", "--targets", "tflite,edgetpu", *options)
    assert found == status, err
    assert says in err and out.startswith("net.onnx") and (status or "--require" not in err)


@pytest.mark.parametrize("value", [0.0, 1e-30])
def test_data_of_nothing_is_a_note(folder, capsys, tmp_path, value):
    np.savez(tmp_path / "data.npz", np.full((3, 6), value, np.float32))
    _, out, _ = run(capsys, folder / "net.onnx", "--targets", "tflite", "--data", tmp_path / "data.npz")
    (note,) = (line for line in out.splitlines() if line.startswith("note: int8: quantize: "))
    assert "in calibration" in note


def test_data_that_are_no_numbers_are_refused(folder, capsys, tmp_path):
    np.savez(tmp_path / "data.npz", np.full((3, 6), np.nan, np.float32))
    status, out, err = run(capsys, folder / "net.onnx", "--targets", "tflite", "--data", tmp_path / "data.npz")
    assert status == 2 and not out and "NaN" in err and len(err.splitlines()) == 1


def test_a_page_beside_the_table(folder, capsys, tmp_path):
    page = tmp_path / "report.html"
    status, out, _ = run(capsys, folder / "net.onnx", "--targets", "tflite", "--html", page)
    assert status == 0 and "runs on the host" in out
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


def onnx_file(path, nodes, inputs, outputs, constants=()):
    """An ONNX file of these nodes; ports are (name, type, shape)."""
    from onnx import helper, save

    ports = [[helper.make_tensor_value_info(*p) for p in ps] for ps in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *ports, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, path)
    return path


def relu_file(path, shape, name="x", type=1):
    from onnx import helper

    return onnx_file(path, [helper.make_node("Relu", [name], ["y"])], [(name, type, shape)], [("y", type, shape)])


def test_a_number_that_never_changes_is_a_constant(capsys, tmp_path):
    """The rate chooses a branch, whose other side does not fit the sizes."""
    from onnx import helper, numpy_helper

    wide, narrow = (np.ones((n, 2), np.float32) for n in (6, 4))
    made = lambda w: helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["m"])], "b", [], [helper.make_tensor_value_info("m", 1, [1, 2])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Equal", ["sr", "k"], ["is"]),
        helper.make_node("If", ["is"], ["y"], then_branch=made(wide), else_branch=made(narrow)),
    ]
    file = onnx_file(
        tmp_path / "rate.onnx", nodes, [("x", 1, [1, 6]), ("sr", 7, [])], [("y", 1, [1, 2])],
        [numpy_helper.from_array(np.int64(16000), "k")],
    )  # fmt: skip
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(3, 1, 6)), sr=np.full(3, 16000))
    data = np.load(tmp_path / "data.npz")
    np.savez(tmp_path / "data.npz", x=data["x"].astype(np.float32), sr=data["sr"])
    status, out, err = run(capsys, file, "--targets", "tflite", "--data", tmp_path / "data.npz")
    assert status == 0 and "sr is 16000 in all samples" in out, err
    assert out.startswith("rate.onnx: x: f32[1,6]\n3 inputs of data.npz")


def test_samples_say_open_dimensions(capsys, tmp_path):
    file = relu_file(tmp_path / "open.onnx", ["n", 3, "w"])
    for shape in ((4, 1, 3, 7), (4, 3, 7)):
        np.savez(tmp_path / "data.npz", np.ones(shape, np.float32))
        status, out, err = run(capsys, file, "--targets", "tflite", "--data", tmp_path / "data.npz")
        assert status == 0 and out.startswith("open.onnx: x: f32[1,3,7]\n4 inputs"), err
        assert "open dimensions" not in out


def test_a_named_dimension_has_one_size(capsys, tmp_path):
    from onnx import helper

    file = onnx_file(
        tmp_path / "two.onnx", [helper.make_node("Add", ["a", "b"], ["y"])],
        [("a", 1, ["n", "length"]), ("b", 1, ["n", "length"])], [("y", 1, ["n", "length"])],
    )  # fmt: skip
    status, out, err = run(capsys, file, "--targets", "tflite", "--shape", "a=1,5")
    assert status == 0 and out.startswith("two.onnx: a: f32[1,5], b: f32[1,5]"), err


def test_weights_that_are_no_numbers_have_no_decibels(capsys, tmp_path):
    from onnx import helper, numpy_helper

    x, y = (helper.make_tensor_value_info(name, 1, [1, n]) for name, n in (("x", 8), ("y", 5)))
    w = numpy_helper.from_array(np.full((8, 5), np.nan, np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    file = tmp_path / "nan.onnx"
    file.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    status, out, err = run(capsys, file, "--targets", "tflite", "--policy", "float32")
    assert status == 0 and "no result of the model itself is finite" in out and "exact" not in out, err


def test_a_file_on_grids_has_no_numbers_of_64_bits(capsys, tmp_path):
    w = np.ones((8, 5), np.float32)
    q = nx.quantize(lambda x: jnp.tanh(x @ w), "int8", calibrate=[(np.ones((1, 8), np.float32),)])
    file = tmp_path / "grids.tflite"
    file.write_bytes(nx.compile(q, target="tflite", verify=False)(np.ones((1, 8), np.float32)).bytes)
    status, out, err = run(capsys, file, "--targets", "tflite")
    assert status == 0 and "64 bits" not in out, err


def test_numbers_of_64_bits_and_roots_of_noise(capsys, tmp_path):
    from onnx import helper

    file = relu_file(tmp_path / "wide.onnx", [1, 3], type=11)
    status, out, err = run(capsys, file, "--targets", "tflite")
    assert status == 0 and "numbers of 64 bits are computed in 32" in out, err
    roots = onnx_file(
        tmp_path / "root.onnx", [helper.make_node("Sqrt", ["x"], ["y"])], [("x", 1, [1, 6])], [("y", 1, [1, 6])]
    )
    status, out, err = run(capsys, roots, "--targets", "tflite", "--json")
    found = json.loads(out)
    assert status == 0 and "magnitudes of normal noise" in found["data"], err
    assert found["targets"][0]["policy"] == "int8" and found["targets"][0]["sqnr"] > 20


@pytest.mark.parametrize(
    ("shape", "type", "words"),
    [([10**5, 10**5, 100], 1, "is too large"), ([2**40, 2**40], 1, "is too large"), ([3], 8, "holds texts")],
)
def test_inputs_that_no_machine_holds(capsys, tmp_path, shape, type, words):
    status, out, err = run(capsys, relu_file(tmp_path / "x.onnx", shape, type=type), "--targets", "tflite")
    assert status == 2 and not out and words in err


def test_a_format_is_known_by_content(folder, capsys, tmp_path):
    for name in ("net.onnx", "net.tflite"):
        (tmp_path / "model").write_bytes((folder / name).read_bytes())
        assert run(capsys, tmp_path / "model", "--targets", "tflite")[0] == 0


def test_names_of_a_file_move_no_terminal(capsys, tmp_path):
    evil = "\x1b[31mRED\x1b]0;title\x07\r\nfake: takes it\x9b31m"
    status, out, err = run(capsys, relu_file(tmp_path / "evil.onnx", [1, 3], "x" + evil), "--targets", "tflite")
    assert status == 0
    assert all(c.isprintable() or c == "\n" for c in out + err)
    assert not any(line.startswith("fake") for line in (out + err).splitlines())


def test_the_page_replaces_nothing_but_a_file(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    for name in (".", os.devnull):
        status, out, err = run(capsys, "net.onnx", "--targets", "tflite", "--html", name)
        assert status == 2 and not out and "--html: no file" in err
    assert not Path(os.devnull).is_file()

    def full(*_):
        raise OSError(28, "No space left on device")

    # What was found is not lost if the page is.
    monkeypatch.setattr("nxjax.files.safe_io.write", full)
    status, out, err = run(capsys, "net.onnx", "--targets", "tflite", "--html", "page.html")
    assert status == 2 and "runs on the host" in out and "No space left" in err


def test_interrupted_is_one_line(folder, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nxjax.doctor.command.doctor", stop)
    status, out, err = run(capsys, folder / "net.onnx")
    assert (status, out, err) == (130, "", "nxjax doctor: interrupted\n")


def test_help_names_every_option():
    done = subprocess.run(
        [sys.executable, "-m", "nxjax", "doctor", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert all(o in done.stdout for o in ("--targets", "--data", "--shape", "--policy", "--fix", "--html", "--json"))
