"""One decoder on many chips: the same tokens everywhere, with one contract of the cache.

A step is compiled for a target with the cache among its inputs and results, so that a cache may come from another unit:
one reads the prompt, another goes on. What runs a target here (a chip, a simulator, a runtime) writes the tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax import numpy as jnp
from nxjax.backends import target_registry as registry
from nxjax.deploy.artifact import Artifact
from nxjax.deploy.compile import compile
from nxjax.deploy.divergence import first_divergence
from nxjax.display import page
from nxjax.display.columns import columns
from nxjax.errors import NxError, ParameterError
from nxjax.generation.cache import Cache, init_cache
from nxjax.generation.config import DecoderConfig
from nxjax.generation.model import Params, extend
from nxjax.trace.boundary import entry
from nxjax.transforms.jit import jit

HERE: Final = "cpu"
_HEAD: Final = ("target", "label", "runs on", "tokens", "equal", "first that differs")


@final
@dataclass(frozen=True)
class ChipTokens:
    """What a target wrote.

    Attributes:
        target, label, runs_on: as of its `Artifact`.
        tokens: the greedy tokens; empty where nothing here runs the target.
        equal: how many of the first tokens are those of nxjax's CPU.
        margin: how far the two best logits are apart on the CPU at the first token that differs.
        differs: the first op whose result leaves the reference there; empty where all tokens are equal, or none does.
        why: what was said where nothing ran.

    >>> ChipTokens("apple-ane", "emitted", why="nothing here runs it").equal
    0
    """

    target: str
    label: str = ""
    runs_on: str = ""
    tokens: tuple[int, ...] = ()
    equal: int = 0
    margin: float = 0.0
    differs: str = ""
    why: str = ""


@final
class TokenMatrix(tuple[ChipTokens, ...]):
    """A row for each target. Prints as a table.

    >>> print(TokenMatrix([ChipTokens("tflite", "host", "LiteRT", (3, 5), 2)]))
    target  label  runs on  tokens  equal   first that differs
    tflite  host   LiteRT   3 5     2 of 2
    """

    __slots__ = ()

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for row in self:
            last = row.differs or row.why
            if row.tokens and row.equal < len(row.tokens):
                last = (
                    f"token {row.equal}, two best logits {row.margin:.2g} apart; {last or 'no op leaves the reference'}"
                )
            told = " ".join(map(str, row.tokens)) or "-"
            yield row.target, row.label, row.runs_on, told, f"{row.equal} of {len(row.tokens)}", last

    def __repr__(self) -> str:
        return "\n".join(columns([_HEAD, *self._rows()]))

    def _repr_html_(self) -> str:
        return page.page(page.table(_HEAD, list(self._rows())))


@entry
def tokens_on(
    params: Params,
    config: DecoderConfig,
    prompt: Sequence[int],
    targets: Sequence[str],
    *,
    max_tokens: int = 8,
    room: int | None = None,
    cache_dtype: Any = "float32",
    reader: str = HERE,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> TokenMatrix:
    """The greedy tokens of a decoder on targets of `nx.compile`, beside those of nxjax's CPU.

    Args:
        params, config: of the decoder; weights may be `QArray`s, as targets take them.
        prompt: tokens.
        targets: names. What no tool here can run is compiled, and its row says so.
        max_tokens: how many tokens to write. Simulators take seconds for each.
        room: of the cache; by default the prompt and these tokens.
        cache_dtype: as for `init_cache`.
        reader: the target that reads the prompt; the cache goes from there to the others. "cpu" is nxjax's.
        options: of `nx.compile`, by target.

    Returns:
        A row for each target; ``[i].equal`` is ``max_tokens`` where all tokens are equal.

    Raises:
        ParameterError: an empty prompt, no place for the tokens, or a reader that nothing here can run.

    >>> from nxjax.generation import init
    >>> config = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, kv_heads=1, head_size=4, hidden=8, context=16)
    >>> matrix = tokens_on(init(nx.random.key(0), config), config, [1, 2], ["tflite"], max_tokens=3)
    >>> matrix[0].label, matrix[0].equal
    ('host', 3)
    """
    given = [int(t) for t in prompt]
    most = len(given) + max_tokens
    if not given or max_tokens < 1:
        raise ParameterError("tokens_on: prompt and max_tokens", got=(given, max_tokens), expected="at least 1 of each")
    room = most if room is None else room
    if room < most:
        raise ParameterError("tokens_on: room", got=room, expected=f"{most} or more, for the prompt and the tokens")

    def step(tokens: Any, cache: Cache) -> tuple[Any, Cache]:
        return extend(params, cache, tokens, config)

    made: dict[str, dict[str, Any]] = {
        name: {"constants": (), **(options or {}).get(name, {})} for name in (*targets, reader)
    }
    asked = jnp.asarray([given], "int32"), init_cache(config, 1, room, cache_dtype)
    own = jit(step)
    first = own(*asked) if reader == HERE else compile(step, target=reader, **made[reader])(*asked).run(*asked)
    expected: list[int] = []
    steps: list[tuple[Any, tuple[Any, Cache]]] = []
    for y, before in _written(own, first, max_tokens):
        expected.append(int(y.argmax()))
        steps.append((y, before))
    rows: list[ChipTokens] = []
    for name in targets:
        try:
            artifact = compile(step, target=name, **made[name])(*steps[-1][1])
        except NxError as error:
            rows.append(ChipTokens(name, why=f"{error.what}; {error.got}"))
            continue
        rows.append(_on(artifact, first, expected, steps, made[name]))
    return TokenMatrix(rows)


def _written(run: Any, first: Any, count: int) -> Iterator[tuple[Any, tuple[Any, Cache]]]:
    """Logits [vocabulary] of each greedy token, and the arguments of the step behind it."""
    (y, cache), left = first, count
    while True:
        y = np.asarray(y, np.float32)[0]
        args = jnp.asarray([[int(y.argmax())]], "int32"), cache
        yield y, args
        left -= 1
        if not left:
            return
        y, cache = run(*args)


def _on(
    artifact: Artifact, first: Any, expected: Sequence[int], steps: Sequence[Any], options: Mapping[str, Any]
) -> ChipTokens:
    """The row of an artifact, which goes on where the prompt ends."""
    name, label = artifact.target, str(artifact.label)
    if not artifact.runs_on:
        return ChipTokens(name, label, why="; ".join(artifact.notes) or "nothing here runs it")
    try:
        tokens = [int(y.argmax()) for y, _ in _written(artifact.run, first, len(expected))]
    except NxError as error:
        return ChipTokens(name, label, artifact.runs_on, why=f"{error.what}; {error.got}")
    equal = next((i for i, (a, b) in enumerate(zip(tokens, expected, strict=True)) if a != b), len(expected))
    margin, differs = 0.0, ""
    if equal < len(expected):
        best = np.sort(steps[equal][0])
        margin = float(best[-1] - best[-2])
        # The step whose logits are others: the one behind the token before.
        stored = artifact.stored(*steps[max(equal - 1, 0)][1])
        settings = {k: v for k, v in options.items() if k != "constants"}
        differs = str(first_divergence(registry.get(name), artifact.form, stored, settings) or "")
    return ChipTokens(name, label, artifact.runs_on, tuple(tokens), equal, margin, differs)
