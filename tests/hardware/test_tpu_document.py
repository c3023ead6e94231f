"""The programs that the TPU guide promises, each as a user would write it, on a machine without a TPU."""

import textwrap

import pytest

import nxjax as nx
from nxjax.hardware.tpu import is_tpu_available, tpu_unavailable_reason

AVAILABLE = """
    from nxjax.hardware.tpu import is_tpu_available

    if is_tpu_available():
        print("TPU is available")
    else:
        print("TPU is not available")
"""

CREATE = """
    from nxjax.hardware.tpu import TPUBackend

    # Create the backend
    try:
        tpu = TPUBackend()

        # Initialize the backend
        if tpu.initialize():
            print("TPU backend initialized successfully")
        else:
            print("Failed to initialize TPU backend")
    except RuntimeError as e:
        print(f"TPU error: {e}")
"""

DEVICE = """
    from nxjax.device import Device, DeviceType

    tpu_device = Device(DeviceType.TPU, 0)

    if tpu_device.is_available():
        print("TPU device is available")
    else:
        print("TPU device is not available")
"""

TENSOR = """
    import nxjax as nx
    from nxjax.device import Device, DeviceType

    tensor = nx.Tensor([1, 2, 3, 4], device=Device(DeviceType.TPU, 0))
"""

OPERATIONS = """
    import nxjax as nx
    from nxjax.device import Device, DeviceType

    a = nx.Tensor([[1, 2], [3, 4]], device=Device(DeviceType.TPU, 0))
    b = nx.Tensor([[5, 6], [7, 8]], device=Device(DeviceType.TPU, 0))

    c = nx.matmul(a, b)
    print(f"Result: {c}")
"""

MODEL = """
    import nxjax as nx
    from nxjax.nn import Sequential, Linear, ReLU
    from nxjax.device import Device, DeviceType

    model = Sequential(
        Linear(10, 20),
        ReLU(),
        Linear(20, 5)
    )

    model.to(Device(DeviceType.TPU, 0))

    input_tensor = nx.Tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]], device=Device(DeviceType.TPU, 0))
    output = model(input_tensor)
"""

DESIGN = """
    import nxjax as nx
    from nxjax.nn import Sequential, Linear, ReLU
    from nxjax.device import Device, DeviceType

    model = Sequential(
        Linear(1024, 1024),  # Power-of-two dimensions
        ReLU(),
        Linear(1024, 1024),
        ReLU(),
        Linear(1024, 10)
    )

    model.to(Device(DeviceType.TPU, 0))
"""

BATCHES = """
    # For Cloud TPUs, use larger batch sizes
    batch_size = 1024

    # For Edge TPUs, use smaller batch sizes
    batch_size = 1
"""

NEEDS_A_CHIP = (TENSOR, OPERATIONS, MODEL, DESIGN)


def run(program, **names):
    """Run a program as a file of its own; gives its names."""
    namespace = {"__name__": "__main__", **names}
    exec(compile(textwrap.dedent(program), "program.py", "exec"), namespace)
    return namespace


@pytest.fixture
def no_chip():
    if is_tpu_available():
        pytest.skip("this machine has a TPU")


@pytest.mark.usefixtures("no_chip")
def test_availability(capsys):
    run(AVAILABLE)
    assert capsys.readouterr().out == "TPU is not available\n"


@pytest.mark.usefixtures("no_chip")
def test_creating_one_without_a_chip(capsys):
    run(CREATE)
    out = capsys.readouterr().out
    assert out.startswith("TPU error: TPUBackend: no TPU to run on")
    assert tpu_unavailable_reason() in out and "compile_only=True" in out


@pytest.mark.usefixtures("no_chip")
def test_the_device_says_that_it_is_not_there(capsys):
    run(DEVICE)
    assert capsys.readouterr().out == "TPU device is not available\n"


@pytest.mark.usefixtures("no_chip")
@pytest.mark.parametrize("program", NEEDS_A_CHIP)
def test_programs_without_a_chip_raise_an_error_that_says_why(program):
    with pytest.raises(RuntimeError, match="tpu:0 is not available") as caught:
        run(program)
    assert tpu_unavailable_reason() in str(caught.value)


@pytest.mark.parametrize("program", NEEDS_A_CHIP)
def test_the_same_programs_run_on_a_device_that_is_there(program, capsys):
    """The host in the chip's place: everything but the chip is as it is with one."""
    names = run(program.replace("DeviceType.TPU", "DeviceType.CPU"))
    if "c" in names:
        assert names["c"].tolist() == [[19, 22], [43, 50]]
        assert "Result: [[19 22]\n [43 50]]" in capsys.readouterr().out
    if "output" in names:
        assert names["output"].shape == (1, 5)
    if "tensor" in names:
        assert str(names["tensor"].device) == "cpu:0" and names["tensor"].tolist() == [1, 2, 3, 4]


def test_moving_a_model_gives_a_model_whose_parameters_lie_there():
    model = nx.nn.Sequential(nx.nn.Linear(3, 2), nx.nn.ReLU())
    moved = model.to(nx.Device("cpu", 0))
    assert {str(x.device) for x in nx.tree.leaves(moved)} == {"cpu:0"}
    assert bool(nx.array_equal(moved(nx.ones((1, 3))), model(nx.ones((1, 3)))))


def test_batch_sizes():
    assert run(BATCHES)["batch_size"] == 1
