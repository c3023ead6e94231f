"""The programs that the IPU guide promises, each as a user would write it; without IPUs a model of them runs."""

import textwrap

import numpy as np
import pytest

import nxjax as nx
from nxjax.hardware.graphcore import is_ipu_available
from nxjax.nn import Linear, ReLU, Sequential

MANAGER = """
    from nxjax.hardware.graphcore import GraphCoreManager

    # Create an IPU manager
    ipu_manager = GraphCoreManager(
        num_ipus=2,                  # Number of IPUs to use
        precision="float16",         # Precision to use
        memory_proportion=0.6,       # Proportion of IPU memory to use for model
        enable_half_partials=True,   # Use half-precision for partial results
        compile_only=False           # Whether to compile without executing
    )

    # Initialize the IPU environment
    ipu_manager.initialize()

    # Get information about available IPUs
    ipu_info = ipu_manager.get_ipu_info()
    print(f"IPU information: {ipu_info}")

    # Compile a model for IPU execution
    compiled_model = ipu_manager.compile_model(model, example_inputs)

    # Execute the model on IPU
    outputs = ipu_manager.execute_model(compiled_model, inputs)

    # Clean up
    ipu_manager.finalize()
"""

GLOBAL = """
    from nxjax.hardware.graphcore import get_graphcore_manager

    # Get the global GraphCore IPU manager
    ipu_manager = get_graphcore_manager()

    # Get the number of available IPUs
    ipu_count = ipu_manager.get_ipu_count()
    print(f"Available IPUs: {ipu_count}")

    # Optimize a model for IPU execution
    optimized_model = ipu_manager.optimize_model(model, example_inputs)

    # Execute the optimized model
    outputs = ipu_manager.execute_model(optimized_model, inputs)
"""

CONTEXT = """
    from nxjax.hardware.graphcore import GraphCoreManager

    # Use the IPU manager as a context manager
    with GraphCoreManager(num_ipus=4, precision="float16") as ipu:
        # The IPU environment is automatically initialized

        # Compile and execute a model
        compiled_model = ipu.compile_model(model, example_inputs)
        outputs = ipu.execute_model(compiled_model, inputs)

        # The IPU environment is automatically finalized when exiting the context
"""

OPTIMIZE = """
    from nxjax.hardware.graphcore import GraphCoreManager

    # Create an IPU manager with optimization settings
    ipu_manager = GraphCoreManager(
        num_ipus=2,
        precision="float16",         # Use half precision for better performance
        memory_proportion=0.6,       # Balance between available memory and recomputation
        enable_half_partials=True    # Use half-precision for partial results
    )

    # Optimize the model for IPU execution
    optimized_model = ipu_manager.optimize_model(model, example_inputs)
"""

SEVERAL = """
    from nxjax.hardware.graphcore import GraphCoreManager

    # Create a multi-IPU manager
    ipu_manager = GraphCoreManager(
        num_ipus=4,                  # Use 4 IPUs
        precision="float16",
        memory_proportion=0.6
    )

    # The model will automatically be distributed across the IPUs
    compiled_model = ipu_manager.compile_model(model, example_inputs)
"""

BATCHES = """
    # Find the optimal batch size for your model and IPU configuration
    for batch_size in batch_sizes:
        try:
            # Create example inputs with this batch size
            example_inputs = create_example_inputs(batch_size)

            # Try to compile the model with this batch size
            compiled_model = ipu_manager.compile_model(model, example_inputs)

            print(f"Successfully compiled with batch size {batch_size}")
            break
        except Exception as e:
            print(f"Failed with batch size {batch_size}: {e}")
"""

KEY = nx.random.key(0)
MODEL = Sequential(Linear(12, 20, key=KEY), ReLU(), Linear(20, 5, key=KEY))
X = np.random.default_rng(0).standard_normal((8, 12)).astype(np.float32)


def run(program, **names):
    """Run a program as a file of its own; gives its names."""
    namespace = {"__name__": "__main__", "model": MODEL, "example_inputs": X, "inputs": X, **names}
    exec(compile(textwrap.dedent(program), "program.py", "exec"), namespace)
    return namespace


def close(outputs, tolerance):
    np.testing.assert_allclose(np.asarray(outputs, np.float32), MODEL(X), rtol=tolerance, atol=tolerance)


def test_the_manager(capsys):
    names = run(MANAGER)
    close(names["outputs"], 0.02)
    assert names["compiled_model"].execution == "replicated" and names["compiled_model"].ipus == 2
    assert "'precision': 'float16'" in capsys.readouterr().out
    assert not names["ipu_manager"].is_initialized


@pytest.mark.skipif(is_ipu_available(), reason="this machine has IPUs")
def test_without_ipus_results_are_a_models():
    names = run(MANAGER)
    info = names["ipu_info"]
    assert info["label"] == "own-model" and info["hardware_ipus"] == 0 and info["hardware"]
    assert names["compiled_model"].label == "own-model"


def test_the_global_manager(capsys):
    names = run(GLOBAL)
    assert "Available IPUs: 1" in capsys.readouterr().out
    close(names["outputs"], 1e-5)
    assert "memory_proportion" in str(names["optimized_model"])


def test_the_context_manager():
    names = run(CONTEXT)
    close(names["outputs"], 0.02)
    assert names["compiled_model"].ipus == 4 and not names["ipu"].is_initialized


def test_several_ipus():
    compiled = run(SEVERAL)["compiled_model"]
    assert compiled.ipus == 4
    close(compiled(X), 0.02)


def test_optimization_settings():
    close(run(OPTIMIZE)["optimized_model"](X), 0.02)


def test_batch_sizes(capsys):
    create = lambda n: np.zeros((n, 12), np.float32)
    manager = run(GLOBAL)["ipu_manager"]
    run(BATCHES, ipu_manager=manager, batch_sizes=[16, 32], create_example_inputs=create)
    assert "Successfully compiled with batch size 16" in capsys.readouterr().out
