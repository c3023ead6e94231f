"""Rockchip's toolkit, by a stand-in with its interface and its log: what it makes, refuses, and what it lies about.

The real one has run these networks elsewhere (docs/targets.md); it wants a Python of its own.
"""

import sys

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import tools
from nxjax.errors import ExecutionError, ParameterError
from nxjax.vendors.rockchip import toolkit
from tests.deploy.nets import IMAGE, PARAMS, convnet, quantized

pytest.importorskip("onnxruntime")

FAKE = """
import sys

KIND = {kind!r}
ROW = "D RKNN: [10:00:00.000] {{}}    {{:<18}} INT8     {{}}    (1,3,8,8)     (1,16,8,8)     9/23/{{}}     18      {{}}"


class RKNN:
    def __init__(self, verbose):
        pass

    def config(self, target_platform, **options):
        print(sorted(options.items()), target_platform)

    def load_onnx(self, model):
        self.model = model
        return 0

    def build(self, do_quantization, dataset):
        self.quantized = do_quantization
        self.rows = open(dataset).read().splitlines() if do_quantization else []
        if KIND in ("refuses", "refuses and dies", "lacks memory"):
            words = "std::bad_alloc" if "lacks" in KIND else "Unsupported op Nonsense"
            print("E RKNN: [10:00:00.000]", words, flush=True)
            if "dies" in KIND:
                import atexit, os
                atexit.register(os._exit, 7)
            return -1
        if KIND == "dies":
            import os
            os.abort()
        if KIND == "hangs":
            import time
            time.sleep(600)
        import onnx
        names = [n for n in onnx.load(self.model).graph.node]
        if KIND != "silent":
            print(ROW.format(0, "InputOperator", "CPU", 0, "InputOperator:x"))
            for i, n in enumerate(names):
                name = "elsewhere" if KIND == "another" else n.name
                where = "CPU" if n.op_type == "Gemm" or (KIND == "host") else "NPU"
                print(ROW.format(i + 1, n.op_type, where, 10, n.op_type + ":" + name))
            print(ROW.format(99, "Reshape", "CPU", 0, "Reshape:" + names[0].name + "_mm_tp_rs"))
        return 0

    def export_rknn(self, path):
        if KIND == "nothing":
            return 0
        data = b"garbage" if KIND == "garbage" else b"RKNN" + repr((self.quantized, len(self.rows))).encode()
        data += b"" if KIND == "canned" else open(self.model, "rb").read()
        open(path, "wb").write(data)
        return 0

    def init_runtime(self, target):
        return 0 if KIND != "no simulator" else -1

    def inference(self, inputs, data_format):
        assert data_format == ["nchw"] * len(inputs)
        import onnxruntime
        session = onnxruntime.InferenceSession(self.model, providers=["CPUExecutionProvider"])
        ys = session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs)))
        return [y[:, :1] for y in ys] if KIND == "other shapes" else ys
"""


@pytest.fixture
def stand_in(tmp_path):
    """A Python whose toolkit does as ``kind`` says."""

    def made(kind: str) -> str:
        package = tmp_path / "rknn" / "api"
        package.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rknn" / "__init__.py").write_text("")
        (package / "__init__.py").write_text(FAKE.format(kind=kind))
        info = tmp_path / "rknn_toolkit2-2.5.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rknn-toolkit2\nVersion: 2.5.0\n")
        python = tmp_path / f"python-{kind.replace(' ', '-')}"
        # The real one is run without what the environment says of paths.
        script = f'[ "$1" = -I ] && shift\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'
        python.write_text(f"#!/bin/sh\n{script}")
        python.chmod(0o755)
        return str(python)

    return made


def compiled(python: str, **options):
    return nx.compile(convnet, target="rockchip", python=python, **options)(PARAMS, IMAGE)


def test_the_toolkit_quantizes_compiles_places_and_simulates(stand_in):
    made = compiled(stand_in("works"), calibrate=[(PARAMS, IMAGE), IMAGE])
    assert made.label == "vendor-simulator" and made.files["convnet.rknn"].startswith(b"RKNN(True, 2)")
    assert {made.report.status(r) for r in made.report.rows} <= {"placed", "refused"}
    products = [r for r in made.report.rows if r.macs]
    assert [r.device for r in products if r.op == "conv_2d"] == ["npu"] * sum(r.op == "conv_2d" for r in products)
    assert made.cost["npu cycles"].basis == "vendor-estimate" and "latency" not in made.cost
    compile, ran = made.evidence
    assert (compile.act, compile.status, compile.tool) == ("compiled", 0, "RKNN Toolkit 2 2.5.0")
    assert ran.by == "vendor-simulator" and made.deviation.max_error < 1e-5
    assert compiled(stand_in("works")).files["convnet.rknn"].startswith(b"RKNN(False, 0)")


def test_options_are_the_toolkits(stand_in):
    python = stand_in("works")
    assert compiled(python, algorithm="mmse", method="layer", dtype="w8a16", verify=False).label == "vendor-compiled"
    for wrong in ({"algorithm": "best"}, {"dtype": "w1a1"}, {"python": 3}, {"soc": "x"}):
        with pytest.raises(ParameterError):
            nx.compile(convnet, target="rockchip", **wrong)(PARAMS, IMAGE)
    with pytest.raises(ParameterError, match="has its own quantizer"):
        nx.compile(quantized(), target="rockchip")(PARAMS, IMAGE)


@pytest.mark.parametrize(
    "kind", ["refuses", "refuses and dies", "lacks memory", "dies", "hangs", "nothing", "garbage", "canned"]
)
def test_a_toolkit_that_makes_no_file(stand_in, kind, monkeypatch):
    python = stand_in(kind)
    assert toolkit.python(python)[0]
    monkeypatch.setattr(tools, "TIMEOUT", 20.0 if kind != "hangs" else 5.0)
    made = compiled(python)
    assert made.label == "emitted" and list(made.files) == ["convnet.onnx"]
    (record, ran) = made.evidence
    assert record.act == ("refused" if kind == "refuses" else "failed") and ran.by == "host"
    said = {(r.device, r.decided_by) for r in made.report.rows}
    assert said == ({("host", "vendor")} if kind == "refuses" else {("unknown", "nobody")})
    if kind == "refuses":
        assert "Unsupported op Nonsense" in record.answer


def test_rows_of_all_chips_are_read():
    row = "D RKNN: [10:00:00.000] 3    Conv    INT8    NPU    (1,4)   (1,10)    48/64/64    0%    0    Conv:dense_0#2"
    assert toolkit.rows(row) == (toolkit.RknnRow("dense_0#2", "Conv", True, 64),)
    assert toolkit.rows("D RKNN: [1] 3 " + "a " * 10**6) == ()
    assert toolkit.rows(row.replace("64    0%", "9" * 6000 + "    0%")) == ()


@pytest.mark.parametrize("kind", ["silent", "another", "host", "no simulator", "other shapes"])
def test_a_toolkit_that_says_too_little_or_lies(stand_in, kind):
    python = stand_in(kind)
    made = compiled(python, verify=False)
    devices = {r.device for r in made.report.rows}
    if kind in ("silent", "another"):
        assert devices == {"unknown"} and made.label == "emitted"
        assert compiled(python).label == "emitted"  # also once it has run
    if kind == "host":
        assert devices == {"host"} and made.label == "host"
    if kind in ("no simulator", "other shapes"):
        assert made.label == "vendor-compiled"
        with pytest.raises(ExecutionError, match=r"rockchip|other shapes"):
            made.run(IMAGE)
        assert made.label == "vendor-compiled"


def test_without_the_toolkit_the_file_is_written_and_nothing_is_placed(monkeypatch):
    monkeypatch.delenv(toolkit.VARIABLE, raising=False)
    if toolkit.python()[0]:
        pytest.skip("the toolkit is here")
    made = nx.compile(lambda x: jnp.tanh(x), target="rockchip-rk3566")(np.ones((1, 4), np.float32))
    assert made.label == "emitted" and {r.device for r in made.report.rows} == {"unknown"}
    with pytest.raises(ExecutionError, match="no RKNN Toolkit 2"):
        nx.compile(lambda x: x * 2, target="rockchip", python=sys.executable)(np.ones(3, np.float32))
