"""The table that random programs are made from: what each line needs and how it is written, with JAX's public names.

A row is a template, or a function where a template cannot say it. Knows nothing of how programs are grown, run or judged.
"""

from typing import Final

from nxjax.testing.productions.custom import CUSTOM
from nxjax.testing.productions.floats import FLOATS
from nxjax.testing.productions.indexing import INDEXING
from nxjax.testing.productions.integers import INTEGERS
from nxjax.testing.productions.models import MODELS
from nxjax.testing.productions.nested import NESTED
from nxjax.testing.productions.others import OTHERS
from nxjax.testing.productions.products import PRODUCTS
from nxjax.testing.productions.reductions import REDUCTIONS
from nxjax.testing.productions.shapes import SHAPES

ROWS: Final = (
    *FLOATS, *INTEGERS, *REDUCTIONS, *SHAPES, *INDEXING, *PRODUCTS, *OTHERS, *MODELS, *NESTED, *CUSTOM,
)  # fmt: skip
