"""Plans: costs and who says so, neighbours put together, measured times that count, weights among arguments."""

import json
import threading
from functools import partial

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import cache
from nxjax.backends.hybrid import executable, planner, trying
from nxjax.backends.hybrid.planner import Planner, PlanOptions, PlanSetting, compute, settled, weight_inputs
from nxjax.backends.hybrid.trying import History, form, machine, measurable
from nxjax.backends.hybrid.units import BackendUnit, resolve
from nxjax.config import config
from nxjax.hybrid import Estimate, FaultPolicy, Hybrid, Link, plan
from nxjax.lower.partition.grouping import joined
from nxjax.lower.partition.regions import cut
from nxjax.testing import random_program
from nxjax.trace.array import wrap
from nxjax.transforms.inline import inlined
from tests.backends.hybrid.fakes import Fake, set_options

ones = lambda *shape: np.ones(shape, np.float32)


def branches(x):
    a = jnp.sin(jnp.cos(x @ x))
    b = jnp.tanh(jnp.exp(x @ (x * 2)))
    return a @ b


def planned(f, args, *units, history=None, **options):
    program = nx.make_jaxpr(f)(*args)
    options = {"measure": False, "light": 0.0, **options}
    return Planner(program, PlanSetting(units, (), PlanOptions(**options), history or History(kept=False))).plan()


def test_a_faster_unit_gets_what_it_takes_unless_moving_costs_more():
    cpu = lambda: BackendUnit("cpu", resolve(("cpu",))[0][0].backend)
    near, far = Fake("chip", seconds=1e-9), Fake("chip", seconds=1e-9)
    far.link = Link(1e3, 1.0, "a slow wire")
    x = ones(32, 32)
    found = planned(branches, (x,), near, cpu())
    assert set(found.assignment) == {"chip"} and found.places[0].cost.basis == "vendor-estimate"
    assert not found.schedule.transfers
    assert set(planned(branches, (x,), far, cpu()).assignment) == {"cpu"}
    # What must be there is moved there and back, and the plan shows it.
    pinned = planned(branches, (x,), far, cpu(), pin={"exp": "chip"})
    assert [(t.from_unit, t.to_unit, t.nbytes) for t in pinned.schedule.transfers] == [
        ("host", "chip", 4096),
        ("chip", "host", 4096),
    ]
    assert "transfer host -> chip: 4096 B" in str(pinned)
    pinned.schedule.check(pinned.work)


def test_units_on_the_same_cores_are_not_planned_side_by_side():
    """Two branches of equal weight: a second chip halves their time, a second executor of the host's cores does not."""
    rate = lambda e: 1e-3 * (e.op.name in ("sin", "cos", "tanh", "exp"))
    x = ones(8, 8)
    for label, platform, together in (("hardware", "npu", True), ("hardware", "cpu", False),
                                      ("vendor-simulator", "npu", False), ("host", "npu", False)):  # fmt: skip
        units = [Fake("one"), Fake("other")]
        for unit in units:
            unit.estimate = lambda p: Estimate(1e-9 + sum(map(rate, p.equations)), "model", "this test")
            unit.label, unit.platform = label, platform
        for objective in ("latency", "throughput"):
            found = planned(branches, (x,), *units, objective=objective)
            found.schedule.check(found.work)
            several = found.schedule.unrolled(found.work, 4).slots
            apart = lambda a, b: a.unit == b.unit or min(a.finish, b.finish) <= max(a.start, b.start) + 1e-8
            meet = [(a, b) for a in several for b in several if not apart(a, b)]
            assert bool(meet) == together, (label, platform, objective)
            assert (len(set(found.assignment)) > 1) or not together
            assert found.schedule.interval == pytest.approx(2e-3 if together else 4e-3, rel=1e-3)


def test_neighbours_on_one_unit_become_one_region_and_nobody_waits_longer():
    def f(x):
        y = jnp.sin(x)
        return jnp.cos(y), jnp.exp(y)

    program = inlined(nx.make_jaxpr(f)(ones(4)))
    assert joined(program, range(3), ("cpu", "cpu", "cpu")) == [0, 0, 0]
    # cos on the chip would wait for exp, if exp came into the region that it needs.
    assert joined(program, range(3), ("cpu", "chip", "cpu")) == [0, 1, 2]
    # Lanes that run side by side keep their branches; chains are chains.
    assert joined(program, range(3), ("cpu", "cpu", "cpu"), {"cpu"}) == [0, 1, 2]
    chain = inlined(nx.make_jaxpr(lambda x: jnp.cos(jnp.sin(x)))(1.0))
    assert joined(chain, range(2), ("cpu", "cpu"), {"cpu"}) == [0, 0]


def test_random_assignments_are_joined_without_cycles():
    rng = np.random.default_rng(0)
    for _ in range(20):
        made = random_program(rng, 14)
        program = inlined(nx.make_jaxpr(made)(*made.args))
        units = [("cpu", "chip")[rng.integers(2)] for _ in program.equations]
        again = cut(program, joined(program, range(len(units)), units))
        for r in again.regions:
            assert len({units[i] for i in r.equations}) == 1
        args = [wrap(a) for a in made.args]
        assert again.run(args)[0].numpy().tobytes() == program(*args)[0].numpy().tobytes()


def test_measured_times_replace_estimates_and_move_regions():
    x = ones(16, 16)
    history = History(kept=False)
    chip = Fake("chip", seconds=1e-9)
    device = Hybrid(chip, "cpu", history=history, measure=False)
    f = nx.jit(branches, device=device)
    want = np.asarray(f(x))
    first = plan(f)(x)
    executable = device._calls[f].popitem()[1].executable
    assert set(first.assignment) == {"chip"} and not executable.replan()
    kept = [form(p.region.program) for p in first.places]
    assert history.count(kept[0], "chip") == 1
    # The chip is far slower than it says: the host takes over, with the same results.
    for name in kept:
        for _ in range(5):
            history.add(name, "chip", 1.0)
    assert executable.replan() and set(executable.plan.assignment) == {"cpu"}
    assert np.array_equal(f(x), want)
    # A unit that rounds otherwise keeps what it has, however slow: results stay what they were.
    device = Hybrid(Fake("chip", seconds=1e-9, exact=False), "cpu", history=History(kept=False), measure=False)
    g = nx.jit(branches, device=device)
    g(x)
    for place in plan(g)(x).places:
        for _ in range(5):
            device.history.add(form(place.region.program), "chip", 1.0)
    assert not device._call(g, (x,), {}).executable.replan() and set(plan(g)(x).assignment) == {"chip"}
    assert plan(g)(x).schedule.makespan >= 1.0
    # A little slower is no reason to plan anew.
    device = Hybrid(
        Fake("chip", seconds=2e-6), Fake("other", seconds=1.9e-6), history=History(kept=False), measure=False
    )
    g = nx.jit(branches, device=device)
    g(x)
    executable = device._calls.setdefault(g, {}) or device._call(g, (x,), {}).executable
    assert plan(g)(x).assignment[0] == "other"
    name = form(plan(g)(x).places[0].region.program)
    slightly = 1.02 * plan(g)(x).places[0].cost.seconds
    for _ in range(9):
        device.history.add(name, "other", slightly * 1.03)
    assert not executable.replan()


def test_candidates_are_measured_once_per_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    x = ones(8, 8)
    chip = Fake("chip")
    chip.slow = 0.002
    first = Hybrid(chip, "cpu").plan(branches)(x)
    assert set(first.assignment) == {"cpu"} and first.places[0].on["chip"].cost.basis == "measured"
    assert first.places[0].on["chip"].cost.seconds >= 0.002 and chip.calls > 0
    calls = chip.calls
    second = Hybrid(chip, "cpu", history=History()).plan(branches)(x)
    assert chip.calls == calls and second.places[0].on["chip"].cost.basis == "measured"


def test_a_unit_that_fails_or_hangs_while_it_is_measured_spoils_no_plan(monkeypatch):
    x = ones(8, 8)
    chip = Fake("chip")
    chip.broken = True
    found = Hybrid(chip, "cpu", history=History(kept=False)).plan(branches)(x)
    assert set(found.assignment) == {"cpu"} and "the chip is gone" in str(found)
    chip, ended = Fake("chip"), []
    chip.slow, chip.interrupt = 0.4, lambda: ended.append(True)
    monkeypatch.setattr(planner, "_PATIENCE", 0.05)
    found = Hybrid(chip, "cpu", history=History(kept=False)).plan(branches)(x)
    assert set(found.assignment) == {"cpu"} and "did not answer within" in str(found) and ended


def test_history_outlives_the_process_and_does_not_believe_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    history = History()
    for seconds in (1.0, 2.0, float("nan"), -1.0, 100.0, 3.0):
        history.add("region", "npu", seconds)
    assert history.count("region", "npu") == 4 and history.seconds("region", "npu") == 2.5
    assert History().seconds("region", "npu") is not None and History().count("region", "npu") == 4
    key = trying._key("region", "npu")
    for data in (b"[1]", b"no json", json.dumps({"format": "another", "unit": "npu", "times": [1]}).encode()):
        cache.store(key, data)
        assert History().seconds("region", "npu") is None
    history.forget("region", "npu")
    assert cache.load(key) is None and history.seconds("region", "npu") is None
    assert f"x{__import__('os').cpu_count()}" in machine()


def test_weights_are_found_where_products_have_them():
    def attention(p, x):
        q, k = x @ p["q"], x @ p["k"]
        return nx.nn.softmax(q @ k.T * p["scale"]) @ (x + p["shift"]), p["table"][jnp.array([0, 2])]

    p = {"q": ones(4, 4), "k": ones(4, 4), "scale": np.float32(2), "shift": ones(4), "table": ones(5, 2)}
    program = inlined(nx.make_jaxpr(attention)(p, ones(3, 4)))
    names = ["k", "q", "scale", "shift", "table", "x"]
    assert [names[i] for i in weight_inputs(program)] == ["k", "q", "shift", "table"]
    # Neither of two data that are multiplied, nor what the caller gets back.
    assert weight_inputs(inlined(nx.make_jaxpr(lambda x: x @ x.T)(ones(3, 4)))) == ()
    assert weight_inputs(inlined(nx.make_jaxpr(lambda x, w: (x @ w, w))(ones(3, 4), ones(4, 2)))) == ()


def test_what_depends_on_weights_alone_is_computed_once():
    w = nx.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))

    def f(x):
        return x @ (jnp.sin(w) / jnp.max(jnp.abs(w))) + jnp.broadcast_to(jnp.cos(w)[0], (2000, 4))

    x = ones(2000, 3)
    program = settled(nx.make_jaxpr(f)(x), compute)
    assert {e.op.name for e in program.equations} <= {"dot_general", "add", "broadcast_in_dim"}
    assert np.array_equal(program(wrap(x))[0], nx.jit(f)(x))
    assert max(v.size for v in program.values) <= 12


def test_only_what_ends_and_has_no_effect_is_run_on_made_up_inputs():
    loop = nx.make_jaxpr(lambda x: nx.lax.while_loop(lambda v: v < 10, lambda v: v + x, x))(1.0)
    told = nx.make_jaxpr(lambda x: nx.debug.print("{}", x))(1.0)
    steps = nx.make_jaxpr(lambda x: nx.lax.fori_loop(0, 3, lambda i, v: v * 2, x))(1.0)
    assert [measurable(p) for p in (loop, told, steps)] == [False, False, True]


@pytest.mark.parametrize("objective", ["latency", "throughput", "energy"])
def test_objectives_reach_the_schedule(objective):
    chip = Fake("chip", lambda e: e.op.name != "tanh", seconds=1e-6)
    device = Hybrid(chip, "cpu", objective=objective, watts={"chip": 1.0, "cpu": 30.0}, measure=False)
    set_options(device, light=0.0)
    found = device.plan(branches)(ones(16, 16))
    found.schedule.check(found.work)
    assert found.schedule.objective == objective and found.schedule.joules is not None
    assert f"{objective}" in str(found) and "J" in str(found)


class Clock:
    """Seconds that pass where a unit says so, and a few whenever somebody looks."""

    now = 0.0

    def __call__(self):
        self.now += 1e-4
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()

    def measure(step, program):
        before = made.now
        step([wrap(x) for x in trying.sample(program)])
        return [made.now - before + 1e-9] * trying.ENOUGH

    monkeypatch.setattr(planner, "measure", measure)
    monkeypatch.setattr(planner, "_PATIENCE", None)  # no thread to measure in
    monkeypatch.setattr(executable, "measured", partial(executable.measured, clock=made))
    return made


class Timed(Fake):
    """A unit that takes so long as ``says`` of a region and of the one that it ran before."""

    def __init__(self, name, takes, clock, says):
        super().__init__(name, takes)
        self.clock, self.says, self.last = clock, says, None

    def prepare(self, program):
        step = super().prepare(program)
        run = step.inner

        def inner(args):
            with self.lock:
                self.clock.now += self.says(program, self.last)
                self.last = program
            return run(args)

        step.inner = inner
        return step


def halves(x):
    for _ in range(3):
        x = jnp.tanh(x @ x * 1e-3)
    return x


is_tanh = lambda e: e.op.name == "tanh"
part = lambda program, takes: sum(map(takes, program.equations))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_cut_that_is_slower_than_one_unit_alone_is_not_shipped(objective, clock, tmp_path, monkeypatch):
    """A chip is quick, but for whoever lets it change from one region to another."""
    monkeypatch.setattr(config, "cache_dir", str(tmp_path))
    x = ones(8, 8)

    def shipped(**options):
        chip = Timed("chip", lambda e: not is_tanh(e), clock, lambda p, last: 1.0 if last not in (None, p) else 1e-6)
        whole = Timed("whole", lambda e: True, clock, lambda p, last: 1e-2 * len(p.equations))
        device = Hybrid(chip, whole, objective=objective, **options)
        set_options(device, light=0.0)
        f = nx.jit(halves, device=device)
        assert np.allclose(f(x), nx.jit(halves)(x), rtol=1e-5)
        return plan(f)(x), chip

    found, _ = shipped()
    assert set(found.assignment) == {"whole"} and "of the time of whole, measured in turn" in str(found)
    # In the next process it is known.
    found, chip = shipped()
    assert set(found.assignment) == {"whole"} and chip.calls == 0
    # Where nothing is to be measured, the sums decide; a pin is kept, whatever it takes.
    assert "chip" in shipped(measure=False)[0].assignment
    assert "chip" in shipped(pin={"dot_general": "chip"})[0].assignment


def test_a_cut_that_is_faster_than_every_unit_alone_is_shipped(clock):
    x = ones(8, 8)
    slow = lambda takes: lambda p, last: 1e-2 * part(p, takes) + 1e-6
    one = Timed("one", lambda e: not is_tanh(e), clock, slow(is_tanh))
    other = Timed("other", is_tanh, clock, slow(lambda e: not is_tanh(e)))
    whole = Timed("whole", lambda e: True, clock, slow(lambda e: True))
    device = Hybrid(one, other, whole, history=History(kept=False))
    set_options(device, light=0.0)
    f = nx.jit(halves, device=device)
    assert np.allclose(f(x), nx.jit(halves)(x), rtol=1e-5)
    found = plan(f)(x)
    assert set(found.assignment) == {"one", "other"}
    assert "one+other takes 0." in str(found) and "of the time of whole, measured in turn" in str(found)


def test_checks_that_the_user_wants_count_when_plans_are_measured(clock):
    """A chip is four times as fast, but each of its answers is computed on the other unit, too."""
    x = ones(8, 8)

    def shipped(verify):
        chip = Timed("chip", lambda e: not is_tanh(e), clock, lambda p, last: 2.5e-3 * len(p.equations))
        whole = Timed("whole", lambda e: True, clock, lambda p, last: 1e-2 * len(p.equations))
        device = Hybrid(chip, whole, history=history, policy=FaultPolicy(verify=verify))
        set_options(device, light=0.0)
        return {*device.plan(halves)(x).assignment}

    history = History(kept=False)
    assert shipped(0.0) == {"chip", "whole"}
    assert shipped(1.0) == {"whole"} and shipped(0.0) == {"chip", "whole"}


def doubled(n, x):
    return nx.lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.tanh(c[1] @ c[1])), (0, x))[1]


def test_a_loop_that_its_data_end_is_measured_on_a_calls_data(clock):
    """No made-up number of steps is run, and no estimate ships what a call shows to be slower."""
    x = ones(8, 8)
    for quick, says in (("chip", 1e-9), ("whole", 1e-9), ("chip", 1.0), ("whole", 1.0)):
        takes = {"chip": 2e-2, "whole": 2e-2, quick: 1e-3}
        units = [Timed(name, lambda e: True, clock, lambda p, last, t=t: t) for name, t in takes.items()]
        units[0].seconds = says
        device = Hybrid(*units, history=History(kept=False))
        f = nx.jit(doubled, device=device)
        assert np.allclose(f(3, x), nx.jit(doubled)(3, x), rtol=1e-5)
        assert {*plan(f)(3, x).assignment} == {quick}
        assert "measured in turn" in str(plan(f)(3, x))


@pytest.mark.parametrize("said", [Link(1e3, 1.0, "too slow"), Link(1e12, 0.0, "too fast")])
def test_what_is_said_of_a_wire_decides_nothing_that_can_be_measured(said, clock):
    class Wired(Timed):
        def receive(self, value):
            clock.now += 1e-6 if said.latency else 1.0
            return super().receive(value)

    chip = Wired("chip", lambda e: said.latency > 0 or not is_tanh(e), clock, lambda p, last: 1e-3)
    chip.link = said
    whole = Timed("whole", lambda e: True, clock, lambda p, last: 1e-2 * len(p.equations))
    device = Hybrid(chip, whole, history=History(kept=False))
    set_options(device, light=0.0)
    assert {*device.plan(halves)(ones(8, 8)).assignment} == {"chip" if said.latency else "whole"}


def test_a_new_plan_replaces_no_faster_one(clock):
    """The times of its parts promise more than a plan keeps: it is measured against the one that runs."""
    x = ones(8, 8)
    chip = Timed("chip", lambda e: True, clock, lambda p, last: 1e-2)
    whole = Timed("whole", lambda e: True, clock, lambda p, last: 1.0)
    device = Hybrid(chip, whole, history=History(kept=False))
    f = nx.jit(halves, device=device)
    f(x)
    name = form(plan(f)(x).places[0].region.program)
    executable = device._calls[f].popitem()[1].executable
    for _ in range(33):
        device.history.add(name, "chip", 5.0)
    assert not executable.replan() and {*plan(f)(x).assignment} == {"chip"}
    # Unless it has indeed become slower.
    chip.says = lambda p, last: 5.0
    assert executable.replan() and {*executable.plan.assignment} == {"whole"}
    assert np.allclose(f(x), nx.jit(halves)(x), rtol=1e-5)


def test_what_fails_while_it_is_measured_in_turn_fails_no_plan(clock):
    class Fails(Timed):
        def prepare(self, program):
            step = super().prepare(program)
            run = step.inner
            step.inner = lambda args: run(args) if threading.current_thread() is threading.main_thread() else 1 / 0
            return step

    chip = Fails("chip", lambda e: not is_tanh(e), clock, lambda p, last: 1e-6)
    chip.exact = False
    whole = Timed("whole", lambda e: True, clock, lambda p, last: 1e-2 * len(p.equations))
    device = Hybrid(chip, whole, redo="same", history=History(kept=False), policy=FaultPolicy(backoff=60, tries=1))
    set_options(device, light=0.0)
    f = nx.jit(halves, device=device)
    found = plan(f)(ones(8, 8))
    assert "chip" in found.assignment and "were not measured in turn: no unit is left" in str(found)


def test_what_is_known_is_the_same_program_each_time():
    """Times are kept by what a program is."""
    known = {settled(inlined(nx.make_jaxpr(halves)(ones(8, 8))), compute).fingerprint for _ in range(8)}
    assert len(known) == 1
