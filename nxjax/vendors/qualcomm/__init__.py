"""Qualcomm's Hexagon NPU through ONNX Runtime's QNN provider."""
