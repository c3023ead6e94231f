"""`nx.scipy.optimize`: minimization of functions of a vector, as `jax.scipy.optimize`.

The whole minimization is one loop of the language, so it can be compiled and mapped.
"""

from nxjax.scipy.optimize.minimization import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
