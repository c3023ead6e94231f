"""Copies that need not be made. Filled in below; knows steps and variables, no op."""

from __future__ import annotations

from nxjax.lower.ipu.program import IpuProgram


def in_place(program: IpuProgram) -> IpuProgram:
    """``program`` as it is."""
    return program
