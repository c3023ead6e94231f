"""`nx.Hybrid` from outside: results, plans, faults, streams, and what `jit` has besides."""

import time

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import LoweringError, ParameterError, PlacementError
from nxjax.hybrid import (
    Estimate,
    FaultPolicy,
    History,
    Hybrid,
    RegionRefused,
    Step,
    Unit,
    device_scope,
    plan,
    stream,
    timeline,
)
from nxjax.lower.placement import Verdict
from nxjax.testing import random_program
from tests.backends.hybrid.fakes import Fake, set_options

PRODUCTS = lambda e: e.op.name in ("dot_general", "qdot", "qconv", "max", "add", "broadcast_in_dim", "reshape")


def net(params, x):
    with nx.named_scope("one"):
        y = nx.nn.relu(x @ params["w"] + params["b"])
    with nx.named_scope("two"):
        return jnp.sin(y) @ params["v"]


@pytest.fixture
def made():
    rng = np.random.default_rng(0)
    of = lambda *shape: nx.asarray(rng.normal(size=shape).astype(np.float32))
    return {"w": of(6, 5), "b": of(5), "v": of(5, 3)}, of(4, 6)


def device(*units, **options):
    options = {"measure": False, "history": History(kept=False), **options}
    return Hybrid(*units, **options)


def test_a_network_over_two_units_has_the_cpus_results(made):
    params, x = made
    chip = Fake("chip", PRODUCTS)
    hybrid = device("npu", chip, "cpu")
    f = nx.jit(net, device=hybrid)
    want = nx.jit(net)(params, x)
    assert np.array_equal(f(params, x), want)
    found = plan(f)(params, x)
    assert set(found.assignment) == {"chip", "cpu"} and chip.calls == found.assignment.count("chip")
    # Weights became part of the plan, so that other values of them are another plan with the same results.
    assert found.constants == (0, 1, 2)
    prepared = chip.prepared
    f(params, x + 1)
    assert chip.prepared == prepared
    other = {k: v * 2 for k, v in params.items()}
    assert np.array_equal(f(other, x), nx.jit(net)(other, x)) and chip.prepared > prepared
    # What changes again and again is no weight: no further plan for it.
    for i in range(3):
        more = {k: v * (3 + i) for k, v in params.items()}
        assert np.array_equal(f(more, x), nx.jit(net)(more, x))
    assert plan(f)(params, x).constants == ()
    text = str(plan(f)(params, x))
    assert "npu is missing: no NPU" in text and "vendor-simulator" in text and "chip does not take" in text


class Constants(Fake):
    """A chip that takes products with constants alone, and says when a step is run that was given back."""

    def supports(self, program):
        known = set(program.constvars)
        takes = lambda e: e.op.name == "dot_general" and e.inputs[1] in known
        return [Verdict(takes(e), "its weights are not constant") for e in program.equations]

    def prepare(self, program):
        step = super().prepare(program)
        inner, step.inner, gone = step.inner, lambda args: run(args), []

        def run(args):
            time.sleep(0.005)
            assert not gone
            return inner(args)

        step.close = lambda: gone.append(True)
        return step


def test_weights_that_change_are_constants_where_nothing_else_is_taken(made):
    params, x = made
    hybrid = device(Constants("chip"), "cpu", pin={"dot_general": "chip"})
    f = nx.jit(net, device=hybrid)
    inputs = [({k: v * i for k, v in params.items()}, x) for i in (1, 2, 1, 3, 3, 2)]
    for y, args in zip(stream(f, inputs, in_flight=3), inputs, strict=True):
        assert np.array_equal(y, nx.jit(net)(*args))
    assert hybrid.health()["chip"].failures == 0


def test_the_host_alone_is_the_hosts_executable(made):
    params, x = made
    f = nx.jit(net, device=Hybrid("npu", "cpu"))
    same = nx.jit(net, device="cpu")
    compiled = [type(g.lower(params, x).compile().executable) for g in (f, same)]
    assert compiled[0] is compiled[1]
    assert np.array_equal(f(params, x), same(params, x))
    # With another unit here that is slower, too; and machine code answers repeated calls.
    slow = device(Fake("chip", seconds=10.0), "cpu")
    g = nx.jit(net, device=slow)
    for _ in range(4):
        assert np.array_equal(g(params, x), same(params, x))
    assert g._plans is not None and slow.backend.running is None


def test_random_programs_over_units_that_take_ops_at_random():
    rng = np.random.default_rng(3)
    used = set()
    for _ in range(12):
        made = random_program(rng, 10)
        words = {name for name, _, _ in made.steps}
        taken = {w for w in words if rng.random() < 0.5}
        hybrid = device(Fake("chip", lambda e, taken=taken: e.op.name in taken), "cpu")
        set_options(hybrid, light=0.0, measure=False)
        f = nx.jit(lambda *xs, made=made: (made(*xs), xs[0]), device=hybrid)
        got, want = f(*made.args), nx.jit(lambda *xs, made=made: (made(*xs), xs[0]))(*made.args)
        assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(got, want, strict=True))
        used.update(plan(f)(*made.args).assignment)
        hybrid.close()
    assert used == {"chip", "cpu"}


def test_a_unit_that_fails_is_left_out_and_its_work_redone(made):
    params, x = made
    chip = Fake("chip", PRODUCTS)
    hybrid = device(chip, "cpu", policy=FaultPolicy(backoff=0.01, backoff_most=0.02))
    f = nx.jit(net, device=hybrid)
    want = np.asarray(f(params, x))
    chip.broken = True
    assert np.array_equal(f(params, x), want)
    assert any(e.kind == "out" and e.unit == "chip" for e in hybrid.events)
    assert {s.unit for s in plan(f)(params, x).spans if s.outcome == "done"} == {"cpu"}
    chip.broken = False
    hybrid.readmit("chip")
    calls = chip.calls
    assert np.array_equal(f(params, x), want) and chip.calls > calls
    hybrid.take_out("chip")
    assert hybrid.health()["chip"].state == "out"
    calls = chip.calls
    assert np.array_equal(f(params, x), want) and chip.calls == calls


def test_a_first_call_with_wrong_results_is_found_out_floats_too(made):
    params, x = made
    for wrong, found in ((lambda y: y * 2, True), (lambda y: y * (1 + 1e-6), False)):
        chip = Fake("chip", PRODUCTS)
        hybrid = device(chip, "cpu", policy=FaultPolicy(lie_probes=0))
        f = nx.jit(net, device=hybrid)
        plan(f)(params, x)
        for p in plan(f)(params, x).places:
            step = p.on["chip"].prepared if p.unit == "chip" else None
            if step is not None:
                step.inner = lambda args, inner=step.inner, wrong=wrong: [nx.asarray(wrong(y)) for y in inner(args)]
        assert np.allclose(f(params, x), nx.jit(net)(params, x), rtol=1e-4)
        assert (hybrid.health()["chip"].state == "out") == found
        assert [e.kind for e in hybrid.events if e.kind == "lie"] == ["lie"] * found
        hybrid.close()


def test_a_unit_that_rounds_otherwise_is_stood_in_for_by_exact_ones_unless_told(made):
    params, x = made
    for redo, works in (("same", False), ("exact", True), ("any", True)):
        chip = Fake("chip", PRODUCTS, exact=False)
        hybrid = device(chip, "cpu", redo=redo, policy=FaultPolicy(backoff=30.0, tries=1))
        f = nx.jit(net, device=hybrid)
        want = np.asarray(f(params, x))
        for p in plan(f)(params, x).places:
            # The host's own work is given to no unit that rounds otherwise, unless any may.
            alone = redo == "same" or (p.unit == "cpu" and (redo == "exact" or "chip" not in p.takers))
            assert (len(p.takers) == 1) == alone
        chip.broken = True
        if works:
            assert np.array_equal(f(params, x), want)
        else:
            with pytest.raises(nx.errors.ExecutionError, match="no unit is left") as error:
                f(params, x)
            assert 'redo="exact"' in "".join(error.value.__notes__)
        hybrid.close()


def test_pins_and_device_scopes_place_equations(made):
    params, x = made

    def f(params, x):
        with device_scope("/CPU:0"):
            y = x @ params["w"]
        return jnp.tanh(y) @ params["v"]

    hybrid = device(Fake("chip"), "cpu", pin={"tanh": "chip"})
    found = hybrid.plan(f)(params, x)
    where = {e.op.name: p.unit for p in found.places for e in p.region.program.equations}
    first = next(p.unit for p in found.places for e in p.region.program.equations if e.scope == "device:cpu")
    assert first == "cpu" and where["tanh"] == "chip" and "pinned" in str(found)
    with pytest.raises(PlacementError, match="pinned to chip") as error:
        device(Fake("chip", PRODUCTS), "cpu", pin={"two": "chip"}).plan(net)(params, x)
    assert "no such instruction" in str(error.value)
    missing = device("npu", Fake("chip"), "cpu", pin={"one": "npu"}).plan(net)(params, x)
    assert "pinned to npu, which is missing" in str(missing)
    with pytest.raises(PlacementError, match="run on none of its units"):
        device(Fake("chip", PRODUCTS)).plan(net)(params, x)


def test_a_region_that_cannot_be_built_shrinks_until_it_can(made):
    params, x = made

    # The tools take one product a region, and say that it is the second one that does not fit.
    def refuses(program):
        products = [i for i, e in enumerate(program.equations) if e.op.name == "dot_general"]
        return products[1:] if len(products) > 1 else None

    chip = Fake("chip", refuses=refuses)
    chip.estimate = lambda program: None  # type: ignore[method-assign]
    f = nx.jit(net, device=device(chip, "cpu", pin={"cos": "chip"}))
    assert np.allclose(f(params, x), net(params, x), rtol=1e-5)
    found = plan(f)(params, x)
    assert "too many of them" in str(found)
    assert all(refuses(p.region.program) is None for p in found.places if p.unit == "chip")


def test_what_a_compiler_refuses_is_not_asked_for_at_every_call(made):
    class Refusing(Fake):
        def prepare(self, program):
            self.prepared += 1
            raise RegionRefused("it cannot compile it") from LoweringError("no such instruction")

    chip = Refusing("chip", PRODUCTS)
    hybrid = device(chip, "cpu", pin={"dot_general": "chip"})
    f = nx.jit(lambda x: x @ x, device=hybrid)
    x = made[1] @ made[1].T
    for _ in range(3):
        assert np.array_equal(f(x), nx.jit(lambda x: x @ x)(x))
    assert chip.prepared == 1 and hybrid.health()["chip"].state == "ok"


def test_effects_stay_on_the_host_and_in_order():
    seen = []

    def f(x):
        nx.debug.callback(lambda v: seen.append(("a", float(v))), x)
        y = jnp.sin(x) * 2
        nx.debug.callback(lambda v: seen.append(("b", float(v))), y)
        nx.debug.callback(lambda v: seen.append(("c", 0.0)), x)
        return y, 3.0

    hybrid = device(Fake("chip"), "cpu")
    out = nx.jit(f, device=hybrid)(0.0)
    nx.effects_barrier()
    assert [name for name, _ in seen] == ["a", "b", "c"] and float(out[0]) == 0.0 and float(out[1]) == 3.0
    assert "chip" in hybrid.plan(f)(0.0).assignment


def test_streams_are_in_order_several_at_a_time_and_say_which_input_failed(made):
    params, _ = made
    rng = np.random.default_rng(1)
    xs = [rng.normal(size=(4, 6)).astype(np.float32) for _ in range(12)]
    chip = Fake("chip", PRODUCTS)
    hybrid = device(chip, "cpu", objective="throughput", sessions={"chip": 3})
    f = nx.jit(net, device=hybrid)
    want = [np.asarray(nx.jit(net)(params, x)) for x in xs]
    chip.slow = 0.002
    got = list(stream(f, ((params, x) for x in xs), in_flight=4))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True)) and chip.most > 1
    asked = []
    begun = stream(f, (asked.append(i) or (params, x) for i, x in enumerate(xs)), in_flight=2)
    next(begun)
    begun.close()
    assert len(asked) < 5
    with pytest.raises(TypeError) as error:
        list(stream(f, [(params, xs[0]), (params, xs[1][:, :2])]))
    assert "input 1" in "".join(error.value.__notes__)
    with pytest.raises(ParameterError, match="in_flight"):
        hybrid.stream(f, [], in_flight=0)


def test_it_is_a_device_like_any_other_for_jit(made):
    params, x = made
    hybrid = device(Fake("chip", PRODUCTS), "cpu")

    def f(params, x, scale, *, power=1):
        return {"y": net(params, x) * scale**power}, x

    g = nx.jit(f, device=hybrid, static_argnames="power", donate_argnums=1)
    want, _ = f(params, x, 2.0, power=2)
    given = nx.asarray(np.asarray(x) + 0)
    got, _ = g(params, given, 2.0, power=2)
    assert np.allclose(got["y"], want["y"], rtol=1e-5) and given.is_deleted()
    closed = nx.jit(lambda x: net(params, x), device=hybrid)
    assert all(np.array_equal(closed(x), nx.jit(lambda x: net(params, x))(x)) for _ in range(3))
    loss = lambda f: lambda p: jnp.sum(f(p, x) ** 2)
    inside = nx.jit(nx.grad(loss(net)), device=hybrid)(params)
    outside = nx.grad(loss(nx.jit(net, device=hybrid)))(params)
    for k, v in nx.grad(loss(net))(params).items():
        assert np.allclose(inside[k], v, rtol=1e-4, atol=1e-5) and np.allclose(outside[k], v, rtol=1e-4, atol=1e-5)
    batched = nx.vmap(nx.jit(net, device=hybrid), (None, 0))(params, x[None])
    assert np.allclose(batched[0], net(params, x), rtol=1e-5)
    text = nx.jit(net, device=hybrid).lower(params, x).compile()(params, x)
    assert np.allclose(text, net(params, x), rtol=1e-5)


def test_programs_of_nothing_and_of_constants_are_the_hosts():
    hybrid = device(Fake("chip"), "cpu")
    x, w = nx.asarray([1.0, 2.0]), nx.asarray([3.0, 4.0])
    assert nx.jit(lambda x: x, device=hybrid)(x).tolist() == [1.0, 2.0]
    assert nx.jit(lambda: jnp.sin(w) * 0 + 2.0, device=hybrid)().tolist() == [2.0, 2.0]
    assert nx.jit(lambda x: (), device=hybrid)(x) == ()
    out = nx.jit(lambda x: (x, w, 5, jnp.tanh(x) * 0), device=hybrid)(x)
    assert [np.asarray(y).tolist() for y in out] == [[1.0, 2.0], [3.0, 4.0], 5, [0.0, 0.0]]
    assert hybrid.plan(lambda x: x)(x).assignment == () and "plan of" in str(hybrid.plan(lambda x: x)(x))
    assert nx.jit(lambda x: jnp.tanh(x), device=hybrid)(np.ones((0, 3), np.float32)).shape == (0, 3)


def test_plans_draw_and_save_themselves(made, tmp_path):
    params, x = made
    f = nx.jit(net, device=device(Fake("chip", PRODUCTS), "cpu"))
    f(params, x)
    found = plan(f)(params, x)
    assert found._repr_html_().count("<svg") == 1 and timeline(f)(params, x).startswith("<svg")
    for name in ("plan.svg", "plan.html", "plan.txt"):
        found.save(tmp_path / name)
    assert (tmp_path / "plan.txt").read_text().startswith("plan of net: ")
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")
    assert [s.outcome for s in found.spans if s.outcome != "checked"] == ["done"] * len(found.places)


def test_what_is_asked_for_wrongly_is_said():
    for wrong, words in (
        ({"objective": "speed"}, "objective"),
        ({"redo": "never"}, "redo"),
        ({"objective": "energy"}, "energy of no unit"),
        ({"sessions": {"cpu": 0}}, "sessions"),
        ({"sessions": {"gpu": 1}}, "sessions"),
        ({"watts": {"cpu": float("nan")}}, "watts of cpu"),
        ({"watts": {"npu": 4.0}}, "watts of a unit"),
        ({"deadline": -1.0}, "deadline"),
        ({"heat": {"cpu": 80}}, "heat of cpu"),
        ({"policy": 3}, "policy"),
    ):
        with pytest.raises(ParameterError, match=words):
            Hybrid("cpu", **wrong)
    with pytest.raises(ParameterError, match="twice"):
        Hybrid("cpu", "cpu")
    with pytest.raises(ParameterError, match="no such unit"):
        Hybrid("cpuu")
    with pytest.raises(ParameterError, match="not a unit"):
        Hybrid(["npu", "cpu"])
    with pytest.raises(ParameterError, match="none of its units is available"):
        Hybrid("npu")
    with pytest.raises(ParameterError, match="names no unit"):
        Hybrid()
    with pytest.raises(ParameterError, match="no Hybrid device"):
        plan(nx.jit(net))
    assert issubclass(Fake, Unit) and issubclass(Step, object) and Estimate(1.0, "model", "x").joules is None
