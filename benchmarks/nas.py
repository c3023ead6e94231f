"""Architecture search on two small tasks: against a network made by hand, and evolution against random search.

``python -m benchmarks nas`` (not a part of "all": it trains some hundreds of networks, about twenty minutes on two
cores). A search may use as many Ethos-U55-128 cycles, by Vela's estimate, as the network made by hand; accuracy is on
images that neither training nor search has seen, the mean over trainings from five seeds. Evolution and random search
have the same budget and the same trainings: an architecture gives the same accuracy whoever finds it.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

import nxjax as nx
from benchmarks.runner import Figure
from nxjax import lax, nas, nn
from nxjax.demo.data import load
from nxjax.example_libraries.optimizers import adam
from nxjax.nas import blocks

TARGET = "ethos-u55-128"
SEEDS = 10
BUDGET = 40
BATCH = 32


class Task(NamedTuple):
    """Images [n, h, w, 1] and labels, in three parts; the network made by hand; epochs of a training; the space."""

    name: str
    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    epochs: int
    space: nas.Space
    by_hand: dict[str, int]

    @property
    def baseline(self) -> Any:
        return self.space.build(self.by_hand).model

    @property
    def shape(self) -> tuple[int, ...]:
        return self.train[0].shape[1:]

    @property
    def classes(self) -> int:
        return int(self.train[1].max()) + 1


def genes(space: nas.Space, layers: dict[str, tuple[Any, ...]]) -> dict[str, int]:
    """A network by its layers, each a tuple of what its decisions take, flattened before the dense layer."""
    wanted: dict[str, Any] = {"depth": len(layers) - 1, "head": "flat"}
    for name, taken in layers.items():
        decisions = ("width", "size", "stride") if name == "stem" else ("kind", "width", "size", "stride")
        wanted.update({f"{name}.{d}": x for d, x in zip(decisions, taken, strict=True)})
    return space.answered(lambda name, options: list(options).index(wanted[name])).genes


def digits() -> Task:
    """scikit-learn's digits; by hand: two convolutions and a dense layer, as in the demo, at a quarter of its width."""
    train, test = load()
    n = len(train.images) * 3 // 4
    parts = (train.images[:n], train.labels[:n]), (train.images[n:], train.labels[n:])
    small = blocks.classifier(10, depth=(1, 2, 3), widths=(2, 4, 6, 8, 12, 16), name="digits")
    by_hand = {"stem": (4, 3, 1), "block0": ("conv", 8, 3, 2)}
    return Task("digits", *parts, (test.images, test.labels), 12, small, genes(small, by_hand))


def keywords(count: int = 3200, classes: int = 10, seed: int = 0) -> Task:
    """Spectrograms like those of spoken words: 32 frames of 16 bands. Made up, and said so: no recordings.

    A word is two gliding formants whose course is the word's own; its speaker's pitch, speed, loudness and a background
    differ from example to example. By hand: a small DS-CNN (Zhang et al. 2017, "Hello
    Edge"), whose last layer sees all places, since it is the better one here.
    """
    rng = np.random.default_rng(seed)
    knots = rng.uniform(1, 15, (classes, 2, 4))
    frames, bands = np.arange(32), np.arange(16)
    labels = rng.integers(classes, size=count).astype(np.int32)
    images = np.empty((count, 32, 16, 1), np.float32)
    for i, word in enumerate(labels):
        start, length = rng.uniform(0, 8), rng.uniform(14, 24)
        at = np.clip((frames - start) / length, 0, 1) * 3
        pitch, loud = rng.normal(0, 0.9), rng.uniform(0.5, 1.3)
        y = rng.exponential(0.35, (32, 16))
        for formant in knots[word]:
            course = np.interp(at, range(4), formant + rng.normal(0, 0.7, 4)) + pitch
            voiced = ((frames > start) & (frames < start + length))[:, None]
            y += voiced * loud * np.exp(-(((bands - course[:, None]) / 0.9) ** 2))
        images[i, ..., 0] = np.log1p(y)
    cut = [slice(0, count // 2), slice(count // 2, count * 3 // 4), slice(count * 3 // 4, count)]
    parts = [(images[s], labels[s]) for s in cut]
    space = blocks.classifier(classes, name="keywords")
    by_hand = {"stem": (8, 3, 2), "block0": ("separable", 16, 3, 2), "block1": ("separable", 16, 3, 1)}
    return Task("keywords", *parts, 12, space, genes(space, by_hand))


def trained(task: Task, model: Any, seed: int, data: tuple[np.ndarray, np.ndarray]) -> float:
    """Accuracy on ``data`` after a training from ``seed``."""
    init, apply = model
    _, params = init(nx.random.key(seed), (-1, *task.shape))
    optimizer = adam(3e-3)

    def loss(p: Any, x: Any, y: Any) -> Any:
        return -nx.mean(nx.sum(nn.log_softmax(apply(p, x)) * nn.one_hot(y, task.classes), axis=-1))

    @nx.jit
    def epoch(i: Any, state: Any, images: Any, labels: Any) -> Any:
        def step(carry: Any, batch: Any) -> Any:
            i, state = carry
            slope = nx.grad(loss)(optimizer.params_fn(state), *batch)
            return (i + 1, optimizer.update_fn(i, slope, state)), None

        return lax.scan(step, (i, state), (images, labels))[0]

    images, labels = task.train
    order = np.random.default_rng(seed)
    i, state = nx.numpy.int32(0), optimizer.init_fn(params)
    for _ in range(task.epochs):
        rows = order.permutation(len(images))[: len(images) // BATCH * BATCH].reshape(-1, BATCH)
        i, state = epoch(i, state, images[rows], labels[rows])
    guess = np.argmax(np.asarray(nx.jit(apply)(optimizer.params_fn(state), data[0])), axis=-1)
    return float((guess == data[1]).mean())


def costs_of(task: Task) -> nas.Costs:
    example = np.zeros((1, *task.shape), np.float32)
    rng = np.random.default_rng(0)

    def deployed(model: Any) -> Any:
        init, apply = model
        shapes = nx.eval_shape(lambda: init(nx.random.key(0), example.shape)[1])
        return apply, nx.tree.map(lambda t: rng.standard_normal(t.shape).astype(np.float32), shapes), (example,)

    return nas.Costs(TARGET, deployed, figures=("cycles", "sram_peak"))


class Searcher:
    """Searches of one task, which pay for each architecture once between them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.costs = costs_of(task)
        self.limit = self.costs(task.baseline)["cycles"]
        self.paid: dict[str, float] = {}
        self.priced: dict[str, Any] = {}
        # A model and what it is known by.
        self.space = nas.Space(lambda choose: (task.space(choose), nas.key_of(choose.genes)))

    def price(self, model: tuple[Any, str]) -> dict[str, float]:
        layer, key = model
        if key not in self.priced:
            self.priced[key] = self.costs(layer)
        return self.priced[key]

    def accuracy(self, model: tuple[Any, str], _: int) -> float:
        layer, key = model
        if key not in self.paid:
            self.paid[key] = trained(self.task, layer, zlib.crc32(key.encode()) % 1000, self.task.validation)
        return self.paid[key]

    def search(self, strategy: str, seed: int, **options: Any) -> nas.Result:
        return nas.search(
            self.space,
            self.accuracy,
            budget=BUDGET,
            strategy=strategy,
            costs=self.price,
            limits={"cycles": self.limit},
            seed=seed,
            **options,
        )

    def improved(self, progress: bool | None = None) -> nas.Trial:
        """The best of a search that begins with the network made by hand; accuracy is that of threefold validation.

        Of its five best the one that is best again from other seeds: the best of many is partly luck, which does not
        stay.
        """
        result = nas.search(
            self.space,
            lambda model, _: self.validated(model[0], 2000),
            budget=2 * BUDGET,
            costs=self.price,
            limits={"cycles": self.limit},
            start=[self.task.by_hand],
            population=16,
            tournament=6,
            progress=progress,
        )
        first = sorted(result.trained, key=lambda t: -(t.fitness or 0.0))[:5]
        again = lambda t: self.validated(self.space.build(t.genes).model[0], 3000)
        return max(first, key=lambda t: (t.fitness or 0.0) + again(t))

    def validated(self, layer: Any, seed: int) -> float:
        """Accuracy on each third of the images that are not for the test, after a training on the other two."""
        images, labels = self.whole
        fold = np.random.default_rng(0).permutation(len(images)) % 3
        found = []
        for k in range(3):
            part = self.task._replace(train=(images[fold != k], labels[fold != k]))
            found.append(trained(part, layer, seed + k, (images[fold == k], labels[fold == k])))
        return float(np.mean(found))

    @property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """All that is not for the test."""
        return tuple(np.concatenate(pair) for pair in zip(self.task.train, self.task.validation, strict=True))

    def tested(self, layer: Any) -> float:
        """Mean accuracy on the test images over trainings on all others from five seeds."""
        part = self.task._replace(train=self.whole)
        return float(np.mean([trained(part, layer, 4000 + seed, self.task.test) for seed in range(5)]))


def figures() -> list[Figure]:
    y: list[Figure] = []
    for task in (digits(), keywords()):
        searcher = Searcher(task)
        evolved, drawn = [], []
        for seed in range(SEEDS):
            evolved.append(searcher.search("evolution", seed, population=12, tournament=4))
            drawn.append(searcher.search("random", seed))
        ours = np.array([r.best.fitness for r in evolved])
        theirs = np.array([r.best.fitness for r in drawn])
        wins = f"{(ours > theirs).sum()} wins, {(ours == theirs).sum()} ties of {SEEDS}"
        best = searcher.improved()
        cycles, candidate = best.figures["cycles"], searcher.space.build(best.genes)
        by_hand, found = searcher.tested(task.baseline), searcher.tested(candidate.model[0])
        wrong = lambda accuracy: 1e4 * (1 - accuracy)
        y.append(
            Figure(
                f"nas {task.name}: evolution",
                wrong(ours.mean()),
                wrong(theirs.mean()),
                "random search",
                1.0,
                f"{wins}; errors in 10,000 on validation images, mean over seeds",
                unit="errors",
            )
        )
        y.append(
            Figure(
                f"nas {task.name}: found",
                wrong(found),
                wrong(by_hand),
                "the network made by hand",
                1.0,
                f"{cycles:,.0f} of {searcher.limit:,.0f} cycles; errors in 10,000 on test images; {candidate}",
                unit="errors",
            )
        )
    return y
