"""Intel's NPU, and its CPU and GPU, through OpenVINO."""
