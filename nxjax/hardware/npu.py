"""`nxjax.hardware.npu`: NPUs as one backend object, whichever vendor made them."""

from __future__ import annotations

from nxjax.hardware import chips


def is_npu_available() -> bool:
    """Whether this machine has an NPU that nxjax can run on. `npu_unavailable_reason` says why not.

    >>> is_npu_available() == (npu_unavailable_reason() == "")
    True
    """
    return not chips.why_none()


def npu_unavailable_reason() -> str:
    """Why `is_npu_available` is False; empty where it is True."""
    return chips.why_none()
