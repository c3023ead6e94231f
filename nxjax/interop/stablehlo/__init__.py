"""StableHLO programs as nxjax functions: `from_stablehlo`."""

from nxjax.interop.stablehlo.function import StablehloFunction, from_stablehlo

__all__ = ["StablehloFunction", "from_stablehlo"]
