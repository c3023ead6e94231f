"""Calls of the public API, each made of nxjax and of JAX, and how many answers are the same.

``python -m benchmarks.differential [AREA ...]`` prints a row per area: answers compared and how many are the same in
value, dtype, weak type and shape, called as they stand, under ``jit``, ``jvp``, ``vjp`` and ``vmap``.
``--list`` prints every difference.
"""
