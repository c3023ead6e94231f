"""IPU programs in the forms that other tools read: a Poplar C++ project, an ONNX file for PopART."""
