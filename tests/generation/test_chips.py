"""One decoder, the same tokens on every chip that something here can run."""

from typing import Any

import pytest

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.generation import DecoderConfig, chips, init, quantize_weights, tokens_on

CONFIG = DecoderConfig(vocabulary=64, width=32, layers=1, heads=4, kv_heads=2, head_size=8, hidden=48, context=32)
PARAMS = init(nx.random.key(0), CONFIG)
PROMPT = [3, 5, 7]
# Runtimes and simulators, and what each needs.
RUNNERS = {
    "tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino", "stablehlo": "jaxlib",
    "qualcomm-htp": "onnxruntime_qnn",
}  # fmt: skip


@pytest.mark.parametrize("target", RUNNERS)
def test_tokens_are_equal(target: str):
    pytest.importorskip(RUNNERS[target])
    (row,) = tokens_on(PARAMS, CONFIG, PROMPT, [target], max_tokens=3)
    assert row.equal == len(row.tokens) == 3 and row.runs_on and not row.differs, row


def test_one_unit_reads_and_another_goes_on():
    pytest.importorskip("ai_edge_litert")
    pytest.importorskip("onnxruntime")
    few = quantize_weights(PARAMS, CONFIG)
    (row,) = tokens_on(few, CONFIG, PROMPT, ["tflite"], max_tokens=3, reader="onnx", cache_dtype="int8")
    assert row.equal == 3


def test_what_differs_is_said(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ai_edge_litert")
    made = chips.compile

    def lying(*args: Any, **named: Any) -> Any:
        def build(*example: Any) -> Any:
            artifact = made(*args, **named)(*example)
            run = artifact.run
            monkeypatch.setattr(artifact, "run", lambda *xs: (-run(*xs)[0], run(*xs)[1]))
            return artifact

        return build

    monkeypatch.setattr(chips, "compile", lying)
    matrix = tokens_on(PARAMS, CONFIG, PROMPT, ["tflite"], max_tokens=2)
    assert matrix[0].equal < 2 and "no op leaves the reference" in repr(matrix) and "apart" in matrix._repr_html_()


def test_what_is_not_run_says_why():
    (row,) = tokens_on(PARAMS, CONFIG, PROMPT, ["apple-ane"], max_tokens=1)
    assert not row.tokens and row.why
    with pytest.raises(ParameterError, match="room"):
        tokens_on(PARAMS, CONFIG, PROMPT, [], room=3)
    with pytest.raises(ParameterError, match="at least 1"):
        tokens_on(PARAMS, CONFIG, [], ["tflite"])
