"""Small models that the tests of deployment share."""

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp

RNG = np.random.default_rng(0)
PARAMS = {
    "conv": jnp.asarray(RNG.normal(size=(3, 3, 3, 8)).astype(np.float32) / 4),
    "out": jnp.asarray(RNG.normal(size=(8, 5)).astype(np.float32)),
}
IMAGE = jnp.asarray(RNG.normal(size=(1, 8, 8, 3)).astype(np.float32))
ROWS = jnp.asarray(RNG.normal(size=(1, 12)).astype(np.float32))


def convnet(params, x):
    x = nx.lax.conv_general_dilated(x, params["conv"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return nx.nn.relu(x).mean((1, 2)) @ params["out"]


def quantized():
    """The network in int8."""
    return nx.quantize(convnet, "int8", calibrate=[(PARAMS, IMAGE)])


def saturates(artifact):
    """Whether it says that int8 sums of this processor saturate, so that nothing is promised of its figures here."""
    return any("no VNNI" in note for note in artifact.report.notes)
