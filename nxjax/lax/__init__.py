"""`jax.lax`'s functions under their own names: strict about shapes and dtypes, thin over the ops."""

from nxjax.lax.algebra import *
from nxjax.lax.control import *
from nxjax.lax.elementwise import *
from nxjax.lax.structural import *
