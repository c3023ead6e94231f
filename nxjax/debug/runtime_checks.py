"""The checks of everything that runs while `debug_nans`, `debug_infs`, `debug_key_reuse` or `no_execution` is set.

Installed and removed as the settings change (`changed`), so that they cost nothing while no thread sets one. The
settings of the running thread say what is checked. Knows no executor: `trace.core.installed_execute` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from nxjax.config import current_settings
from nxjax.debug import keys, locate
from nxjax.errors import NonFiniteError, TransformDisabledError, user_source
from nxjax.numpy import eager
from nxjax.ops.base import DataMovement
from nxjax.trace import core, dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array, Op
from nxjax.trace.program import Equation, Program, Var
from nxjax.trace.scope import current_source
from nxjax.transforms.callback import callbacks_disabled
from nxjax.transforms.vmap import added_dims

WATCHED = ("debug_nans", "debug_infs", "debug_key_reuse", "no_execution")


def changed(asked: frozenset[str]) -> None:
    """These settings are not at rest in some thread from now on."""
    core.install_watcher(DebugWatcher() if asked.intersection(WATCHED) else None)
    eager.close(bool(asked.intersection((*WATCHED, "numpy_rank_promotion", "fast_calls", "reproducible"))))


class _Asked(NamedTuple):
    """What the settings of this thread ask for.

    Attributes:
        nothing, reuse: whether nothing may run; whether keys are watched.
        tests: what results are asked: the setting, the word for what they should not be, and the test.
    """

    nothing: bool
    reuse: bool
    tests: list[tuple[str, str, locate.Test]]


def _asked() -> _Asked:
    settings = current_settings()
    tests: list[tuple[str, str, locate.Test]] = []
    if settings.debug_nans:
        tests.append(("debug_nans", "NaN", np.isnan))
    if settings.debug_infs:
        tests.append(("debug_infs", "infinity", np.isinf))
    return _Asked(settings.no_execution, settings.debug_key_reuse, tests)


@final
class DebugWatcher:
    """Checks what runs; see `trace.core.Watcher`."""

    def execute(self, op: Op, args: Sequence[Array], params: dict[str, Any]) -> Any:
        if current_settings().mode is None:
            return core.installed_execute()(op, args, params)
        asked = _asked()
        if asked.nothing:
            raise TransformDisabledError(f"{op.name}: runs, and `no_execution` is set")
        if asked.reuse:
            keys.check_eager(op, args, params)
        y = core.installed_execute()(op, args, params)
        if asked.reuse and op.name == "random_clone":
            return keys.cloned(y)
        ys = y if op.multi else (y,)
        if isinstance(op, DataMovement) and len(args) == 1 and not args[0].shape:
            # A constant is spread, often to be chosen where there is no number. What lets it out is blamed.
            return y
        for setting, word, test in asked.tests:
            taken = op.absorbs_nan and test is np.isnan
            if any(_is_bad(v, test) for v in ((*ys, *args) if taken else ys)):
                program = _one_equation(op, args, params, ys)
                _fail(setting, word, test, program, args, ys)
        return y

    def call(
        self, program: Program, args: Sequence[Array], run: Callable[[], Any], name: str, names: Sequence[str] = ()
    ) -> Any:
        asked = _asked()
        if asked.nothing:
            raise TransformDisabledError(f"jit of {name}: runs, and `no_execution` is set")
        if asked.reuse:
            keys.check_call(program, args)
        ys = run()
        for setting, word, test in asked.tests:
            taken = test is np.isnan and any(e.op.absorbs_nan for e in program.equations)
            if taken or any(_is_bad(y, test) for y in ys):
                _fail(setting, word, test, program, args, ys, f"jit of {name}", names)
        return ys


def _is_bad(x: Any, test: locate.Test) -> bool:
    return isinstance(x, DeviceArray) and x.type.dtype in dtypes.INEXACT and locate.is_bad(x.numpy(), test)


def _one_equation(op: Op, args: Sequence[Array], params: dict[str, Any], ys: Sequence[Array]) -> Program:
    inputs, outputs = [Var(x.type) for x in args], tuple(Var(y.type) for y in ys)
    return Program(inputs, [Equation(op, tuple(inputs), outputs, params, current_source())], outputs)


def _fail(
    setting: str,
    word: str,
    test: locate.Test,
    program: Program,
    args: Sequence[Array],
    ys: Sequence[Array],
    inside: str = "",
    names: Sequence[str] = (),
) -> None:
    """Raise the error that says where it comes from; nothing if no result is bad and no op took one for a number."""
    with np.errstate(all="ignore"), callbacks_disabled():
        given = [x.numpy() for x in args]
        found = (locate.absorbed(program, given) if test is np.isnan else None) or locate.locate(program, given, test)
    here = user_source()
    if found is None and not any(_is_bad(y, test) for y in ys):
        return
    if found is None:
        # Another executor rounds otherwise than NumPy does.
        bad = next(y for y in ys if _is_bad(y, test))
        raise NonFiniteError(
            f"{setting}: a result is {word}, which no op makes when it runs by its NumPy meaning",
            got=locate.describe(bad.numpy(), test),
            source=here,
        )
    if isinstance(found, locate.Given):
        raise _given(setting, word, test, program, found, inside, names)
    e = found.equation
    source = found.source
    note = source.note if source is not None else ""
    of = f", in {note}" if note and not note.endswith(f"derivative of {e.op.name}") else ""
    rows = [(f"operand {i}", locate.describe(x, test)) for i, x in enumerate(found.operands)]
    path = [p for p in (inside, *found.path) if p]
    index = locate.first(found.result, test)
    rows += [(axis, f"element {i} of axis {d}") for axis, i, d in _elements(found.variable, index)]
    if path:
        rows.append(("inside", ", ".join(path)))
    if here is not None and source is not None and str(here) != str(source):
        rows.append(("called at", here.shown()))
    error = NonFiniteError(
        f"{setting}: {e.op.name} made the first {word}{of}",
        got=locate.describe(found.result, test),
        expected="finite numbers" if word == "infinity" else "numbers",
        source=source or here,
        more=rows,
        fix=_FIXES.get(e.op.name, "look at the operands: these values are outside the op's domain"),
    )
    error.op, error.index = e.op.name, index
    raise error


_FIXES = {
    "log": "keep the argument above 0: nx.log(nx.maximum(x, tiny)), or nx.log1p",
    "div": "keep the divisor away from 0: x / nx.where(y == 0, 1, y)",
    "sqrt": "keep the argument above 0; at 0 its derivative is infinite: nx.sqrt(x + eps)",
    "rsqrt": "keep the argument above 0: nx.rsqrt(x + eps)",
    "pow": "keep the base above 0, or use integer powers",
    "exp": "subtract the largest value first, as nx.nn.softmax and nx.nn.logsumexp do",
    "mul": "0 times infinity: find where the infinite operand comes from with nx.debug_infs(True); where `nx.where` "
    "hides it, correct its argument, not its result",
    "sub": "infinity minus infinity: find where they come from with nx.debug_infs(True)",
    "add": "infinity minus infinity: find where they come from with nx.debug_infs(True)",
}


def _elements(variable: Var, index: tuple[int, ...]) -> list[tuple[str, int, int]]:
    found = added_dims.get(variable, ())
    return [(f"vmap {name!r}" if name is not None else "vmap", index[d], d) for d, name in found if d < len(index)]


def _given(
    setting: str,
    word: str,
    test: locate.Test,
    program: Program,
    found: locate.Given,
    inside: str,
    names: Sequence[str],
) -> NonFiniteError:
    consts = len(program.inputs) - len(names) if inside else 0
    if found.index < consts:
        which = "a constant that the function closes over"
    else:
        which = f"argument {names[found.index - consts]!r}" if inside else f"operand {found.index}"
    operand = program.equations[0].op.name if not inside and program.equations else inside
    error = NonFiniteError(
        f"{setting}: the {word} was an input: it is in {which} of {operand}",
        got=locate.describe(found.value, test),
        fix="look where that value was made: checks only see what runs while they are on",
    )
    error.index = locate.first(found.value, test) if found.value.shape else ()
    return error
