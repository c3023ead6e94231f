"""ONNX models as functions."""

from nxjax.interop.onnx.function import OnnxFunction, from_onnx

__all__ = ["OnnxFunction", "from_onnx"]
