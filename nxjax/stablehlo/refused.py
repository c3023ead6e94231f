"""Operations that no pure function of arrays on one device can be, refused with the reason; annotations are dropped."""

from __future__ import annotations

from typing import Any, Final

from nxjax.stablehlo.walk import Operation, Scope, refused, rule

_DEVICES = "it is a step of a program that runs on several devices at once"
_HOST = "it exchanges data with the host while the program runs"
_FIX = "export the function as it runs on one device; nx.jit shards it again"
_WHY: Final[dict[str, tuple[str, str | None]]] = {
    **dict.fromkeys(
        ("collective_broadcast", "cross-replica-sum"), (_DEVICES, _FIX),
    ),
    **dict.fromkeys(("infeed", "outfeed", "recv", "send"), (_HOST, "give and return the data as arrays")),
    **dict.fromkeys(("async_start", "async_done"), ("it belongs to a schedule that a compiler has made", None)),
    **dict.fromkeys(
        ("uniform_quantize", "uniform_dequantize"),
        ("quantized types have no form here", "import the float program and use nx.quantize"),
    ),
}  # fmt: skip


def _refusal(why: str, fix: str | None) -> Any:
    def refuse(_: Scope, op: Operation, *xs: Any) -> Any:
        raise refused(op, why, fix)

    return refuse


for _name, (_why, _fix) in _WHY.items():
    rule(f"stablehlo.{_name}")(_refusal(_why, _fix))
rule("chlo.scan")(_refusal("its body has state that no loop here carries", "export with the loop written out"))
for _name in ("all_gather", "all_reduce", "all_slice", "all_to_all", "collective_permute",
              "reduce_scatter"):  # fmt: skip
    rule(f"sdy.{_name}")(_refusal(_DEVICES, _FIX))


@rule("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")
def _annotation(_: Scope, op: Operation, x: Any) -> Any:
    return x


@rule("sdy.sharding_group")
def _group(_: Scope, op: Operation, *xs: Any) -> Any:
    return ()
