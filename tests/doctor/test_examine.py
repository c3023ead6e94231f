"""A model is examined for each target: what is found is what the target's own records and runs say."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.backends.evidence import Record
from nxjax.backends.target import Build, NpuTarget, Runner
from nxjax.doctor.examine import usual
from nxjax.errors import MissingExtraError, ParameterError, ShapeError
from nxjax.lower.npu.graph import NpuGraph
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.placement import YES, Verdict

RNG = np.random.default_rng(0)
PARAMS = {
    "conv": jnp.asarray(RNG.normal(size=(3, 3, 3, 8)).astype(np.float32) / 4),
    "out": jnp.asarray(RNG.normal(size=(8, 5)).astype(np.float32)),
}
IMAGE = jnp.asarray(RNG.normal(size=(1, 8, 8, 3)).astype(np.float32))


def net(params, x):
    x = nx.lax.conv_general_dilated(x, params["conv"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return nx.lax.erf(nx.nn.relu(x).mean((1, 2)) @ params["out"])


class Chip(NpuTarget):
    """A chip whose simulator is exact."""

    name = title = "chip"
    format = "tflite"
    precision = ("int8",)
    rules = "the chip's own table"
    lacks: tuple[str, ...] = ()
    off_by, off_at = 0, ""

    def available(self):
        return "own-model", "a test"

    def supports(self, node):
        return Verdict(False, f"no {node.op} here", "write it otherwise") if node.op in self.lacks else YES

    def build(self, subject, options):
        def run(xs):
            return [self.wrong(subject, y) for y in interpret(subject, xs)]

        return Build(
            {"net.bin": str(subject).encode()}, self.placed(subject), runner=Runner(run, self.title, "own-model")
        )

    def wrong(self, subject, y):
        made = any(n.op == self.off_at for n in subject.nodes)
        return (y.astype(int) + self.off_by).clip(-128, 127).astype(y.dtype) if made else y


class Lacking(Chip):
    """It has no erf."""

    name = title = "lacking"
    lacks = ("erf",)


class Wide(Lacking):
    """It has no erf either, and activations in 16 bits."""

    name = title = "wide"
    precision = ("int8", "int16x8")


class Liar(Chip):
    """Every value behind the mean is four steps off."""

    name = title = "liar"
    off_by, off_at = 4, "mean"


class Drifting(Chip):
    """Its convolutions are one step too high, which a mean on a finer grid makes several of."""

    name = title = "drifting"

    def build(self, subject, options):
        made = super().build(subject, options)

        def run(xs):
            values = dict(zip(subject.inputs, xs, strict=True))
            for n in subject.nodes:
                given = [t for t in n.operands if not t.constant]
                ys = interpret(NpuGraph("", given, list(n.outputs), [n]), [values[t] for t in given])
                values.update(zip(n.outputs, (np.minimum(y, 126) + 1 if n.op == "conv_2d" else y for y in ys)))
            return [values[t].astype(t.dtype) for t in subject.outputs]

        made.runner = Runner(run, self.title, "own-model")
        return made


class Nonsense(Chip):
    """Its simulator answers everything with one value."""

    name = title = "nonsense"

    def build(self, subject, options):
        made = super().build(subject, options)
        run = lambda xs: [np.full(t.shape, 77, t.dtype) for t in subject.outputs]
        made.runner = Runner(run, "simulator of nonsense", "vendor-simulator")
        return made


class Broken(Chip):
    """Its compiler ends with an error that is none of ours."""

    name = title = "broken"

    def build(self, subject, options):
        raise RuntimeError("internal compiler error <1>\nat line 3")


class Missing(Chip):
    """What writes its files is not installed."""

    name = title = "missing"

    def build(self, subject, options):
        raise MissingExtraError("its files need a package", got="no module 'its'", fix="pip install 'nxjax[its]'")


class Silent(Chip):
    """Its compiler gave no answer; a simulator runs the file all the same."""

    name = title = "silent"

    def build(self, subject, options):
        made = super().build(subject, options)
        made.evidence = [Record("failed", "vendor-compiler", "its compiler", answer="it wrote <nothing>")]
        return made


class Host(Chip):
    """A processor, and nothing here that runs its files."""

    name = title = "host"
    host = True

    def build(self, subject, options):
        return Build({"net.bin": b"x"}, self.placed(subject), host=True)


class Unknown(Chip):
    """Nobody says what it takes, and nothing runs it."""

    name = title = "nobody"
    rules = ""

    def build(self, subject, options):
        return Build({"net.bin": b"x"}, self.placed(subject))


CHIPS = (Chip, Lacking, Wide, Liar, Drifting, Nonsense, Broken, Missing, Silent, Host, Unknown)


@pytest.fixture(autouse=True)
def chips(monkeypatch):
    known = registry._classes()
    for chip in CHIPS:
        monkeypatch.setitem(known, chip.name, chip)


def examined(*names, **more):
    return nx.deploy.doctor(net, PARAMS, IMAGE, targets=names, progress=False, **more)


def test_what_each_target_makes_of_it():
    found = examined(*(c.name for c in CHIPS))
    states = {t.target: t.state for t in found.targets}
    assert states == {
        "chip": "all", "lacking": "part", "wide": "part", "liar": "all", "drifting": "all", "nonsense": "wrong",
        "broken": "failed", "missing": "unknown", "silent": "all", "host": "unknown", "nobody": "unknown"
    }  # fmt: skip
    assert found.takes and not examined("broken", "nobody").takes
    assert found["chip"].deviation.exact and found["chip"].measured
    assert found["chip"].files.keys() == {"net.bin"} and found["chip"].memory["activations"].basis == "model"
    assert found["broken"].said == "RuntimeError: internal compiler error <1> at line 3"
    assert found["missing"].said == "its files need a package: no module 'its': pip install 'nxjax[its]'"
    assert found["silent"].said == "its compiler: it wrote <nothing>" and found["silent"].said in str(found)
    assert not found["host"].on_host and found["host"].level == f"({found['chip'].level})"
    assert f"{found['host'].level} dB</span>" in found.html()
    assert "another function" in found["nonsense"].said
    assert not found["nobody"].measured and found["nobody"].sqnr_of == "the exact reference"
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_error_is_that_of_the_results():
    t = examined("chip")["chip"]
    exact = nx.quantize(net, "int8", calibrate=[(PARAMS, IMAGE)])
    wanted, got = np.asarray(net(PARAMS, IMAGE), float), np.asarray(exact(PARAMS, IMAGE), float)
    assert t.sqnr == pytest.approx(10 * np.log10((wanted**2).sum() / ((wanted - got) ** 2).sum()), abs=1e-6)


def test_a_liar_is_convicted_at_the_op_where_it_lies():
    t = examined("liar")["liar"]
    assert t.divergence.op == "mean" and t.divergence.exact and "4 LSB" in t.divergence.so_far
    assert "4 LSB" in t.divergence.alone
    # As many builds as halving takes, the whole, and the op alone.
    assert t.divergence.builds <= 2 + int(np.ceil(np.log2(t.divergence.count)))
    assert "leaves the reference at mean" in str(examined("liar"))


def test_what_begins_as_rounding_is_traced_to_its_op():
    found = examined("drifting")["drifting"].divergence
    assert found.op == "mean" and found.alone == "equal"
    assert found.since.startswith("conv_2d") and "1 LSB" in found.since


def test_who_agrees_is_not_searched():
    t = examined("chip")["chip"]
    assert t.divergence is None and t.unsought == ""
    assert examined("nobody")["nobody"].unsought == "nothing here runs it"


def test_a_slow_model_of_a_chip_does_not_run_a_large_network(monkeypatch):
    from nxjax.doctor import trial

    monkeypatch.setattr(trial, "SLOW", 100)
    t = examined("chip")["chip"]
    assert t.state == "all" and not t.runs_on and not t.measured and t.deviation is None
    assert t.said.startswith("not run here") and t.label == "emitted" and t.sqnr > 20


def test_what_is_refused_and_how_it_could_be_written():
    t = examined("lacking")["lacking"]
    assert t.refused == [("erf", "no erf here", "write it otherwise", 1)]
    assert len(t.rewrites) == 1 and t.rewrites[0].startswith("erf (1 times): tanh")
    assert not t.fixes


def test_a_rewrite_is_applied_on_request_and_verified_again():
    t = examined("lacking", fix=True)["lacking"]
    (fix,) = t.fixes
    assert fix.kept and t.state == "all" and t.deviation.exact and t.sqnr > 30
    assert fix.before.startswith("3 of 4 ops") and fix.after.startswith("10 of 10 ops")
    assert all(r.op != "erf" for r in t.report.rows)


def test_a_rewrite_that_loses_is_not_kept(monkeypatch):
    from nxjax.doctor import rewrites

    bad = rewrites.Rewrite("nothing", lambda x, **_: 0 * x, lambda e: True)
    monkeypatch.setattr(rewrites, "REWRITES", {"erf": bad})
    t = examined("lacking", fix=True)["lacking"]
    assert not t.fixes[0].kept and t.state == "part"


def test_what_int8_destroys_is_tried_in_16_bits():
    sizes = jnp.asarray([1.0, 30.0, 300.0], np.float32)
    spread = lambda x: nx.lax.erf((x * sizes) / sizes)
    x = jnp.asarray(RNG.normal(size=(4, 3)).astype(np.float32))
    found = nx.deploy.doctor(spread, x, targets="wide", progress=False)["wide"]
    assert found.sqnr < 20 and found.rewrites[-1].startswith("activations in 16 bits")
    fixed = nx.deploy.doctor(spread, x, targets="wide", progress=False, fix=True)["wide"]
    # Both together: the second is of the form that the first made.
    assert [f.kept for f in fixed.fixes] == [True, True] and fixed.policy == "int16x8"
    assert fixed.state == "all" and fixed.sqnr > found.sqnr + 3


@pytest.mark.parametrize("op", ["erf", "erfc", "cumsum", "top_k", "asinh", "acosh", "atanh"])
def test_rewrites_compute_what_they_replace(op):
    from nxjax.doctor import model, rewrites

    calls = {
        "cumsum": lambda x: (nx.lax.cumsum(x, 1), nx.lax.cumsum(x, 0, reverse=True)),
        "top_k": lambda x: nx.lax.top_k(x, 3),
        "acosh": lambda x: jnp.arccosh(1 + x * x),
        "atanh": lambda x: jnp.arctanh(jnp.tanh(x)),
        "asinh": jnp.arcsinh,
        "erf": nx.lax.erf,
        "erfc": nx.lax.erfc,
    }
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    given, _ = model.given(calls[op], (jnp.asarray(x),))
    program = given.program
    assert op in rewrites.possible(program)
    other = rewrites.rewritten(program, [op])
    assert op not in {e.op.name for e in model.given(other, (x,))[0].program.equations}
    flat = lambda y: [np.asarray(v) for v in (y if isinstance(y, (tuple, list)) else (y,))]
    for a, b in zip(flat(other(x)), flat(calls[op](jnp.asarray(x))), strict=True):
        np.testing.assert_allclose(a, b, atol=6e-4, rtol=1e-3)


def test_a_metric_is_of_what_runs_and_of_the_reference():
    metric = lambda y, answer: abs(np.asarray(y) - answer).mean()
    tests = [((IMAGE,), np.asarray(net(PARAMS, IMAGE)))]
    found = examined("chip", "liar", metric=metric, tests=tests)
    assert found.float_score == 0.0
    assert found["chip"].scores.artifact == found["chip"].scores.reference
    assert found["liar"].scores.artifact > found["liar"].scores.reference
    with pytest.raises(ParameterError, match="a metric needs tests"):
        examined("chip", metric=metric)


def test_layers_are_those_of_compare():
    found = examined("chip")
    assert found.layers[0].op == "conv_general_dilated"
    assert all(r.sqnr > 20 for r in found.layers)


def test_results_of_any_structure():
    both = lambda x: {"a": nx.nn.relu(x), "b": [x * 2, x.sum()]}
    x = jnp.asarray(RNG.normal(size=(2, 3)).astype(np.float32))
    t = nx.deploy.doctor(both, x, targets="chip", progress=False)["chip"]
    assert t.state == "all" and t.sqnr > 20


@pytest.mark.parametrize(
    ("fun", "x"),
    [
        (lambda x: (x + 1) * x, np.arange(3, dtype=np.int32)),
        (lambda x: x[::-1], np.ones(3, bool)),
        (lambda x: jnp.exp(x * 1e30), np.ones((1, 3), np.float32)),
    ],
)
def test_what_cannot_be_quantized_is_examined_as_it_is(fun, x):
    t = nx.deploy.doctor(fun, x, targets="tflite", progress=False)["tflite"]
    assert t.policy == "not quantized" and t.said.startswith("quantize: ") and t.files and t.state == "all"


def test_a_rewrite_makes_a_function_that_can_be_quantized():
    x = jnp.asarray(RNG.normal(size=(1, 16)).astype(np.float32))
    before = nx.deploy.doctor(lambda x: nx.lax.top_k(x, 3), x, targets="edgetpu", progress=False)["edgetpu"]
    assert before.state == "none" and before.policy == "not quantized"
    assert before.placement == "0 of 1 ops" and [r[0] for r in before.refused] == ["top_k"]
    t = nx.deploy.doctor(lambda x: nx.lax.top_k(x, 3), x, targets="edgetpu", progress=False, fix=True)["edgetpu"]
    assert t.fixes[0].kept and t.state == "part" and t.policy == "int8" and t.sqnr > 30


def test_numbers_of_64_bits_are_computed_in_32():
    from nxjax.doctor import model

    table = jnp.asarray(RNG.normal(size=(10, 4)).astype(np.float32))
    wide = lambda i: table[i.astype("int64") + 1] * 2
    given, call = model.given(wide, (np.arange(3, dtype=np.int32),))
    assert any(v.type.dtype == np.int64 for e in given.program.equations for v in e.outputs)
    given.narrow([call])
    assert not any(v.type.dtype == np.int64 for e in given.program.equations for v in e.outputs)
    np.testing.assert_array_equal(given.fun(*call), wide(*call))
    assert "computed in 32" in given.notes[0]
    assert nx.deploy.doctor(wide, *call, targets="chip", progress=False)["chip"].state == "all"
    # Where it would be another function, it stays as it is.
    given, call = model.given(lambda i: (i.astype("int64") * 2**20 // 2**20).astype("int32"), (np.int32([5000]),))
    given.narrow([call])
    assert not given.notes


def test_an_error_of_one_target_does_not_end_the_others(monkeypatch):
    from nxjax.doctor import trial

    def bad(*_, **__):
        raise ValueError("a reader of a simulator's output")

    monkeypatch.setattr(trial, "first_divergence", bad)
    found = examined("liar", "chip")
    assert (found["liar"].state, found["chip"].state) == ("failed", "all")
    assert found["liar"].said == "ValueError: a reader of a simulator's output"


def test_who_gave_wrong_results_is_named():
    class Two(Nonsense):
        name = title = "two"

        def build(self, subject, options):
            made = super().build(subject, options)
            made.evidence = [Record("failed", "vendor-compiler", "an older tool", answer="it did not start")]
            return made

    registry._classes()["two"] = Two
    try:
        assert "another function" in examined("two")["two"].said
    finally:
        del registry._classes()["two"]


def test_targets_are_named():
    assert [t.target for t in examined("CHIP", "chip").targets] == ["chip"]
    assert set(usual()) < set(registry.names()) and "ethos-u55" in usual() and "ethos-u55-32" not in usual()
    assert [t.target for t in nx.deploy.doctor(net, PARAMS, IMAGE, targets="chip, liar,chip").targets] == [
        "chip",
        "liar",
    ]
    with pytest.raises(ParameterError, match="did you mean 'chip'"):
        examined("chjp")
    with pytest.raises(ParameterError, match="no targets"):
        examined()


def test_data_of_a_function():
    found = examined("chip", data=[(IMAGE,), (2 * IMAGE,)])
    assert found.data == "2 inputs that were given"
    assert examined("chip", data={"x": np.concatenate([IMAGE, IMAGE, IMAGE])}).data == "3 inputs that were given"
    with pytest.raises(ParameterError, match="another shape"):
        examined("chip", data=[(IMAGE[:, :4],)])
    with pytest.raises((ParameterError, ShapeError)):
        examined("chip", data=[(IMAGE, IMAGE)])


def test_each_target_is_told_when_it_is_there():
    told = []
    examined("chip", "broken", report=lambda t: told.append((t.target, t.state)))
    assert told == [("chip", "all"), ("broken", "failed")]
