"""Reading a step: onto one device or any sharding, into the tree that was saved or the one that is asked for.

Each process maps the files and reads the parts that its own devices need, however many processes wrote them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.checkpoints import index as indexes
from nxjax.checkpoints import steps
from nxjax.checkpoints.index import CheckpointIndex, LeafEntry, StoredPart
from nxjax.checkpoints.parts import Box, box_of, gathered
from nxjax.checkpoints.progress import Progress
from nxjax.checkpoints.structure import built, described, name_of
from nxjax.checkpoints.tensors import TensorFile
from nxjax.errors import InvalidFileError, ShapeError, TreeError
from nxjax.trace import dtypes
from nxjax.trace import tree as trees
from nxjax.trace.array import as_value, wrap
from nxjax.trace.boundary import api_boundary, entry

NDArray = np.ndarray[Any, Any]
_MANY: Final = 12
# How often a step that others replace is looked for again.
_TRIES: Final = 100


@entry
@api_boundary
def restore(
    directory: str | os.PathLike[str],
    like: Any = None,
    step: int | None = None,
    shardings: Any = None,
    *,
    verify: bool = True,
    progress: bool | None = None,
) -> Any:
    """Read a step that `save` or a `CheckpointManager` wrote.

    Args:
        directory: of the steps.
        like: a tree with the structure and types of the result: arrays, `nx.ShapeDtypeStruct`, numbers. Leaves are
            matched by path. The result has its NumPy arrays, node types and shardings. Without it: dicts, lists and
            tuples of nxjax arrays.
        step: the last one by default.
        shardings: of the arrays: a sharding, or a tree prefix of them; None leaves them on the host. It may differ from
            the saved sharding: each process reads what its devices need.
        verify: compare checksums. Without it, arrays are views of the files and are read on use.

    Raises:
        ParameterError: no such step.
        InvalidFileError: a file is damaged; the error names the file and the tensor.
        TreeError: leaves of ``like`` were not saved, or the other way round; the error names them.
        ShapeError: leaves have other shapes or dtypes; the error names them.

    >>> import nxjax as nx, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = nx.checkpoints.save(folder, {"w": nx.arange(3), "name": "run"}, step=2)
    >>> restore(folder)
    {'name': 'run', 'w': Array([0, 1, 2], dtype=int32)}
    """
    return _with_step(
        Path(directory),
        step,
        "checkpoints.restore",
        lambda folder, handle: _Reader(folder, indexes.read(folder, handle), verify, handle).tree(
            like, shardings, progress
        ),
    )


@entry
def metadata(directory: str | os.PathLike[str], step: int | None = None) -> Any:
    """The ``metadata`` of a step.

    Raises:
        ParameterError: no such step.
        InvalidFileError: its index is damaged.

    >>> import nxjax as nx, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = nx.checkpoints.save(folder, {"w": nx.ones(2)}, step=3, metadata={"loss": 0.5})
    >>> metadata(folder)
    {'loss': 0.5}
    """
    return _with_step(
        Path(directory), step, "checkpoints.metadata", lambda folder, handle: indexes.read(folder, handle).metadata
    )


def _with_step(directory: Path, step: Any, where: str, use: Callable[[Path, int], Any]) -> Any:
    """What ``use`` makes of a step's folder, given by its name and open: all of it is of one and the same save.

    Others may replace or remove it meanwhile. Then it is looked for again.
    """
    number = None if step is None else steps.checked_step(step, where)
    missing = directory
    for _ in range(_TRIES):
        _, folder = steps.folder_of(directory, number, where)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            return use(folder, handle)
        except FileNotFoundError as error:
            missing = folder / str(error.filename)
            if folder.name.isdecimal() and _is_at(handle, folder):
                break  # under another name, it may be on its way out
        finally:
            os.close(handle)
    raise InvalidFileError(f"checkpoint: {missing}: the file is missing", fix="copy it there, or restore another step")


def _is_at(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except OSError:
        return False


@final
class _Reader:
    """One step being read."""

    def __init__(self, folder: Path, index: CheckpointIndex, verify: bool, handle: int | None = None) -> None:
        self.folder = folder
        self.handle = handle
        self.index = index
        self.verify = verify
        self._files: dict[int, TensorFile] = {}
        self._read: dict[tuple[int, str], NDArray] = {}
        self._done: Callable[[int], object] = lambda _: None

    def tree(self, like: Any, shardings: Any, progress: bool | None) -> Any:
        total = sum(_nbytes(leaf) for leaf in self.index.leaves)
        with Progress(f"restoring step {self.index.step}", total, progress) as done:
            self._done = done
            if like is None:
                return self._whole(shardings)
            return self._like(like, shardings)

    def _whole(self, shardings: Any) -> Any:
        leaves = self.index.leaves
        seen: set[int] = set()

        def numbered(i: int) -> Any:
            if not 0 <= i < len(leaves) or i in seen:
                raise ValueError(f"leaf {i} of {len(leaves)}")
            seen.add(i)
            return _Number(i)

        outline = built(self.index.tree, numbered, str(self.folder / steps.INDEX))
        flat, structure = trees.flatten(outline)
        chosen = _chosen(shardings, outline, len(flat))
        return trees.unflatten(
            structure, [self.leaf(leaves[n.i], s) for n, s in zip(flat, chosen, strict=True)], mixed_keys=True
        )

    def _like(self, like: Any, shardings: Any) -> Any:
        _, wanted = described(like)
        structure = trees.structure(like)
        known = self.index.by_path
        missing = [name_of(path) for path, _ in wanted if path not in known]
        extra = sorted(name_of(p) for p in set(known) - {path for path, _ in wanted})
        if missing or extra:
            raise TreeError(
                f"checkpoints.restore: {self.folder} has other leaves than like=",
                got=f"not in the checkpoint: {_listed(missing)}; not in like=: {_listed(extra)}",
                fix="give like= the tree that was saved, or restore without it and take what you need",
            )
        rows = [(known[path], x) for path, x in wanted]
        wrong = [w for leaf, x in rows if (w := _difference(leaf, x))]
        if wrong:
            raise ShapeError(
                f"checkpoints.restore: {self.folder} has leaves of other types than like=",
                got="\n            ".join(wrong[:_MANY])
                + (f"\n            and {len(wrong) - _MANY} more" if len(wrong) > _MANY else ""),
                fix="give like= the shapes and dtypes that were saved; cast afterwards",
            )
        chosen = _chosen(shardings, like, len(rows))
        return trees.unflatten(
            structure, [self._as(leaf, x, s) for (leaf, x), s in zip(rows, chosen, strict=True)], mixed_keys=True
        )

    def _as(self, leaf: LeafEntry, x: Any, sharding: Any) -> Any:
        """A leaf in the kind of ``x``."""
        if isinstance(x, str) or leaf.dtype is None:
            value: Any = leaf.value
            if isinstance(x, (bool, int, float, complex, str)) and not isinstance(x, np.generic):
                return value if isinstance(x, str) else type(x)(value)
            made = np.asarray(value, x.dtype)
            return made if isinstance(x, np.ndarray) else wrap(made, bool(getattr(x, "weak_type", False)))
        if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
            return type(x)(self.block(leaf, ()).item())
        if isinstance(x, np.generic):
            return self.block(leaf, _all(leaf))[()]
        if isinstance(x, np.ndarray):
            return np.array(self.block(leaf, _all(leaf)), x.dtype)
        if sharding is None:
            own = getattr(x, "sharding", None)
            sharding = own if own is not None and len(own.device_set) > 1 else None
        return self.leaf(leaf, sharding)

    def leaf(self, leaf: LeafEntry, sharding: Any) -> Any:
        """A leaf as a nxjax array, or Python's value."""
        if leaf.dtype is None:
            return leaf.value
        if sharding is None:
            return wrap(self.block(leaf, _all(leaf)), leaf.weak)
        if hasattr(sharding, "devices_indices_map") and len(sharding.device_set) > 1:
            from nxjax.runtime.global_arrays import make_array_from_callback

            return make_array_from_callback(
                leaf.shape, sharding, lambda index: self.block(leaf, box_of(index, leaf.shape)), leaf.dtype
            )
        from nxjax.runtime import device_put

        return device_put(wrap(self.block(leaf, _all(leaf)), leaf.weak), sharding)

    def block(self, leaf: LeafEntry, box: Box) -> NDArray:
        """The elements of a leaf in ``box``; only the parts that it meets are read."""
        assert leaf.dtype is not None
        known = [(p.box, lambda p=p: self.part(leaf, p)) for p in leaf.parts]
        return gathered(box, leaf.dtype, known, f"{self.folder}, {leaf.name}")

    def part(self, leaf: LeafEntry, part: StoredPart) -> NDArray:
        key = (part.file, part.tensor)
        if key not in self._read:
            assert leaf.dtype is not None
            file = self.file(part.file)
            data = file.read(part.tensor, leaf.dtype, part.shape, part.checksum if self.verify else None)
            self._read[key] = data
            self._done(data.nbytes)
        return self._read[key]

    def file(self, number: int) -> TensorFile:
        if number not in self._files:
            name, size = self.index.files[number]
            path = self.folder / name
            file = TensorFile(path, self.handle)
            if file.size != size:
                raise InvalidFileError(
                    f"checkpoint: {path}: the file is damaged",
                    got=f"{file.size} bytes",
                    expected=f"{size} bytes",
                    fix="restore another step",
                )
            self._files[number] = file
        return self._files[number]


@final
class _Number:
    """A leaf of the outline."""

    def __init__(self, i: int) -> None:
        self.i = i


def _all(leaf: LeafEntry) -> Box:
    return tuple((0, n) for n in leaf.shape)


def _nbytes(leaf: LeafEntry) -> int:
    return 0 if leaf.dtype is None else math.prod(leaf.shape) * leaf.dtype.itemsize


def _listed(names: Sequence[str]) -> str:
    return (", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")) or "none"


def _chosen(shardings: Any, like: Any, count: int) -> list[Any]:
    """A sharding or None per leaf."""
    if shardings is None or hasattr(shardings, "devices_indices_map"):
        return [shardings] * count
    return trees.broadcast_leaves(
        shardings, like, "checkpoints.restore: shardings", is_leaf=lambda s: s is None or hasattr(s, "device_set")
    )


def _difference(leaf: LeafEntry, x: Any) -> str | None:
    """How a leaf differs from what is asked for, in words."""
    if leaf.dtype is None:
        kind = type(leaf.value)
        if isinstance(x, (bool, int, float, complex, str)) and not isinstance(x, np.generic):
            order = (bool, int, float, complex)
            fits = type(x) is kind or (kind in order and type(x) in order and order.index(kind) <= order.index(type(x)))
            return None if fits else f"{leaf.name}: a {kind.__name__}, {type(x).__name__} asked for"
        if kind is not str and getattr(x, "shape", None) == ():
            return None
        return f"{leaf.name}: a {kind.__name__}, {_said(x)} asked for"
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        numeric = leaf.shape == () and leaf.dtype in dtypes.NUMERIC
        return None if numeric else f"{leaf.name}: {_text(leaf)}, a {type(x).__name__} asked for"
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        try:
            x = as_value(x, leaf.name)
        except TypeError:
            return f"{leaf.name}: {_text(leaf)}, {_said(x)} asked for"
    dtype = dtypes.key if getattr(x.dtype, "name", "") == "key<fry>" else x.dtype
    if isinstance(x, np.ndarray):
        dtype = x.dtype.newbyteorder("=")
    if tuple(x.shape) != leaf.shape or dtype != leaf.dtype:
        return f"{leaf.name}: {_text(leaf)}, {_said(x)} asked for"
    return None


def _text(leaf: LeafEntry) -> str:
    assert leaf.dtype is not None
    return f"{dtypes.short_name(leaf.dtype)}[{','.join(map(str, leaf.shape))}]"


def _said(x: Any) -> str:
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        name = dtypes.short_name(x.dtype) if isinstance(x.dtype, np.dtype) else str(x.dtype)
        return f"{name}[{','.join(map(str, x.shape))}]"
    return f"a {type(x).__name__}"
