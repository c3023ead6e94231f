"""Messages of a conversation as one text, by the template that comes with a tokenizer. Knows no tokens.

Templates are Jinja, of files that others wrote: they run in Jinja's sandbox, and change nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nxjax.errors import InvalidFileError, MissingExtraError


def rendered(template: str, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
    """The text of messages.

    Args:
        template: in Jinja, as ``chat_template`` of Hugging Face's files.
        messages: each with "role" and "content".
        variables: other names that the template may use.

    Raises:
        InvalidFileError: a template with an error, or one that refuses the messages.
        MissingExtraError: jinja2 is not installed.

    >>> rendered("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", [{"role": "a", "content": "b"}])
    '<a>b'
    """
    try:
        sandbox: Any = importlib.import_module("jinja2.sandbox")
    except ImportError as error:
        raise MissingExtraError(
            "templates of conversations need a package that is not installed",
            got=error,
            fix="pip install 'nxjax[genai]'",
        ) from None

    def refuse(why: str) -> None:
        raise ValueError(why)

    def written(x: Any, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, **how)

    around = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _answers()]
    )
    around.globals |= {"raise_exception": refuse, "strftime_now": lambda form: datetime.now().strftime(form)}
    around.filters["tojson"] = written
    given = {"tools": None, "documents": None, **variables}
    try:
        return around.from_string(template).render(messages=[dict(m) for m in messages], **given)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:300]
        raise InvalidFileError("the template of conversations fails at these messages", got=what) from None


def _answers() -> Any:
    """The tag of templates around what the model says, which training asks for; it changes no text."""
    extension: Any = importlib.import_module("jinja2.ext").Extension

    def parse(self: Any, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    return type("Answers", (extension,), {"tags": {"generation"}, "parse": parse, "identifier": "answers"})
