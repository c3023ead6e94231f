"""Hardware-aware architecture search: spaces, strategies, costs on a target."""

from nxjax.nas import blocks as blocks
from nxjax.nas.costs import Costs as Costs
from nxjax.nas.differentiable import Found as Found
from nxjax.nas.differentiable import Site as Site
from nxjax.nas.differentiable import Supernet as Supernet
from nxjax.nas.differentiable import differentiable as differentiable
from nxjax.nas.result import Result as Result
from nxjax.nas.result import Trial as Trial
from nxjax.nas.search import reward as reward
from nxjax.nas.search import search as search
from nxjax.nas.space import Candidate as Candidate
from nxjax.nas.space import Choose as Choose
from nxjax.nas.space import Space as Space
from nxjax.nas.space import key_of as key_of
from nxjax.nas.strategies import Bayesian as Bayesian
from nxjax.nas.strategies import Evolution as Evolution
from nxjax.nas.strategies import Exhaustive as Exhaustive
from nxjax.nas.strategies import Random as Random
from nxjax.nas.strategies import Strategy as Strategy

__all__ = [
    "Bayesian",
    "Candidate",
    "Choose",
    "Costs",
    "Evolution",
    "Exhaustive",
    "Found",
    "Random",
    "Result",
    "Site",
    "Space",
    "Strategy",
    "Supernet",
    "Trial",
    "blocks",
    "differentiable",
    "key_of",
    "reward",
    "search",
]
