"""The bytes of a ``.tflite`` file back to an `NpuGraph`: the inverse of `tflite`, by the same rows of `tflite_ops`."""

from __future__ import annotations

from nxjax.lower.npu.formats.tflite_file import TFLiteReader, others, parse
from nxjax.lower.npu.formats.tflite_ops import READ
from nxjax.lower.npu.graph import NpuGraph


def read(data: bytes) -> NpuGraph:
    """The graph of a ``.tflite`` file; constants are views of ``data``.

    Padding comes out explicit, attributes that the file keeps in constant tensors as attributes, and the look-up that
    is written for a table as a table: what the graph computes is the same.

    Raises:
        InvalidFileError: the bytes are not such a file, it does not hold together, or it has operators, types or
            quantization that NPU graphs have not. Nothing else is ever raised, whatever the bytes.

    >>> read(b"TFL3?")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    nxjax.errors.InvalidFileError: tflite: the file is not of this format
    """
    return TFLiteReader(parse(data), READ, others(data)).graph()
