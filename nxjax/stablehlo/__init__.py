"""StableHLO programs as nxjax functions: `from_stablehlo`."""

from nxjax.stablehlo.function import StablehloFunction, from_stablehlo

__all__ = ["StablehloFunction", "from_stablehlo"]
