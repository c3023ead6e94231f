"""TFLite models as functions."""

from nxjax.interop.tflite.function import TFLiteFunction, from_tflite

__all__ = ["TFLiteFunction", "from_tflite"]
