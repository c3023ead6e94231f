"""Matrix operations of StableHLO. LAPACK's routines are met in the tests of `from_jax`."""

import numpy as np
import pytest

from tests.stablehlo.modules import T, agree, floats, main

A = np.eye(3, dtype=np.float32) * 4 + 1


@pytest.mark.parametrize("lower", ["true", "false"])
def test_cholesky(lower: str):
    t = T(3, 3)
    text = main(f"%0 = stablehlo.cholesky %arg0, lower = {lower} : {t}\n return %0 : {t}", [t], [t])
    from nxjax.interop import from_stablehlo

    y = from_stablehlo(text, trusted=True)(A).numpy()
    np.testing.assert_allclose(y @ y.T if lower == "true" else y.T @ y, A, 1e-5)


@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(how: str, left: bool, lower: bool, unit: bool):
    a, b = T(3, 3), T(3, 2) if left else T(2, 3)
    flags = f"left_side = {left}, lower = {lower}, unit_diagonal = {unit}".lower()
    text = main(
        f"""
        %0 = "stablehlo.triangular_solve"(%arg0, %arg1) <{{{flags}, transpose_a = #stablehlo<transpose {how}>}}> :
          ({a}, {b}) -> {b}
        return %0 : {b}""",
        [a, b],
        [b],
    )
    agree(text, floats(3, 3) + 4 * np.eye(3, dtype=np.float32), floats(*((3, 2) if left else (2, 3)), seed=1))
