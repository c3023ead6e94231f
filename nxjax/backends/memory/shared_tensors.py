"""Vendors' tensors over memory that is somebody else's: they read and write it where it lies.

Each maker takes a writable NumPy view in one piece, whose memory the tensor keeps alive, and gives a tensor with the
same pointer; a vendor that would copy instead is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax.backends.extras import need
from nxjax.errors import ParameterError
from nxjax.ops.base import NDArray

# LiteRT takes the host's memory at this alignment, and copies any other.
_LITERT: Final = 64


def _no_copy(what: str, pointer: int, view: NDArray) -> None:
    if pointer != view.ctypes.data:
        raise ParameterError(
            f"{what}: made a copy of the memory", got=f"{pointer:#x}", expected=f"{view.ctypes.data:#x}"
        )


def openvino(view: NDArray) -> Any:
    """An `openvino.Tensor`, for ``request.set_input_tensor`` and ``set_output_tensor``."""
    ov = need("openvino", "openvino", "an OpenVINO tensor")
    made = ov.Tensor(view, shared_memory=True)
    _no_copy("openvino", made.data.ctypes.data, view)
    return made


def onnxruntime(view: NDArray) -> Any:
    """An ``OrtValue`` on the CPU, for ``io_binding.bind_ortvalue_input`` and ``bind_ortvalue_output``."""
    ort = need("onnxruntime", "onnx", "an ONNX Runtime value")
    made = ort.OrtValue.ortvalue_from_numpy(view)
    _no_copy("onnxruntime", made.data_ptr(), view)
    return made


def litert(view: NDArray) -> Any:
    """A LiteRT ``TensorBuffer``, for a compiled model's inputs and outputs. LiteRT sees one dimension of elements."""
    module = need("ai_edge_litert.tensor_buffer", "litert", "a LiteRT tensor buffer")
    if view.ctypes.data % _LITERT:
        raise ParameterError("litert: memory is taken at multiples of 64 bytes", got=f"{view.ctypes.data:#x}")
    try:
        return module.TensorBuffer.create_from_host_memory(view)
    except ValueError as error:
        raise ParameterError("litert: cannot use this memory without a copy", got=str(error)) from None


MAKERS: Final[dict[str, Callable[[NDArray], Any]]] = {
    "openvino": openvino,
    "onnxruntime": onnxruntime,
    "litert": litert,
}
