"""Small decoders with random weights, and the tokenizer of a poem."""

import pytest

import nxjax as nx
from nxjax import generation
from nxjax.generation import DecoderConfig, Tokenizer

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
