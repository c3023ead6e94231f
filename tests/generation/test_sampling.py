"""Samplers against their formulas in NumPy, and draws against the distribution that these give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import ParameterError
from nxjax.generation import Earlier, Sampler, adjusted, sample


def formula(logits, s, seen):
    """Probabilities of one sequence, float64: sets of tokens made by sorting and adding up."""
    x = np.asarray(logits, np.float64)
    x = np.where(seen, np.where(x > 0, x / s.repetition_penalty, x * s.repetition_penalty), x) / s.temperature
    kept = np.ones(len(x), bool)
    if s.top_k is not None:
        kept &= x >= sorted(x)[::-1][min(s.top_k, len(x)) - 1]
    p = np.where(kept, np.exp(x - x.max()), 0)
    p /= p.sum()
    if s.top_p is not None:
        order, total, inside = np.argsort(-p, kind="stable"), 0.0, np.zeros(len(x), bool)
        for i in order:
            inside[i] = total < s.top_p
            total += p[i]
        p = np.where(inside, p, 0)
    if s.min_p is not None:
        p = np.where(p >= s.min_p * p.max(), p, 0)
    return p / p.sum()


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.floats(0.2, 3), st.sampled_from([None, 1, 3, 40]), st.sampled_from([None, 0.3, 0.9]),
    st.sampled_from([None, 0.1, 0.5]), st.sampled_from([1.0, 0.7, 1.8]),
)  # fmt: skip
def test_distributions_are_those_of_the_formulas(seed, temperature, top_k, top_p, min_p, penalty):
    rng = np.random.default_rng(seed)
    s = Sampler(temperature, top_k, top_p, min_p, penalty)
    logits, seen = rng.normal(size=(3, 20)).astype(np.float32) * 3, rng.random((3, 20)) < 0.3
    got = nx.nn.softmax(adjusted(logits, s, seen), axis=-1)
    want = np.stack([formula(x, s, m) for x, m in zip(logits, seen, strict=True)])
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_draws_have_the_distribution():
    logits = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -3.0], np.float32)
    s = Sampler(temperature=0.9, top_p=0.9)
    keys = nx.random.split(nx.random.key(7), 20000)
    drawn = np.asarray(nx.jit(lambda k: sample(k, np.broadcast_to(logits, (20000, 6)), s))(keys))
    share, want = np.bincount(drawn, minlength=6) / 20000, formula(logits, s, np.zeros(6, bool))
    # Five deviations of a share.
    assert (abs(share - want) <= 5 * np.sqrt(want * (1 - want) / 20000)).all()
    assert (share[want == 0] == 0).all()


def test_no_temperature_is_greedy_also_with_filters_and_penalties():
    logits = np.random.default_rng(0).normal(size=(5, 30)).astype(np.float32)
    top = logits.argmax(-1)
    assert sample(None, logits, Sampler()).tolist() == top.tolist()
    assert sample(None, logits, Sampler(top_k=3, top_p=0.2)).tolist() == top.tolist()
    seen = np.zeros((5, 30), bool)
    seen[np.arange(5), top] = True
    second = np.argsort(-logits, -1)[:, 1]
    assert sample(None, logits, Sampler(repetition_penalty=100.0), seen).tolist() == second.tolist()
    small = sample(nx.random.split(nx.random.key(0), 5), logits, Sampler(temperature=1e-4))
    assert small.tolist() == top.tolist()


def test_what_was_there_is_marked_without_padding():
    none = Earlier.none(Sampler(repetition_penalty=2.0), batch=2, vocabulary=5, room=9)
    seen = none.noted(nx.array([[1, 1, -1], [4, 0, 2]])).seen
    assert seen.tolist() == [[False, True, False, False, False], [True, False, True, False, True]]


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"top_k": 0}, {"top_p": 0.0}, {"min_p": 2}, {"repetition_penalty": 0}]
)
def test_rules_are_checked(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Sampler(**wrong)


def test_a_penalty_needs_to_know():
    with pytest.raises(ParameterError, match="earlier tokens"):
        sample(None, np.zeros((1, 3), np.float32), Sampler(repetition_penalty=2.0))
