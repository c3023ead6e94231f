"""A program in parts is read from its plan: files are checked, and what they compute is the program."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.deploy import load
from nxjax.errors import InvalidFileError, LoweringError, ParameterError
from tests.deploy.test_parts import PACKAGES, PROGRAMS, X, transformed


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    nx.compile(transformed, target="tflite")(X).save(folder)
    return folder


def copied(saved, folder):
    for file in saved.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu"])
@pytest.mark.parametrize("name", ["fft", "scatter"])
def test_the_parts_are_the_program_again(name, target, tmp_path):
    pytest.importorskip(PACKAGES[target])
    pytest.importorskip("jaxlib")
    f, args, _ = PROGRAMS[name]
    nx.compile(f, target=target)(*args).save(tmp_path / "net.json")
    loaded = load(tmp_path / "net.json")
    assert loaded.graph is None and loaded.report.rows and len(loaded.files) > 2
    for got, want in zip(nx.tree.leaves(loaded.run(*args)), nx.tree.leaves(f(*args)), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_integers_and_constants(tmp_path):
    pytest.importorskip("jaxlib")
    f = lambda x: (transformed(x), jnp.int32([1, 2]), x)
    q = nx.quantize(f, "int8", calibrate=[(X,)])
    nx.compile(q, target="tflite", io="integer")(X).save(tmp_path)
    for got, want in zip(load(tmp_path).run(X), q(X), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_files_that_are_missing_or_others_are_named(saved, tmp_path):
    folder = copied(saved, tmp_path)
    place = folder / "transformed_2.tflite"
    data = place.read_bytes()
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InvalidFileError, match=r"part 2: transformed_2.tflite is not the file") as error:
        load(folder)
    assert "SHA-256" in str(error.value.got)
    place.unlink()
    with pytest.raises(InvalidFileError, match="part 2: a file is missing"):
        load(folder)


BROKEN = {
    "no plan": lambda plan: {},
    "a later part": lambda plan: plan["parts"][0].update(inputs=[["part", 1, 0]]),
    "no such input": lambda plan: plan["parts"][0].update(inputs=[["input", 7]]),
    "no such type": lambda plan: plan["inputs"][0].update(dtype="object"),
    "a negative size": lambda plan: plan["inputs"][0].update(shape=[-1, 4]),
    "an enormous size": lambda plan: plan["inputs"][0].update(shape=[2**40, 2**40]),
    "a constant of another size": lambda plan: plan["outputs"].append(
        ["value", {"dtype": "int8", "shape": [3], "base64": "AAA="}]
    ),
    "a file elsewhere": lambda plan: plan["parts"][0].update(file="../x.tflite", sha256={"../x.tflite": "0"}),
    "no digest": lambda plan: plan["parts"][0].update(sha256={}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_plans_are_not_trusted(name, saved, tmp_path):
    folder = copied(saved, tmp_path)
    place = folder / "transformed.parts.json"
    plan = json.loads(place.read_bytes())
    found = BROKEN[name](plan)
    place.write_text(json.dumps(plan if found is None else found))
    with pytest.raises(InvalidFileError, match=r"transformed\.parts\.json"):
        load(folder)


def test_what_cannot_be_loaded_says_why(saved, tmp_path):
    with pytest.raises(ParameterError, match="compiled already"):
        load(saved, target="onnx")
    with pytest.raises(InvalidFileError, match="not a file"):
        load(tmp_path)
    f, args, _ = PROGRAMS["callback"]
    nx.compile(f, target="tflite")(*args).save(tmp_path)
    with pytest.raises(LoweringError, match="part 1 is in no file"):
        load(tmp_path)
    copied(saved, tmp_path)
    with pytest.raises(InvalidFileError, match="several plans"):
        load(tmp_path)
