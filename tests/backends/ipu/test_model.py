"""What the model notes of steps that are alike is what it would find for each; and it stays small."""

import numpy as np
from hypothesis import given, settings

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.ipu.cycles import step_cycles
from nxjax.backends.ipu.exchange import Exchange
from nxjax.backends.ipu.model import CycleModel
from nxjax.kernels.ipu.chip import SYSTEMS
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Copy, Execute, IpuProgram, VariableView
from tests.backends.ipu.programs import programs
from tests.backends.ipu.toys import add, toy_system, variable


def check(program: IpuProgram) -> None:
    model, fresh = CycleModel(program), Exchange(program.system)
    for step in program.walk():
        if isinstance(step, (Execute, Copy)):
            t = fresh.of_execute(step) if isinstance(step, Execute) else fresh.of_copy(step)
            wanted = step_cycles(step, fresh, t)
            assert model.cost(step) == wanted or vars(model.cost(step)) == vars(wanted)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_steps_that_are_alike_cost_alike(program):
    check(program)


def test_layers_of_a_network_are_alike():
    def net(ws, x):
        for w in ws:
            x = jnp.tanh(x @ w)
        return x

    ws = [np.eye(32, dtype=np.float32)] * 4
    program = lower(
        nx.make_jaxpr(nx.grad(lambda ws, x: jnp.sum(net(ws, x))))(ws, np.ones((8, 32), np.float32)), SYSTEMS["bow"]
    )
    check(program)
    e = Exchange(program.system)
    keys = {e.likeness.step(s) for s in program.walk() if isinstance(s, (Execute, Copy))}
    assert len(keys) < sum(isinstance(s, (Execute, Copy)) for s in program.walk())


def test_what_differs_is_told_apart():
    e = Exchange(toy_system())
    x, y, z = (variable(n, (16,)) for n in "xyz")
    wide = variable("w", (16,), 2)
    key = e.likeness.step
    assert key(add(x, y)) == key(add(y, z))
    different = [add(x, y), add(x, y, 2.0), add(wide, y), add(x, x), Copy(((x.view(), y.view()),))]
    different.append(Copy(((VariableView(x, 15, (16,), (-1,)), y.view()),)))
    assert len({key(s) for s in different}) == len(different)


def test_names_of_the_user_are_taken():
    x, y = variable("input 0", (16,), role="input"), variable("out", (16,), role="output")
    model = CycleModel(IpuProgram("p", toy_system(), (x,), (y,), (add(x, y),)))
    model.named(["batch"], ["loss"])
    assert [h.name for h in model.memory.held()] == ["batch", "loss"] and "batch" in model.hlo
