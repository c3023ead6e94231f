"""`from_torch`: a module of PyTorch as a function of its parameters and of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.files import safe_io
from nxjax.interop.graphs.function import ImportedFunction
from nxjax.interop.graphs.values import NeedsValue, ValueInfo
from nxjax.interop.torch import rules
from nxjax.interop.torch.archive import read_program
from nxjax.interop.torch.exported import array_of, is_tensor, package, program_of, tensor_of
from nxjax.interop.torch.graph import BUFFER, PARAMETER, USER, FileBytes, NodeRef, TorchProgram, evaluated
from nxjax.interop.torch.save import write_program, write_safetensors, write_state
from nxjax.interop.torch.walk import RULES, TorchWalker
from nxjax.runtime import enable_x64
from nxjax.trace.array import DeviceArray, wrap
from nxjax.trace.boundary import api_boundary

_WRITERS: Final = {".pt": write_state, ".pth": write_state, ".safetensors": write_safetensors}
assert rules.__all__  # the rules are registered by being imported


@final
class TorchFunction(ImportedFunction):
    """A module of PyTorch as a function: ``y = f(params, x)``.

    Attributes:
        params: the parameters by their names in the module; give them as the first argument, these or others.
        state: the buffers that the module writes, such as running means, by their names; None: it writes none. If
            there are any, the function is called as ``state, y = f(params, state, x)``.
        inputs: name, dtype and dimensions of each array among the further arguments, in order.
        outputs: the same of the results.

    >>> import torch
    >>> f = nx.interop.from_torch(torch.nn.BatchNorm1d(2), (torch.zeros(3, 2),))
    >>> isinstance(f, TorchFunction), list(f.params), list(f.state)
    (True, ['weight', 'bias'], ['running_mean', 'running_var', 'num_batches_tracked'])
    >>> state, y = f(f.params, f.state, jnp.ones((3, 2)))
    >>> [round(v, 6) for v in state["running_mean"].tolist()], y.shape
    ([0.1, 0.1], (3, 2))
    """

    def __init__(self, program: TorchProgram, shapes: Mapping[str, Any], closed: bool) -> None:
        self._program = program
        written = {name for kind, name in program.written if kind == "BUFFER_MUTATION"}
        by_kind = lambda kind: {k: program.arrays[k] for kind_, k in program.kinds if kind_ == kind}
        self.params = by_kind(PARAMETER)
        buffers = by_kind(BUFFER)
        # Copies: the module writes to its own.
        self.state = {k: wrap(v.numpy().copy()) for k, v in buffers.items() if k in written} or None
        ports = [p for p in program.ports if isinstance(p, ValueInfo)]
        known = {p.name for p in ports} | {d for p in ports for d in p.dims or () if isinstance(d, str)}
        for k in shapes:
            if k not in known:
                raise ParameterError(
                    "from_torch: no input or size of this name", got=k, expected=", ".join(sorted(known))
                )
        self.inputs = tuple(
            ValueInfo(p.name, p.dtype, tuple(shapes[p.name]), p.is_array) if p.name in shapes else p for p in ports
        )
        self.outputs = program.outputs
        sizes = {k: v for k, v in shapes.items() if isinstance(v, int)}
        super().__init__("PyTorch", program.name, sizes, closed)

    @api_boundary
    def __call__(self, *args: Any, key: Any = None, **named: Any) -> Any:
        """The result in the containers of the module; before it the new state, if there is any."""
        rest = list(args)
        params = self.params if self._closed else self._tree(rest, "parameters", self.params)
        state = None if self.state is None else self._tree(rest, "state", self.state)
        xs = self._values(rest, named)
        with enable_x64():
            if self._by_value:
                _, made = self._walk(*self._fitted(params, state), key, *xs)
            else:
                try:
                    _, made = self._compiled(params, state, key, *xs)
                except NeedsValue:
                    if any(not isinstance(x, DeviceArray) for x in xs):
                        raise
                    # Elements decide shapes here: op by op from now on.
                    self._by_value = True
                    _, made = self._walk(*self._fitted(params, state), key, *xs)
        return self._result(made)

    def _leaf(self, x: Any) -> Any:
        return array_of(x) if is_tensor(x) else x

    def __getstate__(self) -> dict[str, Any]:
        # What writes a program needs the module, or the file.
        held = FileBytes(np.frombuffer(self._program.file(), np.uint8))
        return {**super().__getstate__(), "_program": replace(self._program, file=held)}

    def _result(self, made: Sequence[Any]) -> Any:
        program, given = self._program, iter(made)
        whole = [next(given) if isinstance(o, NodeRef) else o for o in program.graph.outputs]
        written = dict(zip(program.written, whole, strict=False))
        # A size is a number, also where a compiled call gave it as an array.
        leaves = [
            y.item() if isinstance(y, DeviceArray) and not (p.is_array or y.ndim) else y
            for y, p in zip(whole[len(written) :], program.outputs, strict=True)
        ]
        y = program.results.built(leaves)
        state = {k: v for (kind, k), v in written.items() if kind == "BUFFER_MUTATION"}
        inputs = {k: v for (kind, k), v in written.items() if kind != "BUFFER_MUTATION"}
        parts = [*([state] if state else []), y, *([inputs] if inputs else [])]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _walk(
        self, params: Mapping[str, Any], state: Mapping[str, Any] | None, *xs: Any
    ) -> tuple[dict[str, Any] | None, tuple[Any, ...]]:
        key, *arrays = xs
        program, given, ports, held = self._program, iter(arrays), iter(self._program.ports), state or {}
        every: list[Any] = []
        for kind, name in program.kinds:
            if kind == USER:
                port = next(ports)
                every.append(next(given) if isinstance(port, ValueInfo) else port)
            elif kind == PARAMETER:
                every.append(params[name])
            else:
                every.append(held[name] if name in held else program.arrays[name])
        made = TorchWalker(key).run(program.graph, every)
        return None, tuple(y for y, o in zip(made, program.graph.outputs, strict=True) if isinstance(o, NodeRef))

    def _values(self, args: list[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays among the arguments, in order; what was a Python value has to be the same again."""
        program = self._program
        leaves = self._leaves(args, named)
        sizes, found, ports = dict(self._sizes), [], iter(self.inputs)
        for port, x in zip(program.ports, leaves, strict=True):
            if isinstance(port, ValueInfo):
                port = next(ports)
                if not port.is_array and isinstance(x, (int, float)):
                    found.append(x)
                    continue
                x = array_of(x) if is_tensor(x) else x
                try:
                    found.append(self._value(port, x, sizes))
                except ShapeError as e:
                    fix = "give dynamic_shapes= to from_torch for sizes that vary"
                    raise ShapeError(e.what, got=e.got, expected=e.expected, fix=fix) from None
            elif type(x) is not type(port) or x != port:
                raise ParameterError(
                    f"{self.__name__}: a Python value is part of what was exported",
                    got=repr(x),
                    expected=repr(port),
                    fix="export the module again with this value, or make it an array",
                )
        for k, n in sizes.items():
            if evaluated(k, sizes) not in (n, None):
                raise ShapeError(f"{self.__name__}: size {k}", got=n, expected=f"{evaluated(k, sizes)} by the others")
            low, high = program.ranges.get(k, (0, float("inf")))
            if not low <= n <= high:
                raise ShapeError(f"{self.__name__}: size {k}", got=n, expected=f"{low:g} to {high:g}, as exported")
        return found

    @api_boundary
    def save(
        self, path: str | Path, params: Mapping[str, Any] | None = None, state: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model to a file again, with other parameters and buffers, under the module's names.

        Args:
            path: ``.pt2``: the program, as `torch.export.save` writes it. ``.pt`` or ``.pth``: the state dict, as
                ``torch.save(module.state_dict(), path)`` writes it. ``.safetensors``: the same tensors. PyTorch is
                needed for none of them, but for the program of a module that did not come from a file.
            params, state: as in a call; by default ``f.params`` and ``f.state``.

        Raises:
            ParameterError: other parameters than the module's, or another kind of file.
            ShapeError, DtypeError: one has another shape, or no elements of the same kind.
            OSError: the file cannot be written.

        >>> import tempfile, torch
        >>> f = nx.interop.from_torch(torch.nn.Linear(2, 1), (torch.ones(3, 2),))
        >>> path = tempfile.mkdtemp() + "/doubled.pt2"
        >>> f.save(path, {k: 2 * v for k, v in f.params.items()})
        >>> bool((nx.interop.from_torch(path).params["bias"] == 2 * f.params["bias"]).all())
        True
        """
        kind = Path(path).suffix
        if kind not in _WRITERS and kind != ".pt2":
            expected = ", ".join([".pt2", *_WRITERS])
            raise ParameterError(f"{self.__name__}: save writes no such files", got=kind or path, expected=expected)
        changed = self._written(params, state)
        if kind == ".pt2":
            program = self._program
            every = {k: changed[own] for k, own in program.saved.items() if own in changed}
            data = program.file()
            with safe_io.replacing(path) as file:
                write_program(file, data, {**changed, **every})
        else:
            tensors = self._saved(changed)
            with safe_io.replacing(path) as file:
                _WRITERS[kind](file, tensors)

    @api_boundary
    def state_dict(
        self, params: Mapping[str, Any] | None = None, state: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Parameters and buffers as tensors under the module's names, for ``module.load_state_dict``.

        Args:
            params, state: as in a call; by default ``f.params`` and ``f.state``.

        Raises:
            MissingExtraError: PyTorch is not installed.
            ParameterError, ShapeError, DtypeError: as of ``save``.

        >>> import torch
        >>> net = torch.nn.Linear(2, 1)
        >>> f = nx.interop.from_torch(net, (torch.ones(3, 2),))
        >>> net.load_state_dict(f.state_dict({k: v * 0 for k, v in f.params.items()}))
        <All keys matched successfully>
        >>> net.bias.tolist()
        [0.0]
        """
        package()
        return {k: tensor_of(v) for k, v in self._saved(self._written(params, state)).items()}

    def _written(self, params: Any, state: Any) -> dict[str, Any]:
        """Tensors that are other than the module's, by name, in its dtypes."""
        changed = {
            **self._changed("parameters", params),
            **self._changed("state", state),
        }
        arrays = self._program.arrays
        return {k: np.asarray(v).astype(arrays[k].dtype) for k, v in changed.items()}

    def _saved(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """The module's state dict as NumPy arrays."""
        arrays = self._program.arrays
        return {
            k: changed[own] if own in changed else np.asarray(arrays[own]) for k, own in self._program.saved.items()
        }

    def _leaves(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        positional, keywords = self._program.arguments.children
        names = self._program.names
        args = list(args)
        while len(args) < len(positional.children) and len(args) < len(names) and names[len(args)] in named:
            named = dict(named)
            args.append(named.pop(names[len(args)]))
        if len(args) != len(positional.children) or set(named) != set(keywords.keys):
            got = [f"{len(args)} positional arguments", *map(str, named)]
            expected = [f"{len(positional.children)} positional arguments", *map(str, keywords.keys)]
            raise ParameterError(
                f"{self.__name__}: other arguments than those that were exported",
                got=", ".join(got),
                expected=f"{', '.join(expected)}: {', '.join(map(str, self.inputs)) or 'none'}",
            )
        where = f"{self.__name__}: argument"
        return [*positional.leaves(tuple(args), where), *keywords.leaves(dict(named), where)]


@api_boundary
def from_torch(
    module: object,  # a module, an ExportedProgram, a function of tensors, or a file
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    closed: bool = False,
) -> TorchFunction:
    """A PyTorch module as a function of its parameters and of arrays: ``y = f(f.params, x)``.

    `torch.export` traces the module once, with the example arguments. What it finds becomes ordinary nxjax ops: `jit`,
    `grad`, `vmap`, `quantize` and `compile` work on it. Dtypes are torch's, exactly: 64-bit ones stay 64-bit. Results
    come in the module's tuples, lists and dicts; other classes come as dicts of their fields.

    Buffers that the module writes, such as the running means of a batch norm in training mode, are an argument and a
    result: ``state, y = f(f.params, f.state, x)``. Random operators take ``key=``. Parameters lie where the module has
    them, so that steps of a torch optimizer are seen here.

    Args:
        module: an `nn.Module` or a function of tensors, with ``args``; a `torch.export.ExportedProgram`; or a file
            that `torch.export.save` wrote, or its bytes, for which PyTorch need not be installed.
        args, kwargs: example arguments of the module: tensors or arrays, in its own containers.
        dynamic_shapes: which sizes vary, as in `torch.export.export`. Others have to be those of the example.
        shapes: sizes of symbolic dimensions by name, or whole shapes by the input's name.
        closed: the function holds the parameters itself: ``y = f(x)``.

    Returns:
        the function, with ``params``, ``state``, ``inputs`` and ``outputs``.

    Raises:
        MissingExtraError: PyTorch is not installed.
        InvalidFileError: a damaged file.
        OSError: the file cannot be read.
        LoweringError: torch cannot export the module, or it has an operator that nxjax has no rule for.

    >>> import torch
    >>> batch = torch.export.Dim("batch")
    >>> f = nx.interop.from_torch(torch.nn.Linear(2, 1), (torch.ones(3, 2),), dynamic_shapes=({0: batch},))
    >>> {k: v.shape for k, v in f.params.items()}
    {'weight': (1, 2), 'bias': (1,)}
    >>> f(f.params, jnp.ones((5, 2))).shape
    (5, 1)
    >>> nx.grad(lambda p: f(p, jnp.ones((5, 2))).sum())(f.params)["bias"].tolist()
    [5.0]
    """
    if isinstance(module, (str, Path, bytes)):
        program = read_program(Path(module) if isinstance(module, str) else module)
    else:
        kept = [name for name, r in RULES.items() if r.kept]
        program = program_of(module, args, kwargs, dynamic_shapes, RULES, kept)
    return TorchFunction(program, shapes or {}, closed)
