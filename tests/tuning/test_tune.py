"""Tuning: every choice means the same, the fastest is kept, and never one that was not faster for sure."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.backend import CpuBackend
from nxjax.backends.pairs import Pair
from nxjax.config import config
from nxjax.errors import ParameterError
from nxjax.kernels.cpu import knobs
from nxjax.tuning import tune as module

RNG = np.random.default_rng(0)


def drawn(*shape, dtype="float32"):
    return (RNG.standard_normal(shape) * (1 if dtype == "float32" else 40)).astype(dtype)


def conv(x, w):
    y = nx.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return nx.nn.relu(y + 1)


def attention(q, k, v):
    s = jnp.einsum("bqhc,bkhc->bhqk", q, k)
    return jnp.einsum("bhqk,bkhc->bqhc", nx.nn.softmax(s), v)


def bytes_product(x, w):
    return jnp.matmul(x, w, preferred_element_type=jnp.int32)


def chain(x):
    y = jnp.tanh(x)
    z = jnp.exp(x) * y
    return y.sum(0) + (z * y).max(0), y * z + jnp.sin(y).T


PROGRAMS = {
    "product": (lambda x, w: jnp.tanh(x @ w), (drawn(96, 900), drawn(900, 1000))),
    "few": (lambda x, w: x @ w, (drawn(20, 300), drawn(300, 400))),
    "gradient": (lambda x, w: x.T @ w, (drawn(300, 400), drawn(300, 500))),
    "wide": (lambda x, w: (x.T @ w.T), (drawn(512, 40), drawn(900, 512))),
    "bytes": (bytes_product, (drawn(40, 300, dtype="int8"), drawn(300, 64, dtype="int8"))),
    "conv": (conv, (drawn(1, 20, 20, 32), drawn(3, 3, 32, 32))),
    "conv3": (conv, (drawn(1, 64, 64, 96), drawn(3, 3, 96, 32))),
    "conv5": (conv, (drawn(1, 64, 64, 128), drawn(5, 5, 128, 24))),
    "attention": (attention, tuple(drawn(1, 512, 2, 16) for _ in range(3))),
    "chain": (chain, (drawn(300, 300),)),
    "softmax": (lambda x: nx.nn.softmax(x * 2 + 1), (drawn(40, 20000),)),
    "sum": (lambda x: (x * x).sum(), (drawn(700, 600),)),
    "long": (lambda x: sum(jnp.sin(x * i) for i in range(40)), (drawn(64),)),
    "large": (lambda x: x + 1, (drawn(600, 600),)),
    "blocks": (lambda x, w: x @ w, (drawn(1000, 300), drawn(300, 1100))),
    "turns": (lambda x, w: nx.lax.fori_loop(0, 2, lambda _, y: jnp.tanh(y @ w), x), (drawn(900, 300), drawn(300, 300))),
    "features": (conv, (drawn(1, 40, 40, 20), drawn(5, 5, 20, 128))),
    "twice": (lambda x: (lambda y: y + y.T)(jnp.tanh(x) * jnp.exp(x)), (drawn(200, 200),)),
    "turned": (lambda x: x.T * 2 + x.sum(), (drawn(90, 700),)),
}  # fmt: skip


def tape(name, choices):
    fun, args = PROGRAMS[name]
    return module._Tuning(nx.jit(fun), args, {}, 1.0, True)._tape(choices)


@pytest.mark.parametrize("knob", knobs.KNOBS.values(), ids=lambda k: k.name)
def test_every_choice_changes_some_program_and_no_meaning(knob):
    assert knob.default in knob.options and knob.what
    reached = 0
    for name, (fun, args) in PROGRAMS.items():
        usual, seen = tape(name, {}), set()
        for value in knob.options:
            text = tape(name, {knob.name: value})
            if text == usual or text in seen or (seen and reached > 1):
                continue
            seen.add(text)
            reached += 1
            found = nx.jit(fun, device=CpuBackend({knob.name: value}).device)(*args)
            for y, z in zip(nx.tree.leaves(found), nx.tree.leaves(nx.jit(fun)(*args)), strict=True):
                y, z = np.asarray(y), np.asarray(z)
                assert y.dtype == z.dtype
                if y.dtype.kind == "i":
                    np.testing.assert_array_equal(y, z)
                else:
                    np.testing.assert_allclose(y, z, rtol=2e-4, atol=2e-4 * float(np.abs(z).max()))
    assert reached, "a choice that nothing depends on"


@pytest.fixture
def timed(monkeypatch, tmp_path):
    """Times by a table of choices instead of a clock; a way's own choices are in its device's backend."""
    table = {}
    compared = []

    def measured(first, second, **_):
        def seconds(call):
            place = call.__closure__[1].cell_contents.device
            name = getattr(getattr(place, "backend", None), "name", str(place))
            compared.append(name)
            return next((v for k, v in table.items() if k in name), 1.0)

        a, b = seconds(first), seconds(second)
        return Pair(b / a, a, b, 20, 1e-6 if a != b else 1.0)

    monkeypatch.setattr(module, "measured", measured)
    with config.using(cache_dir=str(tmp_path)):
        yield table, compared


def test_the_fastest_way_is_kept_and_known_to_the_next_process(timed):
    table, compared = timed
    table.update({"gemm.depth=192": 0.1, "gemm.vectors=2": 0.5, "gemm.items=4": 0.8})
    fun, args = PROGRAMS["product"]
    found = nx.tune(fun, seconds=60, devices=())(*args)
    best = {"gemm.items": 4, "gemm.vectors": 2}
    assert found.choices == best and found.speedup == pytest.approx(2) and found.device == "cpu"
    assert not found.cached and [a.choices for a in found.attempts if a.kept][-1] == best
    np.testing.assert_array_equal(found(*args), nx.jit(fun)(*args))
    assert "2.00 times as fast" in str(found) and "gemm.vectors = 2" in str(found) and "<table" in found._repr_html_()
    count = len(compared)
    again = nx.tune(fun, seconds=60, devices=())(*args)
    assert again.cached and again.choices == found.choices and len(compared) == count
    np.testing.assert_array_equal(again(*args), found(*args))
    other = nx.tune(fun, seconds=60, devices=())(args[0][:50], args[1])
    assert not other.cached, "another shape is another program"
    assert not nx.tune(fun, seconds=60, devices=(), again=True)(*args).cached


def test_nothing_is_kept_that_is_not_faster(timed):
    table, _ = timed
    fun, args = PROGRAMS["product"]
    found = nx.tune(fun, seconds=60, devices=())(*args)
    assert found.choices == {} and found.speedup == 1.0 and "usual way is the fastest" in str(found)
    assert found.attempts and not any(a.kept for a in found.attempts)
    table.update(dict.fromkeys(knobs.KNOBS, 0.99))  # too little to be worth it
    assert nx.tune(fun, seconds=60, devices=(), again=True)(*args).choices == {}


def test_bits_stay_unless_they_may_change(timed):
    table, _ = timed
    table["gemm.depth=192"] = 0.3
    fun, args = PROGRAMS["product"]
    assert nx.tune(fun, seconds=60, devices=())(*args).choices == {}
    found = nx.tune(fun, seconds=60, devices=(), exact=False)(*args)
    assert found.choices == {"gemm.depth": 192} and 0 < found.difference < 1e-3 and "differ" in str(found)


def test_other_executors_count(timed):
    table, _ = timed
    table["xla"] = 0.4
    pytest.importorskip("jaxlib")
    found = nx.tune(lambda x: x * 2 + 1, seconds=60, devices=("cpu", "xla"))(np.arange(5000))
    assert found.device == "xla" and found.choices == {}
    np.testing.assert_array_equal(found(np.arange(5000)), np.arange(5000) * 2 + 1)
    with pytest.raises(ParameterError, match=r"nothing here"):
        nx.tune(lambda x: x, devices=("tpu-of-another-town",))(1.0)


def test_options_of_jit_stay(timed):
    table, _ = timed
    table["nest.item=4096"] = 0.5
    jitted = nx.jit(lambda n, x, y: (x * n + y, y.sum()), static_argnums=0, donate_argnums=1)
    x, y = jnp.ones((300, 300)), jnp.arange(90000.0).reshape(300, 300)
    found = nx.tune(jitted, seconds=60, devices=())(3, x, y)
    assert found.choices == {"nest.item": 4096} and not x.is_deleted()
    np.testing.assert_array_equal(found(3, x, y)[0], 3 + np.asarray(y))
    assert x.is_deleted() and found.function.static_argnums == (0,)


def test_on_the_clock_of_this_machine(tmp_path):
    """Real times; what is found is correct, and the time is kept."""
    with config.using(cache_dir=str(tmp_path)):
        found = nx.tune(lambda x: nx.nn.softmax(x @ x.T), seconds=0.3, devices=())(drawn(64, 64))
    # On a machine that is busy, making the usual way may take all the time.
    assert found.speedup >= 1 and (found.attempts or found.seconds > 0.2)
    with pytest.raises(ParameterError, match="seconds"):
        nx.tune(lambda x: x, seconds=0)
