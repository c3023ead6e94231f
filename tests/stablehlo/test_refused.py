"""What cannot be imported says its name, its place and why."""

import pytest

from nxjax.errors import DtypeError, LoweringError
from nxjax.interop import from_stablehlo
from tests.stablehlo.modules import T, floats, main


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%0 = stablehlo.replica_id : tensor<ui32>\n return %0 : tensor<ui32>", "several devices"),
        (
            '%t = stablehlo.create_token : !stablehlo.token\n %0, %1 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> '
            "(tensor<ui32>, !stablehlo.token)\n return %0 : tensor<ui32>",
            "exchanges data with the host",
        ),
        (
            '%0 = stablehlo.custom_call @mystery() : () -> tensor<ui32> loc("here/there")\n return %0 : tensor<ui32>',
            "'mystery'",
        ),
        (
            "%0 = stablehlo.custom_call @xla_ffi_python_cpu_callback() : () -> tensor<ui32>\n return %0 : tensor<ui32>",
            "Python function",
        ),
    ],
)
def test_reasons(text: str, why: str):
    with pytest.raises(LoweringError, match=why) as caught:
        from_stablehlo(main(text, [], ["tensor<ui32>"]), trusted=True)
    assert "stablehlo." in str(caught.value)


def test_the_place_is_named():
    text = '%0 = stablehlo.custom_call @mystery() : () -> tensor<ui32> loc("here/there")\n return %0 : tensor<ui32>'
    with pytest.raises(LoweringError, match="here/there"):
        from_stablehlo(main(text, [], ["tensor<ui32>"]), trusted=True)


def test_quantized_types_are_refused():
    t = "tensor<3x!quant.uniform<i8:f32, 0.5:1>>"
    with pytest.raises((DtypeError, LoweringError, ValueError)):
        from_stablehlo(main(f"return %arg0 : {t}", [t], [t]), trusted=True)


def test_sharding_annotations_are_dropped():
    t = T(4)
    text = f"""
    module {{
      sdy.mesh @mesh = <["x"=2]>
      func.func public @main(%a: {t} {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}]>}}) -> {t} {{
        %0 = sdy.sharding_constraint %a <@mesh, [{{"x"}}]> : {t}
        %1 = stablehlo.custom_call @Sharding(%0) {{mhlo.sharding = "{{replicated}}"}} : ({t}) -> {t}
        %2 = stablehlo.add %1, %1 : {t}
        return %2 : {t}
      }}
    }}"""
    x = floats(4)
    assert from_stablehlo(text, trusted=True)(x).tolist() == (2 * x).tolist()


def test_a_remainder_of_complex_numbers_has_no_meaning():
    text = "%0 = stablehlo.remainder %arg0, %arg0 : tensor<2xcomplex<f32>>\n return %0 : tensor<2xcomplex<f32>>"
    kind = "tensor<2xcomplex<f32>>"
    with pytest.raises(LoweringError, match="complex numbers"):
        from_stablehlo(main(text, [kind], [kind]), trusted=True)
