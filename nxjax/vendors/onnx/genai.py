"""ONNX Runtime's generator (onnxruntime-genai): its model folders, and decoders that run in it.

A folder is a graph, its weights, ``genai_config.json``, and a tokenizer's files. The package is imported when a folder
is loaded. Knows no decoder but by its sizes, and no sampling but by the runtime's names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Label, Record, digests, label
from nxjax.backends.extras import need
from nxjax.errors import ExecutionError, InvalidFileError, ParameterError
from nxjax.files import safe_folder, safe_io
from nxjax.ops.base import NDArray

EXTRA: Final = "genai"
CONFIG: Final = "genai_config.json"
MODEL: Final = "model.onnx"
# The runtime's own providers, and those of Windows; the vendors' ones their targets name.
_OWN: Final[dict[str, Mapping[str, str]]] = {"cpu": {}, "dml": {}}
# Public packages answer "Unknown provider name" (RyzenAI-SW issue 333), or ask for AMD's library (0.18).
OWN_BUILD: Final = "AMD's Ryzen AI Software brings the provider and a build of onnxruntime-genai that goes with it"


def providers() -> dict[str, Mapping[str, str]]:
    """Providers by the names that the runtime's configuration has for them, and what a folder for each starts with.

    The graph is the same; which of its operators a provider takes is the provider's to say.
    """
    found = dict(_OWN)
    for cls in registry.classes():
        found.update(cls.providers)
    return found


def provider_options(provider: str, options: Mapping[str, str] | None) -> list[dict[str, dict[str, str]]]:
    """``provider_options`` of a configuration; none for the CPU.

    Raises:
        ParameterError: a provider that the runtime has no name for.
    """
    known = providers()
    if provider not in known:
        raise ParameterError("genai: provider", got=repr(provider), expected=", ".join(known))
    if provider == "cpu":
        return []
    return [{provider: {**known[provider], **{k: str(v) for k, v in (options or {}).items()}}}]


def write_folder(path: str | os.PathLike[str], files: Mapping[str, bytes]) -> None:
    """A folder with these files, whole or not there; replaces one of ours, and refuses to replace anything else."""
    own = lambda folder: not any(folder.iterdir()) or (folder / CONFIG).exists()
    with safe_folder.replacing_folder(path, "genai", own, f"nothing, or a folder with {CONFIG}") as made:
        for name, data in files.items():
            safe_io.write(made / name, data)


@final
class GenaiSession:
    """A model folder loaded into the runtime.

    Attributes:
        label: "host" if the CPU runs it. With another provider "emitted": the runtime does not say which operations run
            on the chip, or whether any do.
        evidence: the record of the runtime that loaded the graph.
        provider: its name.
        config: what ``genai_config.json`` says.
    """

    def __init__(self, path: str | os.PathLike[str], provider: str | None = None) -> None:
        place = Path(path)
        try:
            self.config: dict[str, Any] = safe_io.described(place / CONFIG)
            given = self.config["model"]["decoder"]["session_options"]["provider_options"]
            own = next(iter(given[0])) if given else "cpu"
        except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration) as error:
            raise InvalidFileError(f"{place.name}: no folder of onnxruntime-genai", got=repr(error)) from None
        self.provider = own if provider is None else provider
        og = need("onnxruntime_genai", EXTRA, "running a folder of onnxruntime-genai")
        self._og = og
        try:
            settings = og.Config(str(place))
            if self.provider != own:
                settings.clear_providers()
                for entry in provider_options(self.provider, None):
                    for name, options in entry.items():
                        settings.append_provider(name)
                        for key, value in options.items():
                            settings.set_provider_option(name, key, value)
            self._model = og.Model(settings)
        except (RuntimeError, ValueError) as error:
            fix = OWN_BUILD if self.provider == "RyzenAI" else 'load_genai(path, provider="cpu") runs it on the host'
            raise ExecutionError(
                f"onnxruntime-genai does not load the folder with provider {self.provider}",
                got=str(error).split("\n")[0],
                fix=fix,
            ) from None
        graph = {MODEL: (place / MODEL).read_bytes()}
        name = f"onnxruntime-genai {getattr(og, '__version__', '')}".rstrip()
        took = f"provider {self.provider} took the graph"
        self.evidence = (Record("loaded", "host", name, "Model(config)", took=digests(graph), answer=took),)
        self.label: Label = label(self.evidence, graph, on_chip=None, host=self.provider == "cpu")

    def generator(self, rows: Sequence[Sequence[int]], pad: int, **search: Any) -> Any:
        """The runtime's generator with prompts read; shorter ones are padded to the right."""
        og = self._og
        params = og.GeneratorParams(self._model)
        params.set_search_options(batch_size=len(rows), **search)
        made = og.Generator(self._model, params)
        longest = max(map(len, rows))
        made.append_tokens(np.array([list(r) + [pad] * (longest - len(r)) for r in rows], np.int32))
        return made

    def steps(self, rows: Sequence[Sequence[int]], pad: int, **search: Any) -> Iterator[tuple[list[int], float]]:
        """The next token of each row and the seconds it took, until the runtime says that all ended."""
        begin = time.perf_counter()
        generator = self.generator(rows, pad, **search)
        while not generator.is_done():
            generator.generate_next_token()
            tokens = [int(t) for t in generator.get_next_tokens()]
            now = time.perf_counter()
            yield tokens, now - begin
            begin = time.perf_counter()

    def logits(self, tokens: Sequence[int]) -> NDArray:
        """Logits after the last of these tokens, float32 [vocabulary]."""
        generator = self.generator([tokens], 0, max_length=len(tokens) + 1)
        return np.asarray(generator.get_logits(), np.float32).reshape(-1)
