"""StableHLO modules as others read them: verified, without CHLO, as text or as a versioned portable artifact.

Knows jaxlib's MLIR bindings, no op and no executor.
"""

from __future__ import annotations

from typing import Any, Final

from nxjax.backends.xla.executable import parse
from nxjax.errors import LoweringError, ParameterError

# How MLIR's bytecode begins.
BYTECODE: Final = b"ML\xefR"


def legalized(text: str) -> Any:
    """The module of ``text``, verified, with CHLO's functions (erf, lgamma, ...) written out in StableHLO.

    Raises:
        LoweringError: it is no valid module.
    """
    from jaxlib.mlir import ir, passmanager  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import stablehlo  # type: ignore[import-not-found]

    stablehlo.register_stablehlo_passes()
    try:
        module = parse(text)
        with module.context:
            passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        module.operation.verify()
    except ir.MLIRError as error:
        raise LoweringError("stablehlo: the verifier refused the module", got=str(error)[:2000]) from None
    return module


def serialized(module: Any, version: str | None = None) -> tuple[bytes, str]:
    """The portable artifact (VHLO bytecode) of a module and its version; by default what tools 12 weeks old can read.

    Raises:
        ParameterError: a version that cannot be written, or in which the module has no form.
    """
    from jaxlib import _jax  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import stablehlo  # type: ignore[import-not-found]

    jax: Any = _jax
    if version is None:
        weeks = stablehlo.StablehloCompatibilityRequirement.WEEK_12
        version = str(stablehlo.get_version_from_compatibility_requirement(weeks))
    newest, oldest = stablehlo.get_current_version(), stablehlo.get_minimum_version()
    try:
        # jaxlib takes others for the nearest one that it knows.
        if not _numbers(oldest) <= _numbers(version) <= _numbers(newest):
            raise ValueError("no such version")
        # Shardy's operations have no portable form and go into the file as they are.
        sharded = any(op.operation.name == "sdy.mesh" for op in module.body)
        with module.context:
            data: bytes = jax.mlir.serialize_portable_artifact(module, version, sharded)
    except Exception as error:  # of several classes, none of them promised
        raise ParameterError(
            "stablehlo: not a portable artifact of this version",
            got=f"version={version!r}: {str(error)[:500]}",
            expected=f"{oldest} to {newest}, and a version that has every operation",
        ) from None
    return data, version


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def deserialized(data: bytes) -> str:
    """The text of a portable artifact.

    Raises:
        LoweringError: it is none.
    """
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import stablehlo  # type: ignore[import-not-found]

    if not data.startswith(BYTECODE):
        raise LoweringError("stablehlo: not a portable artifact", got=f"bytes that begin with {data[:8]!r}")
    try:
        with ir.Context() as context:
            stablehlo.register_dialect(context)
            return str(stablehlo.deserialize_portable_artifact(context, data))
    except (ValueError, ir.MLIRError) as error:
        raise LoweringError("stablehlo: not a portable artifact", got=str(error)[:500]) from None
