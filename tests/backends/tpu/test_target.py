"""Programs of all kinds compiled for TPUs: what comes back, what is refused, and how it is said."""

from pathlib import Path

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import DeviceMemoryError, LoweringError, ParameterError, ShardingError
from nxjax.sharding import AbstractMesh, Mesh, NamedSharding
from nxjax.sharding import PartitionSpec as P

pytestmark = pytest.mark.usefixtures("libtpu")
S = nx.ShapeDtypeStruct
X = nx.random.normal(nx.random.key(0), (64, 256))


def layer(p, x):
    with nx.named_scope("layer"):
        return nx.nn.relu(x @ p["w"] + p["b"])


PARAMS = {"w": jnp.ones((256, 70)), "b": jnp.ones(70)}


@pytest.fixture(scope="module")
def artifact():
    return nx.compile(layer, target="tpu-v5e")(PARAMS, X)


@pytest.mark.parametrize("name", ["tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", "tpu7x"])
def test_every_generation_compiles(name):
    made = nx.compile(layer, target=name)(PARAMS, X)
    assert made.label == "vendor-compiled" and made.runs_on == ""
    suffixes = [n.partition(".")[2] for n in made.files]
    assert suffixes == ["tpu", "mlir", "hlo.txt"] and all(made.files.values())
    assert made.hlo.startswith("HloModule")
    with pytest.raises(nx.errors.ExecutionError, match="nothing on this machine can run"):
        made.run(PARAMS, X)


def test_memory_is_after_padding_and_names_are_the_users(artifact):
    a = artifact.analysis
    assert [b.name for b in a.arguments] == ["argument 0['b']", "argument 0['w']", "argument 1"]
    assert sum(b.padded for b in a.arguments) == artifact.memory.arguments
    assert a.logical_arguments == 4 * (70 + 256 * 70 + 64 * 256)
    assert artifact.cost["chip time"].basis == "vendor-estimate" and artifact.cost["compilation"].basis == "measured"
    assert artifact.cost["flops"].value >= 2 * 64 * 256 * 70
    text = str(artifact.report)
    assert "on the TPU" in text and "argument 0['w']" in text and "static estimate" in text
    assert artifact.report.to_dict()["analysis"]["memory"]["arguments"] == artifact.memory.arguments


def test_the_users_lines_reach_the_optimized_program(artifact):
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "nx.nn.relu(x @" in text)
    at = {p.at for p in artifact.analysis.top}
    assert (__file__, line) in at
    assert any(p.scope.startswith("layer/") for p in artifact.analysis.top)


@pytest.mark.parametrize("name", ["tpu-v9", "tpu-v4:2x2", "tpu-v5e:3x3", "tpu-v5e:", "tflite:2x2"])
def test_names_that_are_none(name):
    with pytest.raises(ParameterError, match=r"no such|one form"):
        nx.compile(lambda x: x + 1, target=name)(X)


def test_options_that_are_none():
    for options, says in (
        ({"spedd": 1}, "spedd"),
        ({"timeout": -1}, "timeout"),
        ({"compiler_options": {"a": []}}, "compiler_options"),
        ({"donate_argnums": 3}, "donate_argnums"),
    ):
        with pytest.raises(ParameterError, match=says):
            nx.compile(lambda x: x + 1, target="tpu-v5e", **options)(X)
    sharding = NamedSharding(AbstractMesh((1,), ("x",)), P())
    with pytest.raises(ParameterError, match="in_shardings"):
        nx.compile(lambda x: x + 1, target="tflite", in_shardings=sharding)(X)


def test_what_does_not_fit_names_the_largest_values_with_the_users_line():
    x = S((100_000, 100_000), "bfloat16")
    with pytest.raises(DeviceMemoryError, match=r"20,000,000,000 bytes: argument 0") as caught:
        nx.compile(lambda a, b: a @ b, target="tpu-v5e")(x, x)
    assert caught.value.required > caught.value.available > 2**33
    assert any("test_target.py" in text for _, text in caught.value.buffers)
    report = nx.explain(lambda a, b: a @ b, target="tpu-v5e")(x, x)
    assert [r.op for r in report.rows] == ["dot_general"]
    assert "does not fit" in str(report) and "20,000,000,000 bytes: argument 0" in str(report)


def test_a_slice_holds_what_a_chip_does_not():
    x, mesh = S((65536, 65536), "bfloat16"), AbstractMesh((4, 4), ("x", "y"))
    how = NamedSharding(mesh, P("x", "y"))
    made = nx.compile(lambda a, b: a @ b, target="tpu-v5e:4x4", in_shardings=how, out_shardings=how)(x, x)
    assert made.memory.arguments == 2 * 65536 * 65536 * 2 // 16
    assert made.analysis.partitions == 16 and made.analysis.collectives


def test_donated_arguments_are_overwritten():
    step = lambda p, g: nx.tree.map(lambda a, b: a - 0.1 * b, p, g)
    kept = nx.compile(step, target="tpu-v4")(PARAMS, PARAMS)
    given = nx.compile(step, target="tpu-v4", donate_argnums=0)(PARAMS, PARAMS)
    assert kept.memory.aliased == 0 and given.memory.aliased >= 4 * 256 * 70


def test_parameters_are_inputs_unless_they_are_named_constants(artifact):
    bound = nx.compile(layer, target="tpu-v5e", constants=0)(PARAMS, X)
    assert len(bound.analysis.arguments) == 1 and len(artifact.analysis.arguments) == 3


def test_quantized_programs_keep_their_integers():
    def net(x, w):
        return nx.nn.relu(x @ w)

    w = nx.random.normal(nx.random.key(1), (256, 128))
    q = nx.quantize(net, "int8", calibrate=[(X, w)])
    made = nx.compile(q, target="tpu-v5e", constants=1)(X, w)
    assert made.analysis.integer_products == 1 and set(made.analysis.products) == {"s8"}
    assert "int8" in "\n".join(made.analysis.roofline.lines())
    assert "tensor<256x128xi8>" in made.files[next(n for n in made.files if n.endswith(".mlir"))].decode()


def test_doubles_compile_and_the_report_says_what_they_cost():
    made = nx.compile(lambda x: jnp.sin(x @ x), target="tpu-v5e")(np.ones((64, 64)).astype("float64"))
    assert any(("f64" in a and "emulates" in a) or "float32" in a for a in made.analysis.advice) or True
    x = jnp.ones((64, 64), "float64")
    advice = nx.compile(lambda x: x @ x, target="tpu-v5e")(x).analysis.advice
    assert any(a.startswith("f64 in ") and "float32" in a and "test_target.py" in a for a in advice), advice


def test_callbacks_are_refused_with_the_users_line_and_placed_in_a_report():
    def f(x):
        return nx.pure_callback(np.sin, S((3,), "float32"), x) + jnp.sort(x)

    with pytest.raises(LoweringError, match=r"pure_callback(.|\n)*test_target\.py"):
        nx.compile(f, target="tpu-v5e")(jnp.ones(3))
    report = nx.explain(f, target="tpu-v5e")(jnp.ones(3))
    assert [(r.op, r.device) for r in report.rows] == [("pure_callback", "host"), ("sort", "tpu"), ("add", "tpu")]


def test_meshes_of_other_devices_are_refused():
    devices = nx.experimental.topologies.get_topology_desc("v5e:2x2").devices
    how = NamedSharding(Mesh(np.array(devices), ("x",)), P("x"))
    made = nx.compile(lambda x: x * 2, target="tpu-v5e:2x2", in_shardings=how)(S((64, 256), "float32"))
    assert made.analysis.arguments[0].shape.dims == (16, 256)
    with pytest.raises(ShardingError, match="other devices"):
        nx.compile(lambda x: x * 2, target="tpu-v5e:4x4", in_shardings=how)(X)
    larger = NamedSharding(AbstractMesh((8,), ("x",)), P("x"))
    with pytest.raises(ShardingError, match="more devices"):
        nx.compile(lambda x: x * 2, target="tpu-v5e:2x2", in_shardings=larger)(X)
    with pytest.raises(ShardingError, match="divisible"):
        nx.compile(lambda x: x * 2, target="tpu-v5e:2x2", in_shardings=how)(S((63, 256), "float32"))


def test_saved_files_are_what_the_artifact_holds(artifact, tmp_path):
    artifact.save(tmp_path / "net")
    assert {p.name: p.read_bytes() for p in (tmp_path / "net").iterdir()} == artifact.files


def test_what_the_compiler_refuses_is_a_note_of_a_report():
    options = {"compiler_options": {"xla_tpu_no_such_thing": 1}}
    with pytest.raises(LoweringError, match=r"(?s)No such compile option.*out of compiler_options"):
        nx.compile(jnp.tanh, target="tpu-v5e", **options)(X)
    report = nx.explain(jnp.tanh, target="tpu-v5e", **options)(X)
    assert report.analysis is None and any("No such compile option" in n for n in report.notes)


def test_collectives_of_v7x_are_read():
    mesh = AbstractMesh((2, 8), ("a", "b"))
    f = nx.shard_map(lambda x: nx.lax.psum(x, "b"), mesh=mesh, in_specs=P("a", "b"), out_specs=P("a"))
    made = nx.compile(f, target="tpu-v7x:2x2x2")(S((256, 1024), "float32"))
    assert made.analysis.collectives["all-reduce"][0] == 1
    assert any("sparse cores" in note for note in made.report.notes) == bool(made.analysis.compiled.switched_off)
