"""Looks at values and the process, the types of stages, annotations, and derivatives against differences."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import errors, monitoring, profiler, stages, test_util


def test_types():
    assert nx.typeof(jnp.ones((2, 3))).shape == (2, 3) and nx.typeof(1.0).weak_type
    assert nx.typeof(jnp.ones(3)).sharding.spec == nx.sharding.PartitionSpec(None)
    with pytest.raises(errors.DtypeError, match="already a type"):
        nx.typeof(nx.typeof(1.0))
    f = nx.jit(lambda x: x + 1)
    assert isinstance(f, stages.Wrapped) and isinstance(f.trace(1.0), stages.Traced)
    assert isinstance(f.lower(1.0), stages.Lowered) and isinstance(f.lower(1.0).compile(), stages.Compiled)
    assert not nx.dlpack.is_supported_dtype("bfloat16") and nx.dlpack.is_supported_dtype(np.int8)
    assert nx.host_id() == 0 and nx.host_count() == 1 and nx.host_ids() == [0]


def test_forward_and_backward():
    fwd, bwd = nx.fwd_and_bwd(lambda x, n, w: (x * w, n), argnums=(0, 2), has_aux=True)
    y, residuals, aux = fwd(2.0, 5, 3.0)
    assert (y, aux) == (6, 5) and tuple(map(float, bwd(residuals, 2.0))) == (6, 4)


def test_traces_and_events(tmp_path: Path):
    with pytest.raises(errors.ExecutionError, match="no trace"):
        profiler.stop_trace()
    with profiler.trace(tmp_path):
        with pytest.raises(errors.ExecutionError, match="already"):
            profiler.start_trace(tmp_path)
        with profiler.StepTraceAnnotation("train", step_num=3):
            profiler.annotate_function(np.sin, name="sine")(1.0)
    (file,) = tmp_path.rglob("*.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    assert [e["name"] for e in events] == ["sine", "train"] and events[1]["args"] == {"step_num": "3"}
    heard = []
    listener = lambda *args, **kwargs: heard.append((args, kwargs))
    monitoring.register_scalar_listener(listener)
    monitoring.record_scalar("/loss", 0.5, step=1)
    monitoring.unregister_scalar_listener(listener)
    monitoring.record_scalar("/loss", 0.25)
    assert heard == [(("/loss", 0.5), {"step": 1})]


def test_derivatives_against_differences():
    wrong = nx.custom_jvp(jnp.sin)
    wrong.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), tangents[0]))
    test_util.check_grads(jnp.sin, (1.0,), order=2)
    for check in (
        lambda f: test_util.check_jvp(f, lambda p, t: nx.jvp(f, p, t), (1.0,)),
        lambda f: test_util.check_vjp(f, lambda x: nx.vjp(f, x), (1.0,)),
    ):
        check(jnp.sin)
        with pytest.raises(AssertionError):
            check(wrong)
