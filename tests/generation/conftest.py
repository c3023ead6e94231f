"""Small decoders with random weights, and the tokenizer of a poem."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from nxjax import generation
from nxjax.generation import DecoderConfig, Tokenizer
from nxjax.generation.families import config_of, names_of

POEM = """\
Tyger Tyger, burning bright,
In the forests of the night;
What immortal hand or eye,
Could frame thy fearful symmetry?
"""


@pytest.fixture(scope="session")
def config():
    return DecoderConfig(
        vocabulary=300, width=64, layers=2, heads=4, kv_heads=2, head_size=16, hidden=96, context=160, rope_base=1000.0
    )


@pytest.fixture(scope="session")
def params(config):
    return generation.init(nx.random.key(0), config)


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer.train([POEM] * 2, 300)


@pytest.fixture(scope="session")
def checkpoint():
    """A function: parameters of a Llama as tensors under the names of Hugging Face."""

    def tensors(params: Any, said: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        config, family = config_of(said, "config.json")
        inner = config.heads * config.head_size
        parts = {"attention.qkv": [inner, inner + config.kv_heads * config.head_size], "mlp.gate_up": [config.hidden]}
        found = {}
        for path, rows in names_of(family, config).items():
            leaf = params
            for key in path:
                leaf = leaf[key]
            x, name = np.asarray(leaf), ".".join(map(str, path[2:]))
            pieces = np.split(x, parts[name], axis=-1) if name in parts else [x]
            for title, piece in zip(rows[0], pieces, strict=True):
                prefix = "" if title.startswith("lm_head") else "model."
                found[prefix + title] = np.ascontiguousarray(piece if path == ("embedding",) else piece.T)
        return found

    return tensors
