"""`nxjax.hardware.aie`: a matrix product for AMD's array by itself, which `nxjax.vendors.amd.aie` makes."""

from nxjax.vendors.amd.aie.product import MatmulDesign, matmul

__all__ = ["MatmulDesign", "matmul"]
