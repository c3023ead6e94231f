"""`nx.predict`: predicts the time of a program on a target without compiling for it, learned from the target's timings.

predictor = nx.predict.fit("ethos-u55", count=200)      # random nets, timed by the target's own compiler
predictor(f)(x)                                         # seconds, a 90 % interval, the source of the timings
print(predictor.report)                                 # held-out error and rank correlation
"""

from __future__ import annotations

from nxjax.predict.features import features as features
from nxjax.predict.predictor import Prediction as Prediction
from nxjax.predict.predictor import Predictor as Predictor
from nxjax.predict.predictor import fit as fit
from nxjax.predict.predictor import load as load
from nxjax.predict.programs import programs as programs
from nxjax.predict.published import edge_tpu as edge_tpu
from nxjax.predict.samples import Sample as Sample
from nxjax.predict.samples import gather as gather
from nxjax.predict.scores import Scores as Scores

__all__ = [
    "Prediction",
    "Predictor",
    "Sample",
    "Scores",
    "edge_tpu",
    "features",
    "fit",
    "gather",
    "load",
    "programs",
]
