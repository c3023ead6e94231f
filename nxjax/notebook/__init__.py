"""What notebooks show of arrays, programs and jitted functions, as pages and pictures of `nxjax.display`.

Loaded when the first is asked for: values find these functions by name (`trace.pages`), and need not know them.
"""

from nxjax.trace.lazy import lazy, module_of_name

__getattr__, __dir__ = lazy(
    __name__,
    module_of_name(
        {
            "arrays": "array_page",
            "functions": "jitted_page lowered_page compiled_page retrace_page",
            "programs": "program_page program_picture",
        }
    ),
)
