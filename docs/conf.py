"""The documentation as a site: `make site` writes docs/_build/html, with a search box that needs no server.

Warnings are errors there: a link that leads nowhere, a page that no table of contents has, a docstring that does not
parse. The pages of the API reference are written first, by `generate_reference`, from the tables of public names.
"""

import functools
import inspect
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

import generate_reference  # noqa: E402  (the folder of this file is no package)
import stub_signatures  # noqa: E402

import nxjax  # noqa: E402

project = "nxjax"
author = "the nxjax authors"
copyright = "the nxjax authors"
version = release = nxjax.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "mathtext"]
# Formulas need no server.
html_math_renderer = "mathtext"
exclude_patterns = ["_build", "README.md", "notebooks/data"]
html_theme = "furo"
html_title = f"nxjax {release}"
html_static_path: list[str] = []
html_show_sphinx = False
html_copy_source = False

# Pages are Markdown; what is in single backticks in a docstring is code.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"

# Notebooks keep the outputs they were saved with; a test executes them.
nb_execution_mode = "off"

# Docstrings are Google's style; types stand in the signature.
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
# No types are in comments: to look for them takes a tenth of the time.
autodoc_use_type_comments = False
autodoc_default_options = {"inherited-members": False, "undoc-members": False}
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 160
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
# An annotation `type` may mean several attributes of that name; none of them is linked then.
suppress_warnings = ["config.cache", "ref.python"]

# Faces whose signatures have the names of the stubs: `ArrayLike`, not the types that it joins.
TYPED = tuple(f"nxjax.{face}." for face in ("numpy", "lax", "nn", "random", "scipy"))
CODE = re.compile(r"(`+[^`]+`+)")


def plain(prose: str) -> str:
    """Prose as it was written: bars and stars are arithmetic there, and a name may end in an underscore."""
    return re.sub(r"([|*])|(?<=\w)_(?!\w)", lambda found: "\\" + found[0], prose)


def line_of(text: str) -> str:
    """A line of text with code in backticks as reStructuredText, where code needs a boundary: an escaped blank."""
    prose, code = CODE.split(text)[::2], CODE.split(text)[1::2]
    y = plain(prose[0])
    for held, after in zip(code, prose[1:], strict=True):
        y += held + ("\\ " if re.match(r"\w", after) else "") + plain(after)
    return y


def process_docstring(app: object, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """All lines but those of examples."""
    example = False
    for i, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[i] = line_of(line)


def process_signature(
    app: object, what: str, name: str, value: object, options: object, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Types of the faces' operands as the stubs have them; `Any` is left out."""
    if inspect.isfunction(value) and value.__module__.startswith(TYPED):
        short = name.rpartition(".")[2]
        # The stubs' types are those of Python, whatever names like them a face has.
        signature = f"({stub_signatures.parameters(value, short, stub_signatures.Types(frozenset()))})"
    plain_default = re.sub(r": Any = ", "=", signature) if signature else signature
    return re.sub(r": Any(?=[,)])", "", plain_default) if plain_default else plain_default, returned


def remember_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Once all pages are read, a name means the same each time: sphinx compares one with those of all objects."""
    python = env.domains.python_domain
    vars(python)["find_obj"] = functools.cache(python.find_obj)


def setup(app: Sphinx) -> None:
    app.connect("env-check-consistency", remember_names)
    app.connect("autodoc-process-signature", process_signature)
    # Before napoleon reads them, which knows an escaped star.
    app.connect("autodoc-process-docstring", process_docstring, priority=100)
    generate_reference.write(HERE / "reference")
