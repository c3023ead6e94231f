"""Modules and exported programs of PyTorch, in memory, as `TorchProgram`.

With `to_torch`, the only files that import torch, inside functions. An exported program is made functional by
`run_decompositions`; operators that have rules here are kept whole, so that softmax stays softmax.
"""

from __future__ import annotations

import inspect
import io
import re
import sys
import warnings
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from nxjax.errors import LoweringError, MissingExtraError, ParameterError
from nxjax.interop.graphs.values import Refused, ValueInfo
from nxjax.interop.torch.functional import functional
from nxjax.interop.torch.graph import (
    BUFFER,
    CONSTANT,
    LEAF,
    PARAMETER,
    USER,
    Container,
    NodeRef,
    TorchGraph,
    TorchNode,
    TorchProgram,
    field_names,
    module_path,
)
from nxjax.trace.array import wrap
from nxjax.trace.core import Array

_NARROW = {"bfloat16": "int16", "float8_e4m3fn": "int8", "float8_e5m2": "int8"}


def package() -> Any:
    """The ``torch`` package."""
    try:
        import torch
    except ImportError as e:
        fix = "pip install 'nxjax[torch]'"
        raise MissingExtraError("interop: PyTorch is not installed", got=e, expected="torch", fix=fix) from None
    return torch


def dtype_of(torch_dtype: Any) -> Any:
    """The NumPy dtype of a torch dtype, or of its name."""
    name = str(torch_dtype).removeprefix("torch.")
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def is_tensor(x: Any) -> bool:
    """Whether ``x`` is a tensor of torch; nobody has one where torch is not loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def array_of(t: Any) -> Array:
    """A tensor's elements where they lie, if the host can read them; a copy if not."""
    torch = package()
    t = t.detach().resolve_conj().resolve_neg().cpu().contiguous()
    name = str(t.dtype).removeprefix("torch.")
    data = t.view(getattr(torch, _NARROW[name])).numpy().view(dtype_of(name)) if name in _NARROW else t.numpy()
    data.flags.writeable = False
    return wrap(data)


def tensor_of(x: Any) -> Any:
    """An array as a tensor; other values, and tensors, as they are."""
    if not isinstance(x, (Array, np.ndarray, np.generic)):
        return x
    torch = package()
    data = np.array(x)
    name = data.dtype.name
    if name in _NARROW:
        return torch.from_numpy(data.view(_NARROW[name])).view(getattr(torch, name))
    return torch.from_numpy(data)


def program_of(
    module: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic: Any,
    known: Collection[str],
    kept: Collection[str],
) -> TorchProgram:
    """A module with example arguments, or an exported program, as plain data.

    If a graph has operators that are not ``known``, torch splits up all that are not ``kept``.
    """
    torch = package()
    if isinstance(module, torch.export.ExportedProgram):
        exported, name = module, type(module.graph_module).__name__
        name = "program" if name == "GraphModule" else name
    else:
        if not callable(module):
            raise ParameterError(
                "from_torch: not a module", got=type(module).__name__, expected="an nn.Module or an ExportedProgram"
            )
        name = type(module).__name__ if isinstance(module, torch.nn.Module) else getattr(module, "__name__", "function")
        exported = _exported(torch, module, args, kwargs, dynamic)
    sizes = [] if exported is module else _dim_names(dynamic, args or (), kwargs or {}, module)
    try:
        program = _Reader(torch, exported).program(name, sizes)
        if _targets(program.graph) <= set(known):
            return program
    except Refused:
        pass  # Torch's own way of making a graph functional takes longer, and takes all.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = torch.export.default_decompositions()
        for target in kept:
            op = _operator(torch, target)
            if op is not None:
                table.pop(op, None)
        # Decomposing does not need gradients, and in-place operators on leaves would be refused.
        with torch.no_grad():
            exported = exported.run_decompositions(table)
    return _Reader(torch, exported).program(name, sizes)


def _targets(graph: TorchGraph) -> set[str]:
    """The operators of a graph and of those in it."""
    inner = [a for n in graph.nodes for a in (*n.args, *n.kwargs.values()) if isinstance(a, TorchGraph)]
    return {n.target for n in graph.nodes}.union(*map(_targets, inner))


def _exported(torch: Any, module: Any, args: Any, kwargs: Any, dynamic: Any) -> Any:
    if args is None and kwargs is None:
        raise ParameterError(
            "from_torch: a module needs example arguments", fix="nx.interop.from_torch(module, (x,)), x a tensor"
        )
    if args is not None and not isinstance(args, (tuple, list)):
        raise ParameterError("from_torch: example arguments stand in a tuple", got=type(args).__name__, fix="(x,)")
    if not isinstance(module, torch.nn.Module):
        function = module

        class Function(torch.nn.Module):
            def forward(self, *args: Any, **kwargs: Any) -> Any:
                return function(*args, **kwargs)

        # Arguments keep their names.
        own = inspect.signature(function)
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        if all(p.kind is not p.POSITIONAL_ONLY for p in own.parameters.values()):
            first = first.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = own.replace(parameters=[first, *own.parameters.values()])
        Function.forward.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        module = Function()
    mapped = torch.utils._pytree.tree_map
    given, named = mapped(tensor_of, tuple(args or ())), mapped(tensor_of, dict(kwargs or {}))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, given, named, dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        # torch raises errors of many classes for what it cannot trace.
        raise LoweringError(
            "from_torch: torch.export cannot export the module",
            got=str(error).strip().split("\n")[0][:500],
            fix="torch.export.draft_export(module, args) says which line of it",
        ) from error


def _dim_names(dynamic: Any, args: Sequence[Any], kwargs: Mapping[str, Any], module: Any) -> list[Any]:
    """What the caller said of the dimensions of each leaf among the arguments, in order."""
    if isinstance(dynamic, Mapping):
        positional, named = [], {k: dynamic.get(k) for k in kwargs}
        for p in inspect.signature(getattr(module, "forward", module)).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                positional += dynamic.get(p.name) or ()
            elif p.kind is not p.VAR_KEYWORD:
                positional.append(dynamic.get(p.name))
        positional = [*positional, *[None] * len(args)][: len(args)]
    else:
        every = list(dynamic or ()) + [None] * (len(args) + len(kwargs))
        positional, named = every[: len(args)], dict(zip(kwargs, every[len(args) :], strict=False))
    found: list[Any] = []

    def walk(said: Any, x: Any) -> None:
        if isinstance(x, (list, tuple)):
            for i, v in enumerate(x):
                walk(said[i] if isinstance(said, (list, tuple)) and i < len(said) else None, v)
        elif isinstance(x, Mapping):
            for k, v in x.items():
                walk(said.get(k) if isinstance(said, Mapping) else None, v)
        else:
            found.append(dict(enumerate(said)) if isinstance(said, (list, tuple)) else said or {})

    walk(positional, tuple(args))
    walk(named, dict(kwargs))
    return found


def _operator(torch: Any, target: str) -> Any:
    """The operator of a name such as ``aten.add.Tensor``, if this version of torch has it."""
    parts = target.split(".")
    packet: Any = getattr(getattr(torch.ops, parts[0], None), parts[1], None) if len(parts) > 1 else None
    return getattr(packet, parts[2] if len(parts) > 2 else "default", None)


class _Reader:
    """One exported program being read."""

    def __init__(self, torch: Any, exported: Any) -> None:
        self.torch, self.exported = torch, exported
        self.renamed: dict[str, str] = {}

    def program(self, name: str, sizes: Sequence[Any]) -> TorchProgram:
        ep, kinds_of = self.exported, self.torch.export.graph_signature
        inputs = {
            kinds_of.InputKind.PARAMETER: PARAMETER,
            kinds_of.InputKind.BUFFER: BUFFER,
            kinds_of.InputKind.CONSTANT_TENSOR: CONSTANT,
            kinds_of.InputKind.USER_INPUT: USER,
        }
        signature = ep.graph_signature
        for s in signature.input_specs:
            if s.kind not in inputs:
                raise LoweringError("from_torch: an input that nxjax cannot take", got=f"{s.kind.name}: {s.arg}")
        tensors = {**ep.state_dict, **ep.constants}
        # A parameter of several names is called by its first one.
        first: dict[int, str] = {}
        for k, v in tensors.items():
            first.setdefault(id(v), k)
        named = lambda s: first.get(id(tensors.get(s.target)), s.target) or s.arg.name
        kinds = tuple((inputs[s.kind], named(s)) for s in signature.input_specs)
        written = tuple(
            (s.kind.name, s.target) for s in signature.output_specs if s.kind != kinds_of.OutputKind.USER_OUTPUT
        )
        graph, more = functional(self.graph(ep.graph_module), kinds)
        written = (*more, *written)
        values = {n.name: n.meta.get("val") for n in ep.graph_module.graph.nodes}
        given = [s.arg for s in signature.input_specs if s.kind == kinds_of.InputKind.USER_INPUT]
        for arg, said in zip(given, sizes, strict=False):
            v: Any = values.get(arg.name)
            for i, d in said.items() if isinstance(v, self.torch.Tensor) else ():
                if hasattr(d, "__name__") and str(v.shape[i]).isidentifier():
                    self.renamed[str(v.shape[i])] = d.__name__
        ports = tuple(self.port(a, values) for a in given)
        results = signature.output_specs[len(written) - len(more) :]
        outs = tuple(self.port(s.arg, values) for s in results)
        outs = tuple(p if isinstance(p, ValueInfo) else ValueInfo(repr(p), None, None, False) for p in outs)
        wanted = [k for kind, k in kinds if kind != USER]
        missing = [k for k in wanted if k not in tensors]
        if missing:
            raise LoweringError("from_torch: tensors of the program are not in it", got=", ".join(missing))
        spec = ep.call_spec
        saved = {k: first[id(v)] for k, v in ep.state_dict.items()}
        arrays = {k: array_of(tensors[k]) for k in dict.fromkeys([*wanted, *saved.values()])}
        return TorchProgram(
            name, graph, kinds, ports, written, outs, container(spec.in_spec), container(spec.out_spec), arrays,
            self.ranges(), self.names(), saved, self.whole,
        )  # fmt: skip

    def whole(self) -> memoryview:
        """The program as a file."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.torch.export.save(self.exported, file)
        return file.getbuffer()

    def names(self) -> tuple[str, ...]:
        calls = [c for c in self.exported.module_call_graph if not c.fqn and c.signature is not None]
        return tuple(calls[0].signature.forward_arg_names or ()) if calls else ()

    def ranges(self) -> dict[str, tuple[float, float]]:
        def number(v: Any) -> float:
            try:
                return float(int(v))
            except (TypeError, ValueError, OverflowError, AttributeError):
                return float("inf")

        bounds = self.exported.range_constraints.items()
        found = {self.size(str(k)): (number(r.lower), number(r.upper)) for k, r in bounds}
        return {k: r for k, r in found.items() if r[0] < float("inf")}

    def port(self, arg: Any, values: Mapping[str, Any]) -> ValueInfo | Any:
        """What an argument or result is; the value itself of one that is no array."""
        v: Any = values.get(arg.name) if hasattr(arg, "name") else None
        if isinstance(v, self.torch.Tensor):
            dims = tuple(d if isinstance(d, int) else self.size(str(d)) for d in v.shape)
            return ValueInfo(arg.name, dtype_of(v.dtype), dims)
        if type(v).__name__ in ("SymInt", "SymFloat", "SymBool"):
            kind = {"SymInt": np.int64, "SymFloat": np.float64, "SymBool": np.bool_}[type(v).__name__]
            return ValueInfo(arg.name, np.dtype(kind), (), False)
        return getattr(arg, "value", v)

    def size(self, text: str) -> str:
        """A symbolic size by the names that the caller gave."""
        return re.sub(r"[a-z]\w*", lambda m: self.renamed.get(m[0], m[0]), text)

    def graph(self, module: Any) -> TorchGraph:
        inputs: list[str] = []
        nodes: list[TorchNode] = []
        outputs: tuple[Any, ...] = ()
        inner: dict[str, Any] = {}
        for n in module.graph.nodes:
            if n.op == "placeholder":
                inputs.append(n.name)
            elif n.op == "get_attr":
                found = self.torch.fx.graph_module._get_attr(module, n.target)
                inner[n.name] = self.graph(found) if isinstance(found, self.torch.nn.Module) else array_of(found)
            elif n.op == "call_function":
                args = self.plain(n.args, inner)
                kwargs = self.plain(n.kwargs, inner)
                where, path = _line(n.stack_trace), _module(n.meta.get("nn_module_stack"))
                nodes.append(TorchNode(target_name(n.target), tuple(args), kwargs, n.name, where, path))
            elif n.op == "output":
                given = self.plain(n.args[0], inner)
                outputs = tuple(given) if isinstance(given, list) else (given,)
        return TorchGraph(tuple(inputs), tuple(nodes), outputs)

    def plain(self, x: Any, inner: Mapping[str, Any]) -> Any:
        torch = self.torch
        if isinstance(x, torch.fx.Node):
            return inner[x.name] if x.name in inner else NodeRef(x.name)
        if isinstance(x, (list, tuple)):
            return [self.plain(v, inner) for v in x]
        if isinstance(x, Mapping):
            return {k: self.plain(v, inner) for k, v in x.items()}
        if isinstance(x, torch.dtype):
            return dtype_of(x)
        if isinstance(x, (torch.device, torch.layout, torch.memory_format)):
            return str(x)
        return x


def target_name(target: Any) -> str:
    """``aten.add.Tensor`` for an operator, ``_operator.add`` for a Python function."""
    if hasattr(target, "_schema"):
        return str(target).removesuffix(".default")
    if isinstance(target, package()._ops.HigherOrderOperator):
        return f"higher_order.{target.__name__}"
    return f"{target.__module__}.{target.__name__}"


def _module(stack: Any) -> str:
    """The innermost submodule of a stack of them, which has (path, class) by keys."""
    found = [path for path, _ in stack.values()] if stack else [""]
    return module_path(str(found[-1]))


def _line(trace: str | None) -> str:
    """The user's last line in a stack: that which is not in torch itself."""
    lines = [v.strip() for v in (trace or "").splitlines()]
    found = [v for v in lines if v.startswith("File ")]
    own = [v for v in found if "/torch/" not in v] or found
    if not own:
        return ""
    code = lines[lines.index(own[-1]) + 1 :][:1]
    return f"{own[-1]}{': ' + code[0] if code else ''}"[:200]


def container(spec: Any) -> Container:
    """The structure of a `TreeSpec`: named tuples are tuples, other classes are dicts by the names of their fields."""
    if spec is None or spec.is_leaf():
        return LEAF
    children = tuple(container(c) for c in spec.children())
    if spec.type in (tuple, list):
        return Container(spec.type.__name__, children)
    if spec.type is type(None):
        return Container("none")
    if spec.type is namedtuple:
        return Container("tuple", children)
    keys = field_names(spec.context, len(children))
    return Container("dict" if keys or issubclass(spec.type, Mapping) else "tuple", children, keys)
