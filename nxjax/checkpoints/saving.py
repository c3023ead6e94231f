"""Writing a step: each process its parts, then the index, then the folder's name. No crash harms what was there.

The order is the whole of it: files are on the disk before the index is, the index before the folder gets its name, and
a rename is one step. What is being replaced is put aside under a name that is still found, and removed last.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from nxjax.checkpoints import index as indexes
from nxjax.checkpoints import processes, steps, tensors
from nxjax.checkpoints.disk import disk
from nxjax.checkpoints.index import CheckpointIndex, LeafEntry, StoredPart
from nxjax.checkpoints.parts import Part, parts_of
from nxjax.checkpoints.progress import Progress
from nxjax.checkpoints.structure import described, name_of
from nxjax.errors import ExecutionError, ParameterError, TreeError
from nxjax.trace import dtypes
from nxjax.trace.array import from_numpy
from nxjax.trace.boundary import api_boundary, entry
from nxjax.trace.core import Array, Tracer

NDArray = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Snapshot:
    """A tree as it is now: its structure, and for each leaf its type and the parts that this process writes.

    Attributes:
        rows: per leaf its description without parts, and the parts.
    """

    tree: Any
    rows: list[tuple[LeafEntry, list[Part]]]

    @property
    def nbytes(self) -> int:
        return sum(p.data.nbytes for _, parts in self.rows for p in parts if p.data is not None)


def snapshot(tree: Any, copy: bool) -> Snapshot:
    """What is to be written of ``tree``.

    Args:
        copy: take copies of all elements, which nothing can change, donate or delete afterwards.

    Raises:
        TreeError: a leaf or key of a kind that files do not hold.
        DtypeError: an element type that files do not hold.
    """
    structure, leaves = described(tree)
    rows: list[tuple[LeafEntry, list[Part]]] = []
    for path, x in leaves:
        if type(x) in (bool, int, float, complex, str):
            rows.append((LeafEntry(path, value=x), []))
            continue
        value = _array(x, path)
        dtype, shape = np.dtype(value.dtype), tuple(value.shape)
        tensors.check_dtype(dtype, name_of(path))
        parts = parts_of(value, shape)
        if copy:
            parts = [Part(p.box, p.owner, None if p.data is None else np.array(p.data, copy=True)) for p in parts]
        leaf = LeafEntry(path, dtype, shape, bool(getattr(value, "weak_type", False)), _sharding(value))
        rows.append((leaf, parts))
    return Snapshot(structure, rows)


def _array(x: Any, path: Any) -> Any:
    where = f"checkpoint: {name_of(path)}"
    if isinstance(x, Tracer):
        raise TreeError(f"{where} is a traced value", got=x.type, fix="save outside jitted functions")
    if isinstance(x, Array):
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise TreeError(
            f"{where} is a masked array, whose mask files do not hold",
            got=f"a masked array of {x.dtype}{list(x.shape)}",
            fix="save its data and its mask as two arrays, or x.filled(value)",
        )
    if isinstance(x, (np.ndarray, np.generic)):
        # As it is: no 64-bit array is cut to the default of 32. Only the order of bytes is this machine's.
        native = x.dtype.newbyteorder("=")
        return np.asarray(x, native) if native in dtypes.NUMERIC or native == dtypes.key else from_numpy(x, where)
    if hasattr(x, "addressable_shards") and hasattr(x, "dtype"):
        key_data = getattr(x.dtype, "_rules", None)
        return from_numpy(_words(x, where)) if key_data is not None else x
    if hasattr(x, "__array__") and not isinstance(x, type):
        return from_numpy(np.asanyarray(x), where)
    raise TreeError(
        f"{where} cannot be saved",
        got=f"{type(x).__name__}: {str(x)[:60]}",
        expected="arrays, numbers and strings in dicts, lists, tuples and registered nodes",
        fix="leave it out, put it in metadata=, or register its type with nx.tree_util",
    )


def _words(x: Any, where: str) -> NDArray:
    """A JAX key array as ours."""
    words = np.ascontiguousarray(np.asarray(x._base_array))
    if words.shape[-1] * words.itemsize != dtypes.key.itemsize:
        raise TreeError(
            f"{where} is a random key of a kind that files do not hold",
            got=f"{x.dtype}, {words.shape[-1]} words per key",
            expected="keys of threefry2x32",
            fix="save jax.random.key_data(key), and the kind's name",
        )
    return words.view(dtypes.key).reshape(x.shape)


def _sharding(x: Any) -> Any:
    return indexes.described_sharding(getattr(x, "sharding", None))


@entry
@api_boundary
def save(
    directory: str | os.PathLike[str],
    tree: Any,
    step: int = 0,
    metadata: Any = None,
    *,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Path:
    """Write a tree as a step of a folder of checkpoints. When it returns, the step is on disk.

    All processes must call it, and each writes its parts of arrays. A crash of any process at any time leaves earlier
    steps unchanged.

    Args:
        directory: of the steps; created if missing.
        tree: of arrays (nxjax's, NumPy's, JAX's; sharded ones too), random keys, QArrays, numbers and strings, in
            dicts, lists, tuples, None, and any registered nodes.
        step: its number, from 0.
        metadata: JSON to save with it.
        overwrite: replace a step of this number, instead of an error.
        progress: show a bar; by default in a terminal, for large data.

    Returns:
        The folder of the step.

    Raises:
        ParameterError: the step or another file of its name exists, or ``metadata`` is not JSON.
        TreeError, DtypeError: the tree has something that cannot be saved.
        OSError: the disk is full, or a similar problem; existing files are unchanged.

    >>> import nxjax as nx, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> save(folder, {"w": nx.ones((2, 3)), "epoch": 3}, step=7).name
    '7'
    """
    number = steps.checked_step(step, "checkpoints.save")
    return write(Path(directory), snapshot(tree, copy=False), number, checked(metadata), overwrite, progress)


def checked(metadata: Any) -> Any:
    return indexes.checked_metadata(metadata)


def write(directory: Path, what: Snapshot, step: int, metadata: Any, overwrite: bool, progress: bool | None) -> Path:
    """Write a snapshot; see `save`."""
    here = processes.index()
    place = directory / str(step)
    if step in steps.all_steps(directory) and not overwrite:
        raise _there_already(place)
    _check_way(place)
    folder = directory / steps.other_name(step, "tmp")
    together = _Together(folder, str(directory))

    def make() -> None:
        disk().make_folder(directory, parents=True)
        steps.clean(directory)
        disk().make_folder(folder)

    def put() -> list[int]:
        with Progress(f"saving step {step}", what.nbytes, progress) as done:
            name = indexes.file_name(here, processes.count())
            return tensors.write(folder / name, _own(what, here), {"nxjax.step": str(step)}, done)

    def commit(checksums: Sequence[int]) -> None:
        _commit(directory, folder, step, _index(folder, what, step, metadata, checksums), overwrite)

    try:
        together.turn("made", make if here == 0 else None)
        checksums = together.turn("written", put)
        together.turn("named", functools.partial(commit, checksums) if here == 0 else None)
    except BaseException:
        if here == 0:
            with contextlib.suppress(Exception):
                disk().remove_folder(folder)
        raise
    return place


@final
class _Together:
    """What every process does, or one for all, and that the failure of one is known to all.

    Where this process is alone there is nothing to it. Otherwise who fails leaves a note beside the step's folder and
    still comes to the barrier, so that nobody waits for ever.
    """

    def __init__(self, folder: Path, line: str) -> None:
        self.folder = folder
        self.line = line
        self.many = processes.count() > 1
        if self.many:
            processes.barrier(f"{folder.name} begun", line)

    def _note(self, turn: str, process: int) -> Path:
        return self.folder.with_name(steps.note_name(self.folder.name, turn, process))

    def turn(self, name: str, action: Callable[[], Any] | None) -> Any:
        """Do ``action``, if it is this process's turn, and wait for the others."""
        if not self.many:
            return None if action is None else action()
        error: Exception | None = None
        found: Any = None
        try:
            found = None if action is None else action()
        except Exception as raised:
            error = raised
            with contextlib.suppress(OSError):
                self._note(name, processes.index()).write_text(f"{type(error).__name__}: {error}")
        processes.barrier(f"{self.folder.name} {name}", self.line)
        if error is not None:
            raise error
        for i in range(processes.count()):
            note = self._note(name, i)
            if note.exists():
                raise ExecutionError(
                    f"checkpoints.save: process {i} could not do its part", got=note.read_text(errors="replace")[:500]
                )
        return found


def _own(what: Snapshot, process: int) -> list[tuple[str, NDArray]]:
    """The tensors of this process, in the order of the leaves."""
    return [(name, p.data) for name, p in _named(what) if p.owner == process and p.data is not None]


def _named(what: Snapshot) -> list[tuple[str, Part]]:
    """Every part with its tensor's name: the leaf's, and the part's start where there are several."""
    used = {tensors.METADATA}
    found: list[tuple[str, Part]] = []
    for leaf, parts in what.rows:
        for part in parts:
            start = ",".join(str(a) for a, _ in part.box)
            name = base = leaf.name if len(parts) == 1 else f"{leaf.name}@{start}"
            twins = 1
            while name in used:
                twins += 1
                name = f"{base}~{twins}"
            used.add(name)
            found.append((name, part))
    return found


def _index(folder: Path, what: Snapshot, step: int, metadata: Any, checksums: Sequence[int]) -> CheckpointIndex:
    """The index of all processes' files; the checksums of the others stand in their headers."""
    count = processes.count()
    named = _named(what)
    by_process: list[list[str]] = [[n for n, p in named if p.owner == i] for i in range(count)]
    files: list[tuple[str, int]] = []
    known: dict[str, tuple[int, int]] = {}
    for process, names in enumerate(by_process):
        path = folder / indexes.file_name(process, count)
        sums = list(checksums) if process == processes.index() else tensors.TensorFile(path).checksums(names)
        known.update({n: (process, c) for n, c in zip(names, sums, strict=True)})
        files.append((path.name, path.stat().st_size))
    rest = iter(named)
    leaves: list[LeafEntry] = []
    for leaf, parts in what.rows:
        stored: list[StoredPart] = []
        for _ in parts:
            name, part = next(rest)
            stored.append(StoredPart(known[name][0], name, part.box, known[name][1]))
        leaves.append(LeafEntry(leaf.path, leaf.dtype, leaf.shape, leaf.weak, leaf.sharding, tuple(stored), leaf.value))
    return CheckpointIndex(step, tuple(files), what.tree, tuple(leaves), metadata, count)


def _commit(directory: Path, folder: Path, step: int, index: CheckpointIndex, overwrite: bool) -> None:
    """The index, and then the name. Others may give or take it meanwhile: the last one to come has it."""
    file = disk().create(folder / steps.INDEX)
    try:
        file.write(indexes.written(index))
        file.sync()
    finally:
        file.close()
    disk().sync_folder(folder)
    place = directory / str(step)
    replaced: list[Path] = []
    try:
        while not _named_so(folder, place):
            if not overwrite:
                raise _there_already(place)
            _check_way(place)
            aside = directory / steps.other_name(step, "old")
            with contextlib.suppress(FileNotFoundError):
                disk().rename(place, aside)
                replaced.append(aside)
    except BaseException:
        with contextlib.suppress(Exception):
            disk().rename(replaced[-1], place)
        raise
    disk().sync_folder(directory)
    for aside in replaced:
        if os.path.lexists(aside):
            disk().remove_folder(aside)


def _named_so(folder: Path, place: Path) -> bool:
    """Give a folder its name; False where there is something of that name."""
    if os.path.lexists(place):
        return False
    try:
        disk().rename(folder, place)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _there_already(place: Path) -> ParameterError:
    return ParameterError(
        f"checkpoints.save: step {place.name} is there already", got=place, fix="pass overwrite=True, or another step"
    )


def _check_way(place: Path) -> None:
    """Raise if there is something at ``place`` that is no step; twice the same thing, as steps come and go."""
    try:
        before = os.lstat(place)  # a link to nothing blocks the path, too
        foreign = not steps.is_step(place) and os.path.samestat(before, os.lstat(place))
    except OSError:
        return
    if foreign:
        raise ParameterError(
            f"checkpoints.save: {place} blocks the path", got="a file or folder that is no checkpoint", fix="remove it"
        )
