"""The imported function: forms of modules, arguments, errors, and that it is a function like any other."""

import contextlib
import io
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, InvalidFileError, NxError, ParameterError, ProgramError, ShapeError
from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, floats, main


def model(x, w):
    return jnp.tanh(x @ w).sum(0), jnp.sort(x, axis=0) * (1 + 2j)


ARGS = floats(5, 3), floats(3, 2, seed=1)
LOWERED = jax.jit(model).lower(*ARGS)


def forms() -> dict[str, bytes | str]:
    bytecode = io.BytesIO()
    LOWERED.compiler_ir("stablehlo").operation.write_bytecode(bytecode)
    generic = LOWERED.compiler_ir("stablehlo").operation.get_asm(print_generic_op_form=True)
    artifact = jax.export.export(jax.jit(model))(*ARGS).mlir_module_serialized
    text = LOWERED.as_text(debug_info=True)
    return {"text": text, "generic": generic, "bytecode": bytecode.getvalue(), "artifact": artifact}


FORMS = forms()


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str, trusted: bool):
    f = from_stablehlo(FORMS[form], trusted=trusted)
    for y, z in zip(f(*ARGS), model(*ARGS), strict=True):
        np.testing.assert_allclose(y, z, 1e-5, 1e-6)
    if form != "generic":
        assert f.arg_names == ("x", "w")


def test_transforms_work_on_it():
    f = from_stablehlo(FORMS["text"], trusted=True)
    x, w = map(nx.array, ARGS)
    np.testing.assert_allclose(nx.jit(f)(x, w)[0], model(*ARGS)[0], 1e-5)
    ours = nx.grad(lambda w: f(x, w)[0].sum())(w)
    theirs = jax.grad(lambda w: model(ARGS[0], w)[0].sum())(ARGS[1])
    np.testing.assert_allclose(ours, theirs, 1e-5)
    xs = nx.array(floats(4, 5, 3))
    np.testing.assert_allclose(
        nx.vmap(f, in_axes=(0, None))(xs, w)[0], jax.vmap(model, (0, None))(xs.numpy(), ARGS[1])[0], 1e-5
    )
    tangents = nx.jvp(lambda w: f(x, w)[0], (w,), (nx.ones_like(w),))[1]
    np.testing.assert_allclose(
        tangents, jax.jvp(lambda w: model(ARGS[0], w)[0], (ARGS[1],), (np.ones_like(ARGS[1]),))[1], 1e-5
    )


def test_scopes_come_with_it():
    def scoped(x):
        with jax.named_scope("block"):
            return jnp.sin(x)

    f = from_stablehlo(jax.jit(scoped).lower(ARGS[0]).as_text(debug_info=True), trusted=True)
    assert f.program.equations[0].scope == "block"


def test_arguments_are_checked():
    f = from_stablehlo(FORMS["text"], trusted=True)
    x, w = ARGS
    with pytest.raises(ParameterError, match="number of arguments"):
        f(x)
    with pytest.raises(ShapeError, match="x has another shape"):
        f(x[:2], w)
    with pytest.raises(DtypeError, match="w has another dtype"):
        f(x, w.astype(np.float16))
    assert repr(f) == "jit_model(x: f32[5,3], w: f32[3,2]) -> f32[2], c64[5,3]"


def test_wide_types_stay_wide():
    t = T(e="i64")
    f = from_stablehlo(main(f"%0 = stablehlo.add %arg0, %arg0 : {t}\n return %0 : {t}", [t], [t]), trusted=True)
    assert f(2**40).dtype == np.int64 and int(f(2**40)) == 2**41 and int(f(np.int64(2**40))) == 2**41


def test_another_function_may_be_asked_for():
    text = f"""
    module {{
      func.func public @main(%x: {T()}) -> {T()} {{
        return %x : {T()}
      }}
      func.func public @other(%x: {T()}) -> {T()} {{
        %0 = stablehlo.negate %x : {T()}
        return %0 : {T()}
      }}
    }}"""
    assert float(from_stablehlo(text, trusted=True, function="other")(2.0)) == -2
    with pytest.raises(ProgramError, match="main, other"):
        from_stablehlo(text, trusted=True, function="none")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"ML\xefR", "(" * 50_000, b"ML\xefR" + b"\xff" * 500, "hello"])
def test_what_is_no_module(data: bytes | str):
    with pytest.raises(InvalidFileError):
        from_stablehlo(data)
    with pytest.raises(ParameterError):
        from_stablehlo(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("form", ["bytecode", "artifact", "text"])
@pytest.mark.parametrize("seed", [5, 32, 1013, 2099])
def test_damaged_bytes_give_errors_and_end_nothing(form: str, seed: int):
    rng, given = random.Random(seed), FORMS[form]
    data = bytearray(given if isinstance(given, bytes) else given.encode())
    for _ in range(rng.choice([1, 2, 5, 20])):
        i = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[i] = rng.randrange(256)
            case 1:
                del data[i : i + rng.randrange(1, 20)]
            case _:
                data[i:i] = rng.randbytes(rng.randrange(1, 10))
    with contextlib.suppress(NxError):
        from_stablehlo(bytes(data))
