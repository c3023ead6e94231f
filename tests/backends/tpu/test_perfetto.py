"""A compiled program as a timeline: instructions with estimates, one after another."""

import json

from nxjax.backends.tpu.chips import parsed
from nxjax.backends.tpu.hlo import HloModule
from nxjax.backends.tpu.perfetto import trace
from tests.backends.tpu.test_hlo import TEXT


def test_instructions_with_estimates_follow_each_other():
    twice = TEXT.replace(
        'custom_call_target="Sort"', 'custom_call_target="Sort", backend_config={"estimated_cycles":"23"}'
    )
    made = json.loads(trace(HloModule(twice), parsed("v5e:2x2")))
    assert made["otherData"] == {"label": "vendor-compiled", "target": "tpu-v5e:2x2"}
    f, c = made["traceEvents"]
    assert (f["name"], f["ts"], f["dur"], c["name"], c["ts"], c["dur"]) == ("f", 0, 0.077, "c", 0.077, 0.023)
    assert f["args"]["at"] == "/a b/net.py:12" and f["args"]["scope"] == "layer/tanh" and c["args"]["at"] == ""
    assert {e["args"]["basis"] for e in (f, c)} == {"the compiler's static estimate"}
