"""Seconds per generated token, and until the first: nxjax beside ONNX Runtime's generator and a loop over ONNX Runtime.

All run the same decoder with the same weights and write the same tokens; what differs is said in the note.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import nxjax as nx
from benchmarks.peers import package
from benchmarks.runner import Figure
from nxjax import generation
from nxjax.generation import DecoderConfig, Generator
from nxjax.generation.generator import WARM

DECODERS = {
    "0.8 M": DecoderConfig(512, 128, 4, 8, 2, 16, 352, context=256),
    "25 M": DecoderConfig(4096, 512, 8, 8, 2, 64, 1408, context=1024),
}
WEIGHTS = {"float32": None, "int8": "int8-weights", "int4": "int4-weights"}
TOKENS, PROMPT, ROUNDS = 48, 64, 12

Times = tuple[float, float]  # seconds until the first token, and per token after it


class PlainLoop:
    """Greedy tokens by ONNX Runtime alone: the past stays in its own values from run to run."""

    def __init__(self, folder: str, config: DecoderConfig) -> None:
        import onnxruntime as ort

        self.ort, self.config = ort, config
        self.session = ort.InferenceSession(str(Path(folder, "model.onnx")), providers=["CPUExecutionProvider"])
        self.names = [f"{i}.{part}" for i in range(config.layers) for part in ("key", "value")]

    def generate(self, prompt: list[int], count: int) -> tuple[list[int], Times]:
        value = self.ort.OrtValue.ortvalue_from_numpy
        shape = (1, self.config.kv_heads, 0, self.config.head_size)
        past = [value(np.zeros(shape, np.float32)) for _ in self.names]
        tokens, made = np.array([prompt], np.int64), list[int]()
        times = [time.perf_counter()]
        for i in range(count):
            binding = self.session.io_binding()
            binding.bind_cpu_input("input_ids", tokens)
            binding.bind_cpu_input("attention_mask", np.ones((1, len(prompt) + i), np.int64))
            for name, x in zip(self.names, past, strict=True):
                binding.bind_ortvalue_input(f"past_key_values.{name}", x)
            for name in ("logits", *(f"present.{n}" for n in self.names)):
                binding.bind_output(name)
            self.session.run_with_iobinding(binding)
            logits, *past = binding.get_outputs()
            made.append(int(logits.numpy()[0, -1].argmax()))
            tokens = np.array([made[-1:]], np.int64)
            times.append(time.perf_counter())
        return made, (times[1] - times[0], (times[-1] - times[1]) / (count - 1))


def of(result: Any) -> tuple[list[int], Times]:
    rate = result.tokens_per_second
    # Without one, all calls were compiling.
    return result.tokens[0], (result.prompt_seconds, 1 / rate if rate else float("inf"))


def measured(config: DecoderConfig, params: Any) -> tuple[dict[str, Times], int]:
    """The least times of each contender, run in turn, and how many tokens all agree on."""
    prompt = np.random.default_rng(0).integers(0, config.vocabulary, PROMPT).tolist()
    ours = Generator(params, config)
    runs: dict[str, Callable[[], tuple[list[int], Times]]] = {
        "nxjax": lambda: of(ours.generate(prompt, max_tokens=TOKENS)),
        "nxjax, loop on the device": lambda: of(ours.generate(prompt, max_tokens=TOKENS, on_device=True)),
    }
    with tempfile.TemporaryDirectory() as folder:
        if package("onnxruntime_genai") is not None:
            generation.export_genai(params, config, None, folder)
            model, loop = generation.load_genai(folder), PlainLoop(folder, config)
            runs["onnxruntime-genai"] = lambda: of(model.generate(prompt, max_tokens=TOKENS))
            runs["onnxruntime"] = lambda: loop.generate(prompt, TOKENS)
        times = {name: (float("inf"), float("inf")) for name in runs}
        written: dict[str, list[int]] = {}
        for i in range(ROUNDS + WARM):
            for name, run in runs.items():
                written[name], (first, each) = run()
                if i >= WARM:
                    times[name] = (min(times[name][0], first), min(times[name][1], each))
    first = written["nxjax"]
    same = min(next((i for i, (a, b) in enumerate(zip(first, t)) if a != b), len(first)) for t in written.values())
    return times, same


def figures() -> Iterator[Figure]:
    for size, config in DECODERS.items():
        params = generation.init(nx.random.key(0), config)
        for kind, policy in WEIGHTS.items():
            few = params if policy is None else generation.quantize_weights(params, config, policy)
            times, same = measured(config, few)
            note = f"{generation.nbytes(few) / 1e6:.1f} MB of weights; {same} of {TOKENS} tokens the same in all"
            for column, what in enumerate(("first token", "each token")):
                ours = times["nxjax"][column]
                device = times["nxjax, loop on the device"][column]
                peers = {n: t[column] for n, t in times.items() if not n.startswith("nxjax")}
                best = min(peers, key=lambda n: peers[n], default="")
                more = f"{PROMPT} tokens of prompt" if not column else f"on the device {device * 1e6:,.0f} us; {note}"
                yield Figure(
                    f"generate {size} {kind}, {what}", ours, peers.get(best), best, None, more, peers=peers
                )  # fmt: skip
