"""Spaces: every run of the function once, decisions that hang on others, mutations that change what they say."""

import itertools

import numpy as np
import pytest

from nxjax import nas
from nxjax.errors import ParameterError


@nas.Space
def tree(choose):
    layers = []
    for i in range(choose("depth", (1, 2))):
        with choose.scope(f"block{i}"):
            kind = choose("kind", ("conv", "pool"))
            layers.append((kind, choose("size", (3, 5, 7)) if kind == "conv" else 2))
    return layers


def test_all_are_there_once():
    blocks = [("conv", 3), ("conv", 5), ("conv", 7), ("pool", 2)]
    expected = [[b] for b in blocks] + [list(p) for p in itertools.product(blocks, blocks)]
    found = [c.model for c in tree.all()]
    assert sorted(found) == sorted(expected) and tree.size() == len(expected) == 20
    assert tree.size(limit=7) == 7
    assert len({c.key for c in tree.all()}) == 20


def test_genes_give_the_model_back_and_say_what_was_chosen():
    for c in tree.all():
        assert tree.build(c.genes).model == c.model
        assert tree.build({**c.genes, "block9.kind": 1}).key == c.key, "genes of others are left out"
    assert tree.build({"depth": 0, "block0.kind": 0, "block0.size": 2}).choices == {
        "depth": "1",
        "block0.kind": "conv",
        "block0.size": "7",
    }


def test_a_mutation_changes_one_decision_and_reaches_everything():
    rng = np.random.default_rng(0)
    seen, genes = set(), tree.sample(rng).genes
    for _ in range(600):
        new = tree.mutate(genes, rng)
        changed = [n for n in genes if n in new.genes and new.genes[n] != genes[n]]
        assert new.key != nas.key_of(genes) and len(changed) == 1
        assert tree.build(new.genes).model == new.model
        genes = new.genes
        seen.add(new.key)
    assert len(seen) == 20


def test_a_child_has_each_decision_from_a_parent():
    rng = np.random.default_rng(1)
    wide = nas.Space(lambda choose: [choose(f"w{i}", range(100)) for i in range(8)])
    a, b = wide.sample(rng), wide.sample(rng)
    mixed = wide.cross(a.genes, b.genes, rng).genes
    assert all(mixed[n] in (a.genes[n], b.genes[n]) for n in mixed)
    assert 0 < sum(mixed[n] == a.genes[n] for n in mixed) < 8


def test_a_name_means_one_decision():
    shared = nas.Space(lambda choose: (choose("width", (8, 16)), choose("width", (8, 16))))
    assert {c.model for c in shared.all()} == {(8, 8), (16, 16)}
    twice = nas.Space(lambda choose: (choose("width", (8, 16)), choose("width", (8, 16, 32))))
    with pytest.raises(ParameterError, match=r"made twice.*\n.*3 options, then 2"):
        twice.build({"width": 0})
    with pytest.raises(ParameterError, match="no options"):
        nas.Space(lambda choose: choose("width", ())).build({})
    with pytest.raises(ParameterError, match="no gene"):
        tree.build({"depth": 1})
    with pytest.raises(ParameterError, match="no such option"):
        tree.build({"depth": 2})


def test_a_space_is_a_part_of_another():
    pairs = nas.Space(lambda choose: (tree(choose), nas.key_of(choose.genes)))
    assert {c.model[1] for c in pairs.all()} == {c.key for c in tree.all()}
