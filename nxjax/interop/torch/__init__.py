"""PyTorch modules as functions, and functions as callables of tensors."""

from nxjax.interop.torch.autograd import to_torch
from nxjax.interop.torch.function import TorchFunction, from_torch

__all__ = ["TorchFunction", "from_torch", "to_torch"]
