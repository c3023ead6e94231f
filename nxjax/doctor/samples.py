"""What a model is calibrated and measured on: arrays of an .npz file, of the user, or drawn for the inputs' shapes."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.deploy.trace import as_given, converted
from nxjax.doctor.model import Model, ModelInput
from nxjax.errors import InvalidFileError, NxError, ParameterError
from nxjax.trace import dtypes, tree

NDArray = np.ndarray[Any, Any]
DRAWS: Final = 4


@final
@dataclass(frozen=True)
class Samples:
    """Calls of a model, and where they come from; ``drawn``: from no data, but from shapes alone."""

    calls: list[tuple[NDArray, ...]]
    said: str
    drawn: bool = False


def drawn(model: Model, count: int = DRAWS) -> Samples:
    """Seeded noise: floats of a normal distribution, whole numbers 0 and 1, since others may be indices.

    Where the model gives no finite numbers for those, as roots and logarithms do, noise above 0.
    """
    random = np.random.default_rng(0)
    rows = [tuple(_draw(random, x) for x in model.inputs if x.first is None) for _ in range(count)]
    noise = "normal noise"
    if not _finite(model, rows[0]) and _finite(model, _positive(rows[0])):
        rows, noise = list(map(_positive, rows)), "magnitudes of normal noise"
    said = f"{count} inputs drawn from the shapes ({noise}; whole numbers 0 and 1): no data was given"
    return Samples(_with_state(model, rows), said, True)


def _draw(random: np.random.Generator, x: ModelInput) -> NDArray:
    if x.dtype in dtypes.FLOAT:
        return random.standard_normal(x.shape).astype(x.dtype)
    return random.integers(0, 2, x.shape).astype(x.dtype)


def _positive(row: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
    return tuple(np.abs(x) if x.dtype in dtypes.FLOAT else x for x in row)


def _finite(model: Model, row: tuple[NDArray, ...]) -> bool:
    (call,) = _with_state(model, [row])
    ys = [np.asarray(y) for y in tree.leaves(model.fun(*call))]
    return all(np.isfinite(y).all() for y in ys if y.dtype in dtypes.FLOAT)


def loaded(path: str | Path) -> dict[str, NDArray]:
    """The arrays of an .npz file.

    Raises:
        ParameterError: no such file.
        InvalidFileError: no .npz file, or a damaged one.
    """
    path = Path(path)
    if not path.is_file():
        raise ParameterError(f"doctor: {path.name}: no such file", expected="an .npz file of numpy.savez")
    try:
        with path.open("rb") as opened:
            # NumPy leaves files open that it finds damaged.
            file: Any = np.load(opened, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise InvalidFileError(f"doctor: {path.name}: one array", expected="an .npz file of numpy.savez")
            return {k: file[k] for k in file.files}
    except NxError:
        raise
    except (OSError, ValueError, EOFError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise InvalidFileError(f"doctor: {path.name}: no .npz file, or a damaged one", got=said) from error


def of_arrays(model: Model, arrays: Mapping[str, NDArray], origin: str = "that were given") -> Samples:
    """Arrays by the names of inputs, each of the input's shape, or of several of them one behind the other.

    Of a model with one input, the only array has any name.

    Raises:
        ParameterError: other names, or shapes and dtypes that no input has.
    """
    arrays = {k: v for k, v in arrays.items() if k not in model.held}
    wanted = [x for x in model.inputs if x.first is None]
    if len(wanted) == len(arrays) == 1 and wanted[0].name not in arrays:
        arrays = {wanted[0].name: next(iter(arrays.values()))}
    expected = ", ".join(map(str, wanted))
    names = {x.name for x in wanted}
    if names != arrays.keys():
        said = [f"missing {', '.join(sorted(names - arrays.keys()))}"] if names - arrays.keys() else []
        said += [f"unknown {', '.join(sorted(arrays.keys() - names))}"] if arrays.keys() - names else []
        raise ParameterError(
            "doctor: data has other names than the model's inputs", got="; ".join(said), expected=expected
        )
    columns = [_samples(x, arrays[x.name]) for x in wanted]
    counts = {x.name: len(c) for x, c in zip(wanted, columns, strict=True)}
    if len(set(counts.values())) > 1:
        raise ParameterError("doctor: data has as many samples for each input", got=counts, expected="one number")
    rows = list(zip(*columns, strict=True))
    if not rows:
        raise ParameterError("doctor: data has no samples", expected=expected)
    return Samples(_with_state(model, rows), f"{len(rows)} inputs {origin}")


def of_calls(model: Model, data: Iterable[Any]) -> Samples:
    """Tuples of arguments, as for `nx.quantize`; any other batch is the only argument."""
    wanted = [x for x in model.inputs if x.first is None]
    rows: list[tuple[NDArray, ...]] = []
    for batch in data:
        xs = batch if isinstance(batch, (tuple, list)) else (batch,)
        if len(xs) != len(wanted):
            raise ParameterError("doctor: data", got=f"{len(xs)} arrays", expected=", ".join(map(str, wanted)))
        (row,) = zip(*(_samples(x, as_given(a, "doctor"))[:1] for x, a in zip(wanted, xs, strict=True)), strict=True)
        rows.append(row)
    if not rows:
        raise ParameterError("doctor: data has no samples", expected=", ".join(map(str, wanted)))
    return Samples(_with_state(model, rows), f"{len(rows)} inputs that were given")


def _samples(x: ModelInput, array: NDArray) -> list[NDArray]:
    array = np.asarray(array)
    if array.shape == x.shape:
        parts = [array]
    elif array.ndim == len(x.shape) + 1 and array.shape[1:] == x.shape:
        parts = list(array)
    elif x.shape and array.shape[1:] == x.shape[1:] and array.ndim and array.shape[0] % x.shape[0] == 0:
        parts = [array[i : i + x.shape[0]] for i in range(0, len(array), x.shape[0])]
    else:
        more = f" or with samples first [n,{','.join(map(str, x.shape))}]"
        raise ParameterError(
            f"doctor: data of {x.name} has another shape", got=list(array.shape), expected=f"{x}{more}"
        )
    found = [converted(p, x.dtype, f"doctor: data of {x.name}") for p in parts]
    if x.dtype in dtypes.FLOAT and not all(np.isfinite(part).all() for part in found):
        # Nothing can be calibrated on them, and results that are no numbers compare with nothing.
        raise ParameterError(f"doctor: data of {x.name} has NaN or infinities", expected=f"{x} of finite numbers")
    return found


def _with_state(model: Model, rows: list[tuple[NDArray, ...]]) -> list[tuple[NDArray, ...]]:
    """Each call with the state that the calls before it leave."""
    if not model.state:
        return rows
    state: tuple[NDArray, ...] = tuple(x.first for x in model.inputs if x.first is not None)
    found: list[tuple[NDArray, ...]] = []
    for row in rows:
        found.append((*state, *row))
        state = tuple(map(np.asarray, model.fun(*found[-1])[: model.state]))
    return found
