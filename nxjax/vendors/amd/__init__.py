"""AMD's XDNA NPU: ONNX for Vitis AI, XRT, and designs for its array of tiles."""
