"""`jax.ad_checkpoint`'s names for what a policy says."""

import nxjax as nx
from nxjax.ad_checkpoint import Offloadable, Recompute, Saveable, saved_residuals


def test_answers_of_a_policy():
    counts = []
    for answer in (Saveable, Recompute, Offloadable("device", "pinned_host")):
        f = nx.checkpoint(lambda x: nx.sin(nx.sin(x)), policy=lambda op, *types, answer=answer, **params: answer)
        counts.append(len(saved_residuals(f, 1.0)))
        assert abs(float(nx.grad(f)(1.0)) - 0.36003944) < 1e-6
    assert counts[0] == counts[2] > counts[1]
