"""Messages of a conversation as one text, by the template that comes with a tokenizer. Knows no tokens.

Templates are Jinja, of files that others wrote: they run in Jinja's sandbox, and change nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
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

    around = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    around.globals["raise_exception"] = refuse
    around.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    try:
        return around.from_string(template).render(messages=[dict(m) for m in messages], **variables)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"[:300]
        raise InvalidFileError("the template of conversations fails at these messages", got=what) from None
