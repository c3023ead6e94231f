"""Public names of nxjax.numpy show what they do, by examples in their docstrings that tests/test_docs.py executes."""

import doctest
import functools
import importlib
import inspect
from typing import Any

import nxjax.numpy as jnp

# Names that have none yet, file by file: this only shrinks.
WITHOUT: dict[str, str] = {
    "scalar_types": """
        bfloat16 bool bool_ can_cast cdouble complex128 complex64 complex_ csingle double finfo float16 float32
        float4_e2m1fn float64 float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz
        float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float_ iinfo int1 int16 int2
        int32 int4 int64 int8 int_ isdtype issubdtype promote_types result_type single uint uint1 uint16 uint2
        uint32 uint4 uint64 uint8
        """,
    "creation": """
        asarray astype copy empty empty_like eye frombuffer fromfile fromfunction fromiter full full_like
        geomspace identity linspace logspace ones ones_like tri vander zeros zeros_like
        """,
    "ufuncs": "ufunc",
    "sets": "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts unique_inverse unique_values",
    "grids": """
        c_ diag diag_indices diag_indices_from diagflat diagonal fill_diagonal indices ix_ mask_indices meshgrid
        mgrid ogrid r_ tril tril_indices tril_indices_from triu triu_indices triu_indices_from
        """,
    "indexing": "place put put_along_axis ravel_multi_index take take_along_axis unravel_index",
    "reductions": """
        all amax amin any argmax argmin average count_nonzero cumprod cumsum cumulative_prod cumulative_sum max
        mean min prod ptp std sum var
        """,
    "nan_reductions": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar",
    "linalg": """
        cholesky cond cross det diagonal eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power
        matrix_rank multi_dot norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve trace
        vecdot vector_norm
        """,
    "fft": """
        fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2
        rfftfreq rfftn
        """,
}


def documented(x: Any) -> Any:
    """What carries the docstring: a function or class itself; the class of a value such as `mgrid` or of a dtype."""
    return x if inspect.isroutine(x) or type(x) is type else type(x)


@functools.cache
def executed(module: str) -> set[str]:
    """The docstrings with examples that doctest finds in a module."""
    found = doctest.DocTestFinder().find(importlib.import_module(module))
    return {test.docstring for test in found if test.examples}


def public() -> dict[str, dict[str, Any]]:
    """File -> what its public names say; constants and NumPy's own classes are documented elsewhere."""
    files = {file: {name: getattr(jnp, name) for name in names.split()} for file, names in jnp._FILES.items()}
    for file in jnp._MODULES:
        files[file] = {name: getattr(getattr(jnp, file), name) for name in getattr(jnp, file).__all__}
    ours = {file: {name: documented(x) for name, x in names.items()} for file, names in files.items()}
    return {f: {name: x for name, x in names.items() if x.__module__.startswith("nxjax")} for f, names in ours.items()}


def missing() -> dict[str, set[str]]:
    return {
        f: {n for n, x in names.items() if x.__doc__ not in executed(x.__module__)} for f, names in public().items()
    }


def test_every_public_name_has_an_example_that_is_executed():
    new = {file: sorted(names - set(WITHOUT.get(file, "").split())) for file, names in missing().items()}
    assert not any(new.values()), {file: names for file, names in new.items() if names}


def test_scalar_types_show_an_array():
    runner = doctest.DocTestRunner()
    for name in jnp._FILES["scalar_types"].split():
        doc = getattr(jnp, name).__doc__ if name not in ("newaxis",) else ""
        if doc and ">>> jnp." in doc:
            runner.run(doctest.DocTestParser().get_doctest(doc, {}, name, None, None))
    assert runner.summarize(verbose=False) == (0, 0)
