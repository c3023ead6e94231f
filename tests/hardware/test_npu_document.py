"""The programs that the NPU guide promises, each as a user would write it, with the simulator on and without a chip."""

import textwrap

import pytest

import nxjax as nx
from nxjax.hardware.npu import is_npu_available
from nxjax.vendors.chips import why_none

AVAILABLE = """
    from nxjax.hardware.npu import is_npu_available

    if is_npu_available():
        print("NPU is available")
    else:
        print("NPU is not available")
"""

CREATE = """
    from nxjax.hardware.npu import NPUBackend

    try:
        npu = NPUBackend()
        if npu.initialize():
            print("NPU backend initialized successfully")
        else:
            print("Failed to initialize NPU backend")
    except RuntimeError as e:
        print(f"NPU error: {e}")
"""

INFO = """
    from nxjax.hardware.npu import NPUBackend

    npu = NPUBackend()
    npu.initialize()

    device_count = npu.get_device_count()
    print(f"Available NPU devices: {device_count}")

    device_info = npu.get_device_info(0)
    print(f"Device info: {device_info}")
"""

TENSORS = """
    import nxjax as nx
    from nxjax.hardware.npu import NPUBackend

    a = nx.Tensor([[1, 2], [3, 4]])
    b = nx.Tensor([[5, 6], [7, 8]])

    npu = NPUBackend()
    npu.initialize()

    c = npu.matmul(a, b)
    print(f"Result: {c}")
"""

MODEL = """
    import nxjax as nx
    from nxjax.nn import Sequential, Conv2d, ReLU, Linear
    from nxjax.hardware.npu import NPUBackend

    model = Sequential(
        Conv2d(3, 16, kernel_size=3, stride=1, padding=1),
        ReLU(),
        Conv2d(16, 32, kernel_size=3, stride=2, padding=1),
        ReLU(),
        Conv2d(32, 64, kernel_size=3, stride=2, padding=1),
        ReLU(),
        Linear(64 * 8 * 8, 10)
    )

    npu = NPUBackend()
    npu.initialize()

    optimized_model = npu.optimize_model(
        model=model,
        quantize=True,
        precision="int8"
    )

    print("Model optimized for NPU")
"""

PERFORMANCE = """
    optimized_model = npu.optimize_model(
        model=model,
        quantize=True,
        precision="int8",
        optimize_for="performance"
    )
"""

MEMORY = """
    from nxjax.hardware.npu import NPUBackend

    npu = NPUBackend()
    npu.initialize()

    npu.set_memory_limit(1024 * 1024 * 100)  # 100 MB
    npu.enable_memory_optimization(True)
"""

BATCHES = """
    batch_size = npu.advise_batch_size()
"""


def run(program, **names):
    """Run a program as a file of its own; gives its names."""
    namespace = {"__name__": "__main__", **names}
    exec(compile(textwrap.dedent(program), "program.py", "exec"), namespace)
    return namespace


@pytest.fixture
def simulator():
    with nx.simulate("npu") as on:
        yield on


@pytest.fixture
def no_chip():
    if is_npu_available():
        pytest.skip("this machine has an NPU")


@pytest.mark.usefixtures("no_chip")
def test_availability(capsys):
    run(AVAILABLE)
    assert capsys.readouterr().out == "NPU is not available\n"


@pytest.mark.usefixtures("no_chip")
def test_creating_one_without_a_chip(capsys):
    run(CREATE)
    out = capsys.readouterr().out
    assert out.startswith("NPU error: ")
    assert why_none() in out
    assert 'nx.simulate("npu")' in out


@pytest.mark.usefixtures("no_chip")
@pytest.mark.parametrize("program", [INFO, TENSORS, MODEL, MEMORY])
def test_programs_without_a_chip_raise_the_documented_error(program):
    with pytest.raises(RuntimeError, match="no NPU to run on"):
        run(program)


@pytest.mark.usefixtures("simulator")
def test_a_simulator_is_no_chip(capsys):
    run(AVAILABLE)
    assert capsys.readouterr().out == f"NPU is {'' if is_npu_available() else 'not '}available\n"


@pytest.mark.usefixtures("simulator")
def test_creating_one(capsys):
    run(CREATE)
    assert capsys.readouterr().out == "NPU backend initialized successfully\n"


@pytest.mark.usefixtures("simulator")
def test_device_information(capsys):
    run(INFO)
    out = capsys.readouterr().out
    assert "Available NPU devices: 1\n" in out
    assert "'label': 'own-model'" in out


@pytest.mark.usefixtures("simulator")
def test_tensor_operations(capsys):
    names = run(TENSORS)
    assert names["c"].tolist() == [[19, 22], [43, 50]]
    assert "Result: [[19 22]\n [43 50]]" in capsys.readouterr().out
    # No NPU multiplies plain 32-bit integers: the host did, and says so.
    assert names["npu"].last_run.label == "host" and "no NPU instruction" in names["npu"].last_run.reason


@pytest.mark.usefixtures("simulator")
def test_optimizing_a_model(capsys):
    names = run(MODEL)
    assert "Model optimized for NPU" in capsys.readouterr().out
    images = nx.random.normal(nx.random.key(0), (2, 3, 32, 32))
    want, got = names["model"](images), names["optimized_model"](images)
    assert float(abs(got - want).max()) < 0.1 * float(abs(want).max())
    assert names["optimized_model"].report.share == 1
    again = run(PERFORMANCE, npu=names["npu"], model=names["model"])["optimized_model"]
    assert bool(nx.array_equal(again(images), got))


@pytest.mark.usefixtures("simulator")
def test_memory_management():
    npu = run(MEMORY)["npu"]
    assert npu.get_device_info()["memory_limit"] == 100 * 2**20


@pytest.mark.usefixtures("simulator")
def test_batch_sizes():
    npu = run(MEMORY)["npu"]
    assert run(BATCHES, npu=npu)["batch_size"] == 1
