"""Batch normalization."""

from tests.stablehlo.modules import T, agree, floats, main, ops_of

X, V = T(4, 3, 2), T(3)


def norm(name: str, operands: int, results: list[str]) -> str:
    ins = [X, *[V] * (operands - 1)] if name != "grad" else [X, V, V, V, X]
    args = ", ".join(f"%arg{i}" for i in range(operands))
    many = f":{len(results)}" if len(results) > 1 else ""
    outs = ", ".join(f"%0#{i}" for i in range(len(results))) if many else "%0"
    return main(
        f"""
        %0{many} = "stablehlo.batch_norm_{name}"({args}) <{{epsilon = 0.01 : f32, feature_index = 1 : i64}}> :
          ({", ".join(ins)}) -> ({", ".join(results)})
        return {outs} : {", ".join(results)}""",
        ins,
        results,
    )


def test_training():
    agree(norm("training", 3, [X, V, V]), floats(4, 3, 2), floats(3), floats(3, seed=1), tolerance=1e-4)


def test_inference_is_the_composite():
    args = floats(4, 3, 2), floats(3), floats(3, seed=1), floats(3, seed=2), abs(floats(3, seed=3))
    assert ops_of(agree(norm("inference", 5, [X]), *args, tolerance=1e-4)) == ["batch_norm_inference"]


def test_gradient():
    args = floats(4, 3, 2), floats(3), floats(3, seed=1), abs(floats(3, seed=3)), floats(4, 3, 2, seed=4)
    agree(norm("grad", 5, [X, V, V]), *args, tolerance=1e-3)
