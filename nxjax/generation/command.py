"""``nxjax generate FOLDER PROMPT``: generates text and prints each token as it is made.

Takes folders of `save`, of onnxruntime-genai and of Hugging Face, and GGUF files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from nxjax import random
from nxjax.errors import NxError, ParameterError
from nxjax.generation.genai import load_genai
from nxjax.generation.generator import Generator
from nxjax.generation.pretrained import CONFIG, from_pretrained
from nxjax.generation.sampling import Sampler
from nxjax.generation.weights import load


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own, added to its parser."""
    parser.add_argument("folder", help="of nx.generation.save, onnxruntime-genai or Hugging Face; or a GGUF file")
    parser.add_argument("prompt", help="what to continue; - reads it from the standard input")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="the most to add (128)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0, the most likely token (0)")
    parser.add_argument("--top-k", type=int, metavar="K", help="only so many most likely tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="only the most likely tokens of this probability")
    parser.add_argument("--min-p", type=float, metavar="P", help="only tokens at least so likely as P times the first")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="X", help="more than 1: repeat less")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="ends the text; may be repeated")
    parser.add_argument("--provider", metavar="NAME", help="another than the folder's, for onnxruntime-genai")


def run(given: argparse.Namespace) -> int:
    """Write the text to the standard output; 1 and a message on an error that names itself."""
    try:
        for piece in _pieces(given):
            print(piece, end="", flush=True)
        print()
    except (NxError, OSError) as error:
        print(f"nxjax generate: {error}", file=sys.stderr)
        return 1
    return 0


def _pieces(given: argparse.Namespace) -> Any:
    sampler = Sampler(given.temperature, given.top_k, given.top_p, given.min_p, given.repetition_penalty)
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    common: dict[str, Any] = {"max_tokens": given.max_tokens, "sampler": sampler, "stop": given.stop}
    if (Path(given.folder) / "genai_config.json").exists():
        return load_genai(given.folder, given.provider).stream(prompt, seed=given.seed, **common)
    if given.provider is not None:
        raise ParameterError("a provider is for folders of onnxruntime-genai", got=given.provider)
    place = Path(given.folder)
    read = from_pretrained if place.is_file() or (place / CONFIG).exists() else load
    params, config, tokenizer = read(place)
    return Generator(params, config, tokenizer).stream(prompt, key=random.key(given.seed), **common)
