"""A decoder for ONNX Runtime's generator: its folder written from weights, and run with the options used here.

The graph is `lower.npu.formats.onnx_decoder`, the runtime `vendors.onnx.genai`; this is where they meet a decoder, a
tokenizer and a sampler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.generation.config import DecoderConfig
from nxjax.generation.model import Params, check
from nxjax.generation.result import Generated, GeneratedSequence, listed
from nxjax.generation.rope import rotations
from nxjax.generation.sampling import Sampler
from nxjax.generation.tokenizer import FILE, SETTINGS, Tokenizer
from nxjax.trace.boundary import entry

# Of `Sampler`, and of the runtime.
GREEDY: Final = Sampler()
# Rules of a sampler that the runtime does not have, and what it has instead.
_NOT_THERE: Final = {
    "min_p": "top_p",
    "presence_penalty": "repetition_penalty",
    "frequency_penalty": "repetition_penalty",
    "processors": "a Generator",
}


def export_genai(
    params: Params,
    config: DecoderConfig,
    tokenizer: Tokenizer | None,
    path: str | os.PathLike[str],
    *,
    provider: str = "cpu",
    options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Write a model folder for onnxruntime-genai, here or in C++, C# or Java. It is written completely or not at all.

    Quantized weights keep their bits: ``MatMulNBits`` and ``GatherBlockQuantized`` with the same integers and scales,
    float32 activations. A provider other than ``cpu`` is written into the configuration, and nothing is run. So such a
    folder is only emitted until `load_genai` runs it with the provider.

    Args:
        params: from `init`, or quantized by `quantize_weights`.
        config: sizes; ``head_size`` is a multiple of 16.
        tokenizer: its files are written next to the model; None leaves them out, and the folder only takes tokens.
        path: of the folder; an existing one with a ``genai_config.json`` is replaced.
        provider: "cpu", "qnn", "OpenVINO", "dml", or "RyzenAI", which only AMD's own build of the package knows.
        options: the provider's own.

    Returns:
        Bytes of each file, by name.

    Raises:
        LoweringError: a head size that the runtime's attention does not support.
        ParameterError: another provider, something else at ``path``, or a decoder with options.
        MissingExtraError: onnx is not installed.

    >>> import nxjax as nx, os, tempfile
    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=16, layers=1, heads=2, kv_heads=1, head_size=16, hidden=8)
    >>> folder = os.path.join(tempfile.mkdtemp(), "tiny")
    >>> sorted(export_genai(init(nx.random.key(0), config), config, None, folder))
    ['genai_config.json', 'model.onnx', 'model.onnx.data']
    """
    from nxjax.lower.npu.formats import onnx_decoder
    from nxjax.vendors.onnx import genai

    check(params, config)
    if config.options:
        raise ParameterError(
            "export_genai: a decoder with options that the runtime's graph does not have",
            got=", ".join(config.options),
            expected="RMS norms, rotary positions, no biases, gated MLPs with silu",
        )
    if options and provider == "cpu":
        raise ParameterError("export_genai: the CPU's provider has no options", got=", ".join(options), expected="none")
    data_name = f"{genai.MODEL}.data"
    chosen = genai.provider_options(provider, options)
    made = onnx_decoder.write(params, config, *rotations(config), data_name)
    files = {genai.MODEL: made.model, data_name: made.data}
    if tokenizer is not None:
        files |= _files(tokenizer)
    files[genai.CONFIG] = json.dumps(_configuration(config, tokenizer, chosen, genai.MODEL), indent=2).encode()
    genai.write_folder(path, files)
    return {name: len(data) for name, data in files.items()}


def _files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """A tokenizer's files. The runtime knows by its class that a vocabulary of unigrams is a list."""
    files = tokenizer.files()
    if type(tokenizer.backend.model).__name__ == "Unigram":
        files[SETTINGS] = json.dumps({**json.loads(files[SETTINGS]), "tokenizer_class": "T5Tokenizer"}).encode()
    return files


def _configuration(
    config: DecoderConfig, tokenizer: Tokenizer | None, providers: list[Any], model: str
) -> dict[str, Any]:
    """``genai_config.json`` (onnxruntime.ai/docs/genai/reference/config.html)."""
    ends, begin = ([], []) if tokenizer is None else (list(tokenizer.ends), list(tokenizer.begin))
    # The token after the decoder's last is padding (`onnx_decoder`). The list of what ends may be empty, where null and
    # numbers that no token has are refused.
    return {
        "model": {
            "type": "llama",
            "bos_token_id": [*begin, *ends, config.vocabulary][0],
            "eos_token_id": ends[0] if len(ends) == 1 else ends,
            "pad_token_id": config.vocabulary,
            "vocab_size": config.vocabulary + 1,
            "context_length": config.context,
            "decoder": {
                "session_options": {"log_id": "nxjax", "provider_options": providers},
                "filename": model,
                "head_size": config.head_size,
                "hidden_size": config.width,
                "num_attention_heads": config.heads,
                "num_hidden_layers": config.layers,
                "num_key_value_heads": config.kv_heads,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "max_length": config.context,
            "min_length": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 1,
            "top_p": 1.0,
            "past_present_share_buffer": True,
        },
    }


@final
class GenaiModel:
    """A model folder in ONNX Runtime's generator, used as a `Generator`.

    Attributes:
        tokenizer: of the folder; None if it has none, or one whose tokens are not strings of bytes.
        label: "host" on the CPU. "emitted" with another provider, because the runtime does not say what runs on the
            chip.
        evidence: the record of the runtime that loaded the graph.
        provider: of the runtime.
        room: the most tokens of a sequence.

    >>> import nxjax as nx, os, tempfile
    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=16, layers=1, heads=2, kv_heads=1, head_size=16, hidden=8)
    >>> folder = os.path.join(tempfile.mkdtemp(), "tiny")
    >>> _ = export_genai(init(nx.random.key(0), config), config, None, folder)
    >>> GenaiModel(folder).label
    'host'
    """

    @entry
    def __init__(self, path: str | os.PathLike[str], provider: str | None = None) -> None:
        from nxjax.vendors.onnx.genai import GenaiSession

        self._session = GenaiSession(path, provider)
        self.label, self.provider = self._session.label, self._session.provider
        self.evidence = self._session.evidence
        model = self._session.config["model"]
        self.room: int = model["context_length"]
        self.vocabulary: int = model["vocab_size"]
        end = model["eos_token_id"]
        self.ends: tuple[int, ...] = tuple(end) if isinstance(end, list) else (end,)
        self._pad: int = model.get("pad_token_id", self.ends[0] if self.ends else 0)
        self.tokenizer = _tokenizer(path)

    def generate(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> Generated:
        """As `Generator.generate`, by the runtime. It draws its own random numbers, from a seed instead of a key.

        Raises:
            ParameterError: a prompt that is empty or too long, or a rule of the sampler that the runtime does not have:
                ``min_p``, presence and frequency penalties, processors.
        """
        rows, _ = self._rows(prompts, max_tokens, stop)
        times: list[float] = []
        steps = 0
        for tokens, seconds in self._steps(rows, sampler, seed):
            steps += sum(row.reason is None for row in rows) if times else 0
            times.append(seconds)
            for row, token in zip(rows, tokens, strict=True):
                if row.reason is None:
                    row.put(token)
            if all(row.reason is not None for row in rows):
                break
        return Generated.of(rows, times[0], sum(times[1:]), steps)

    def stream(
        self,
        prompts: Any,
        *,
        max_tokens: int = 128,
        sampler: Sampler = GREEDY,
        seed: int | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[Any]:
        """As `Generator.stream`: pieces of text of one prompt, (row, piece) of several."""
        if self.tokenizer is None:
            raise ParameterError("stream: texts need a tokenizer", got="a folder without tokenizer.json")
        rows, several = self._rows(prompts, max_tokens, stop)
        return self._pieces(rows, several, sampler, seed)

    def _pieces(
        self, rows: list[GeneratedSequence], several: bool, sampler: Sampler, seed: int | None
    ) -> Iterator[Any]:
        for tokens, _ in self._steps(rows, sampler, seed):
            for i, (row, token) in enumerate(zip(rows, tokens, strict=True)):
                piece = row.put(token) if row.reason is None else ""
                if piece:
                    yield (i, piece) if several else piece
            if all(row.reason is not None for row in rows):
                return

    def logits(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Logits of the next token, float32 [vocab_size]; in folders of `export_genai` the last is for padding."""
        return self._session.logits(tokens)

    def _steps(
        self, rows: list[GeneratedSequence], sampler: Sampler, seed: int | None
    ) -> Iterator[tuple[list[int], float]]:
        for name, fix in _NOT_THERE.items():
            if getattr(sampler, name):
                raise ParameterError(f"onnxruntime-genai has no {name}", got=sampler, fix=fix)
        longest = max(len(r.prompt) for r in rows)
        search: dict[str, Any] = {
            "max_length": min(self.room, longest + max(r.limit for r in rows)),
            "do_sample": not sampler.greedy,
            "repetition_penalty": float(sampler.repetition_penalty),
        }
        if not sampler.greedy:
            search |= {
                "temperature": float(sampler.temperature),
                "top_k": sampler.top_k or self.vocabulary,
                "top_p": float(1.0 if sampler.top_p is None else sampler.top_p),
            }
            if seed is not None:
                search["random_seed"] = seed
        return self._session.steps([r.prompt for r in rows], self._pad, **search)

    def _rows(self, prompts: Any, max_tokens: int, stop: Sequence[str]) -> tuple[list[GeneratedSequence], bool]:
        given, several = listed(prompts)
        if self.tokenizer is None and (stop or any(isinstance(p, str) for p in given)):
            raise ParameterError("texts need a tokenizer", got="a folder without tokenizer.json", fix="give tokens")
        lists = [self.tokenizer.prompt(p) if isinstance(p, str) else p for p in given]  # pyright: ignore[reportOptionalMemberAccess]
        for tokens in lists:
            if not 1 <= len(tokens) < self.room:
                raise ParameterError("tokens of a prompt", got=len(tokens), expected=f"1 to {self.room - 1}")
        padded = len(lists) > 1
        if any(self._pad in (tokens if padded else tokens[-1:]) for tokens in lists):
            raise ParameterError(
                "the runtime takes a token of the prompt for padding", got=self._pad, fix="another one"
            )
        longest = max(map(len, lists))
        limit = min(max_tokens, self.room - longest)
        return [GeneratedSequence(tokens, limit, self.ends, self.tokenizer, stop) for tokens in lists], several

    def __repr__(self) -> str:
        return f"GenaiModel(provider {self.provider}, {self.label})"


def _tokenizer(path: str | os.PathLike[str]) -> Tokenizer | None:
    if not (Path(path) / FILE).exists():
        return None
    try:
        return Tokenizer.load(path)
    except ParameterError:
        # Another's folder, with a tokenizer of another kind: it still takes tokens.
        return None


@entry
def load_genai(path: str | os.PathLike[str], provider: str | None = None) -> GenaiModel:
    """A model folder, from `export_genai` or elsewhere, ready to run in onnxruntime-genai.

    Args:
        path: of the folder.
        provider: another than the folder's, such as "cpu".

    Raises:
        InvalidFileError: no such folder.
        ExecutionError: the runtime refuses it; "RyzenAI" runs only in AMD's own build.
        MissingExtraError: onnxruntime-genai is not installed.

    >>> import nxjax as nx, os, tempfile
    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=16, layers=1, heads=2, kv_heads=1, head_size=16, hidden=8)
    >>> folder = os.path.join(tempfile.mkdtemp(), "tiny")
    >>> _ = export_genai(init(nx.random.key(0), config), config, None, folder)
    >>> len(load_genai(folder).generate([1, 2], max_tokens=4).tokens[0]) <= 4
    True
    """
    return GenaiModel(path, provider)
