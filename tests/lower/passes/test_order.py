"""The order pass: programs without effects stay as they are; effects are tied into one chain."""

import nxjax as nx
from nxjax.lower.passes.order import in_order


def test_programs_without_effects_stay():
    program = nx.make_jaxpr(lambda x: nx.scan(lambda c, _: (nx.sin(c), None), x, None, length=2)[0])(1.0)
    assert in_order(program) is program


def test_every_effect_takes_the_token_of_the_one_before():
    def f(x):
        nx.debug.print("{}", x)
        x = nx.scan(lambda c, _: (nx.debug.print("{}", c), (c, None))[1], nx.sin(x), None, length=2)[0]
        nx.debug.print("{}", x)
        return x

    program = nx.make_jaxpr(f)(1.0)
    ordered = in_order(program).check()
    first, loop, last = (e for e in ordered.equations if e.op.name in ("debug_callback", "scan"))
    assert loop.inputs[loop.params["num_consts"]] is first.outputs[0]
    assert last.inputs[0] is loop.outputs[0]
    assert [t.shape for t in ordered.out_types] == [t.shape for t in program.out_types]
