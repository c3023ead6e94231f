"""Compilations by libtpu in a process of its own, run as a script.

The compiler is C++ that ends the process on some programs, writes pages to the error stream, and may be loaded once in
a process. Knows jaxlib's and libtpu's interface alone and imports nothing of nxjax. The folder that the request lies in
is given as the argument; what the compiler makes goes there: per module its answer, its text and its executable.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Answer ``request.json``; leave ``answer.json``."""
    place = Path(folder)
    request: dict[str, Any] = json.loads((place / "request.json").read_text())
    sys.path[:0] = request["path"]
    from jaxlib import xla_client  # type: ignore[import-not-found]

    client: Any = xla_client
    client.load_pjrt_plugin_dynamically("tpu", request["library"])
    client.initialize_pjrt_plugin("tpu")
    answer: dict[str, Any] = {"modules": []}
    try:
        topology = client.make_tfrt_tpu_c_api_device_topology(request["topology"])
        devices: Any = topology._make_compile_only_devices()
    except Exception as error:
        answer["error"] = str(error)
    else:
        answer["version"] = topology.platform_version
        answer["devices"] = [described(d) for d in devices] if request["describe"] else len(devices)
        for name in request["modules"]:
            answer["modules"].append(compiled(place, name, request, devices))
    (place / "answer.json").write_text(json.dumps(answer))


# Options that hand collectives to the sparse cores of a chip, on by default on some.
OFFLOADS = tuple(
    f"xla_tpu_enable_sparse_core_collective_offload_{name}" for name in ("all_gather", "all_reduce", "reduce_scatter")
)


def described(device: Any) -> dict[str, Any]:
    """What a device of a topology says of itself."""
    return {
        "id": device.id,
        "kind": device.device_kind,
        "coords": list(device.coords),
        "core": device.core_on_chip,
        "process": device.process_index,
    }


def compiled(place: Path, name: str, request: dict[str, Any], devices: Any) -> dict[str, Any]:
    """Compile one module; its text and its executable go into files beside it."""
    from jaxlib import _jax, xla_client  # type: ignore[import-not-found]

    client: Any = xla_client
    ids: list[int] = request["devices"]
    chosen = [d for i in ids for d in devices if d.id == i] if ids else [devices[0]]
    options: Any = client.CompileOptions()
    if len(chosen) > 1:
        import numpy as np

        options.num_replicas, options.num_partitions = 1, len(chosen)
        options.device_assignment = client.DeviceAssignment.create(np.array([[d.id for d in chosen]], np.int32))
        build: Any = options.executable_build_options
        build.use_spmd_partitioning = True
        build.use_shardy_partitioner = True
        build.allow_spmd_sharding_propagation_to_output = [True]
    options.env_option_overrides = [(k, v) for k, v in request["options"].items()]
    begin = time.perf_counter()
    try:
        module = parsed((place / name).read_text())
        made: Any = chosen[0].client.compile(module, _jax.DeviceList(tuple(chosen)), options)
    except Exception as error:
        return {"error": str(error)}
    aside: list[str] = []
    try:
        modules: Any = made.hlo_modules()
    except Exception:
        # Collectives that are handed to sparse cores stand in the answer as instructions that jaxlib does not read.
        aside = [*OFFLOADS]
        options.env_option_overrides += [(k, False) for k in OFFLOADS if k not in request["options"]]
        made = chosen[0].client.compile(module, _jax.DeviceList(tuple(chosen)), options)
        modules = made.hlo_modules()
    seconds = time.perf_counter() - begin
    stats: Any = made.get_compiled_memory_stats()
    hlo = "\n".join(m.to_string() for m in modules)
    (place / f"{name}.hlo").write_text(hlo)
    (place / f"{name}.bin").write_bytes(made.serialize())
    cost: Any = made.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    return {
        "seconds": seconds,
        "switched_off": aside,
        "cost": {k: v for k, v in dict(cost).items() if isinstance(v, (int, float))},
        "memory": {
            k: getattr(stats, f"{k}_in_bytes")
            for k in ("argument_size", "output_size", "temp_size", "alias_size", "generated_code_size", "peak_memory")
        },
    }


def parsed(text: str) -> Any:
    """The text as a module object."""
    from jaxlib.mlir import ir  # type: ignore[import-not-found]
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext  # type: ignore[import-not-found]
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo  # type: ignore[import-not-found]

    context: Any = ir.Context()
    dialects: Any = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(dialects)
    context.append_dialect_registry(dialects)
    context.load_all_available_dialects()
    for dialect in (chlo, stablehlo, sdy):
        dialect.register_dialect(context)
    return ir.Module.parse(text, context)


if __name__ == "__main__":
    main(sys.argv[1])
