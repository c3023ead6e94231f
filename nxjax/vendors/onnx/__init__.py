"""ONNX files for any vendor, and models of ONNX Runtime GenAI."""
