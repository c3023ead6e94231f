"""Random bits are XLA's."""

import numpy as np
import pytest

from nxjax.errors import LoweringError
from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, agree, main


def drawn(algorithm: str, words: int, *shape: int, e: str) -> str:
    state = f"tensor<{words}xui64>"
    return main(
        f"""
        %0:2 = "stablehlo.rng_bit_generator"(%arg0) <{{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}}> :
          ({state}) -> ({state}, {T(*shape, e=e)})
        return %0#0, %0#1 : {state}, {T(*shape, e=e)}""",
        [state],
        [state, T(*shape, e=e)],
    )


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX", "DEFAULT"])
@pytest.mark.parametrize("e", ["ui8", "ui16", "ui32", "ui64"])
def test_dtypes(algorithm: str, e: str):
    state = np.array([2**63 + 12345, 2**64 - 3], np.uint64)
    agree(drawn(algorithm, 2, 3, 5, e=e), state)


@pytest.mark.parametrize("algorithm", ["THREE_FRY", "PHILOX"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 3), (3, 4, 5), (5, 7)])
def test_shapes(algorithm: str, shape: tuple[int, ...]):
    agree(drawn(algorithm, 2, *shape, e="ui32"), np.array([1, 2], np.uint64))


def test_a_wide_counter_carries():
    agree(drawn("PHILOX", 3, 3, 5, e="ui32"), np.array([5, 2**64 - 2, 7], np.uint64))


def test_a_hidden_state_needs_a_seed():
    text = main(
        f"""
        %a = stablehlo.constant dense<2.0> : tensor<f32>
        %b = stablehlo.constant dense<3.0> : tensor<f32>
        %s = stablehlo.constant dense<[1000]> : tensor<1xi64>
        %0 = stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> {T(1000)}
        %1 = stablehlo.rng %a, %b, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> {T(1000)}
        return %0, %1 : {T(1000)}, {T(1000)}""",
        [],
        [T(1000), T(1000)],
    )
    with pytest.raises(LoweringError, match="hidden state"):
        from_stablehlo(text, trusted=True)
    f = from_stablehlo(text, trusted=True, seed=3)
    uniform, normal = f()
    assert float(uniform.min()) >= 2 and float(uniform.max()) < 3 and abs(float(uniform.mean()) - 2.5) < 0.05
    assert abs(float(normal.mean()) - 2) < 0.5 and abs(float(normal.std()) - 3) < 0.3
    assert f()[0].tolist() == uniform.tolist()
    assert from_stablehlo(text, trusted=True, seed=4)()[0].tolist() != uniform.tolist()
