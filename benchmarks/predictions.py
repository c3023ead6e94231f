"""How well times are predicted: of random networks that were held out, on each target, and of real models.

The rows of a target are the mean error by each kind of model, the smaller the better; beside it the roofline of our
own, times a factor. Real models are larger than all that was learned from.
"""

from __future__ import annotations

import importlib.util

from benchmarks.runner import Figure

# Target and how many random networks.
TARGETS = (("cpu", 150), ("ethos-u55", 150), ("ethos-u85", 150), ("tpu-v5e", 40))
NEEDS = {"ethos-u55": "ethosu", "ethos-u85": "ethosu", "tpu-v5e": "libtpu"}
REAL = ("ds_cnn", "mobilenet_v2", "resnet18")


def figures() -> list[Figure]:
    from nxjax import predict

    rows: list[Figure] = []
    for target, count in (*TARGETS, ("edgetpu", 0)):
        if target in NEEDS and importlib.util.find_spec(NEEDS[target]) is None:
            continue
        if count:
            predictor = predict.fit(target, count=count, progress=False)
        else:
            predictor = predict.fit(target, predict.edge_tpu(), basis=predict.published.SOURCE)
        roof = predictor.scores.get("scaled")
        for name, s in predictor.scores.items():
            note = f"within 10 %: {s.within:.0%}, rank {s.rank:.3f}, nine in ten within {s.band:.2f}, {predictor.basis}"
            peer = None if roof is None else 100 * roof.error
            star = " *" if name == predictor.chosen else ""
            label = f"{target}, {s.count} networks: {name}{star}"
            rows.append(Figure(label, 100 * s.error, peer, "a scaled roofline", None, note, unit="% error"))
        if target in ("cpu", "ethos-u55"):
            rows += [real(predictor, name) for name in REAL]
    return rows


def real(predictor: object, name: str) -> Figure:
    """A model of `benchmarks.models`, predicted and timed."""
    from benchmarks.models import MODELS
    from nxjax import predict

    assert isinstance(predictor, predict.Predictor)
    model = MODELS[name]
    params, x = model.init(0), model.example(0)
    program = lambda x: model.apply(params, x)
    found = predictor(program)(x)
    [sample] = predict.gather(predictor.target, [(name, program, (x,))], progress=False)
    note = f"{found.basis}{'; beyond what was learned from' if found.beyond else ''}"
    microseconds = (found.seconds * 1e6, sample.seconds * 1e6)
    return Figure(f"{predictor.target}, {name}", *microseconds, sample.basis, None, note, unit="us")
