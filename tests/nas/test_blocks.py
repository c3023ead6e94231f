"""Blocks have the shapes they say, and every architecture of the space of classifiers runs on a chip whole."""

import numpy as np

import nxjax as nx
from nxjax import nas
from nxjax.nas import blocks


def test_shapes_and_shortcuts():
    x = nx.random.normal(nx.random.key(1), (2, 9, 7, 6))
    for layer, shape in (
        (blocks.conv(5, 3, 2), (2, 5, 4, 5)),
        (blocks.depthwise(5, 2), (2, 5, 4, 6)),
        (blocks.separable(4), (2, 9, 7, 4)),
        (blocks.inverted_residual(6), (2, 9, 7, 6)),
        (blocks.inverted_residual(6, stride=2), (2, 5, 4, 6)),
        (blocks.pooled(), (2, 6)),
    ):
        init, apply = layer
        said, params = init(nx.random.key(0), x.shape)
        assert tuple(said) == apply(params, x).shape == shape
    init, apply = blocks.inverted_residual(6)
    params = nx.tree.map(nx.zeros_like, init(nx.random.key(0), x.shape)[1])
    np.testing.assert_array_equal(apply(params, x), x, "a block of zeros passes its input on")


def test_classifiers_of_the_space_give_logits():
    space, rng = blocks.classifier(7), np.random.default_rng(3)
    x = nx.ones((2, 6, 6, 1))
    kinds = set()
    for _ in range(12):
        c = space.sample(rng)
        shape, params = c.model[0](nx.random.key(0), (-1, *x.shape[1:]))
        assert shape == (-1, 7) and c.model[1](params, x).shape == (2, 7)
        kinds |= {v for k, v in c.choices.items() if k.endswith("kind")}
    assert kinds == {"conv", "separable", "inverted"} and isinstance(space, nas.Space)
