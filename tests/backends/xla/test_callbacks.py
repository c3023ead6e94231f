"""Python functions called from compiled code: values, effects without results, errors."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla.callbacks import emit_callback
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.errors import ExecutionError
from nxjax.lower.stablehlo.builder import ModuleBuilder, SsaName, StablehloBuilder
from nxjax.lower.stablehlo.types import tensor
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.types import ArrayType


def compiled(host, in_types, out_types) -> XlaExecutable:
    module = ModuleBuilder()
    b = StablehloBuilder(module)
    xs = [SsaName(f"%a{i}", t) for i, t in enumerate(in_types)]
    ys = emit_callback(b, host, xs, tuple(out_types))
    header = ", ".join(f"{x}: {tensor(x.type)}" for x in xs)
    outs = ", ".join(tensor(t) for t in out_types)
    end = f"return {', '.join(y.name for y in ys)} : {outs}" if ys else "return"
    text = "\n".join([f"module @m {{ func.func public @main({header}) -> ({outs}) {{", *b.lines, end, "} }"])
    return XlaExecutable(compile_text(text, module.callbacks), text, out_types, module.callbacks)


F3 = ArrayType((3,), dtypes.float32)


def test_values_go_to_the_host_and_come_back():
    run = compiled(lambda x, y: (np.sort(x + y), np.int32(x.argmax())), [F3, F3], [F3, ArrayType((), dtypes.int32)])
    x = wrap(np.array([3, 1, 2], np.float32))
    y, i = run([x, x])
    np.testing.assert_array_equal(y.numpy(), [2, 4, 6])
    assert i.numpy() == 0


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.key, dtypes.bool_, dtypes.complex64])
def test_special_dtypes(dtype):
    seen = []
    t = ArrayType((2,), dtype)
    x = np.arange(4, dtype=np.uint32).view(dtype) if dtype == dtypes.key else np.array([0, 1]).astype(dtype)
    (y,) = compiled(lambda x: (seen.append(x.dtype), (x[::-1],))[1], [t], [t])([wrap(x)])
    assert seen == [dtype]
    np.testing.assert_array_equal(y.numpy().view(np.uint8), x[::-1].copy().view(np.uint8))


def test_an_effect_without_results_runs_every_time():
    seen = []
    run = compiled(lambda x: seen.append(x.tolist()) or (), [F3], [])
    for i in range(3):
        assert run([wrap(np.full(3, i, np.float32))]) == []
    assert seen == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]


def test_what_the_function_raises_is_the_cause():
    def host(x):
        raise KeyError("no such thing")

    with pytest.raises(ExecutionError, match="no such thing") as caught:
        compiled(host, [F3], [F3])([wrap(np.ones(3, np.float32))])
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_interrupt_within_a_callback_is_an_interrupt():
    def stop(x):
        raise KeyboardInterrupt

    f = nx.jit(lambda x: nx.pure_callback(stop, nx.ShapeDtypeStruct(x.shape, x.dtype), x) + 1, device="xla")
    with pytest.raises(KeyboardInterrupt):
        f(nx.ones(2))
