"""The demo trains to its bar, tells what ran where, draws, and says what is missing."""

import re
from pathlib import Path

import pytest

from nxjax.demo import __main__ as demo
from nxjax.demo import data, deploy, table
from nxjax.errors import MissingExtraError


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
    assert "simulator" in rows["qualcomm-htp"]
    for target in ("tpu-v4", "tpu-v5e"):
        assert "vendor-compiled" in rows[target] and "us (vendor-estimate)" in rows[target]
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
        table.Row("cpu:0", "xla", "float32", "hardware", 0.98765, 1.5, "x"),
        table.Row("a", "b", "c", "host", 1.0, 12.0),
    ]
    lines = table.render(rows).splitlines()
    assert lines[2].index("98.77 %") == lines[0].index("accuracy") + 1
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
