"""``python -m nxjax.demo``: train, quantize, tell what ran where, compile for every chip, read text, draw."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nxjax as nx
from nxjax.commands.command import command
from nxjax.demo import data, deploy, figure, hybrid, ipu, model, reading, table
from nxjax.demo.train import train

BAR = 0.97
POINTS = 0.005


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("a whole number, 1 or more")
    return value


@command
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nxjax.demo", description=__doc__)
    parser.add_argument("--epochs", type=_positive, default=12, help="passes over the training images (default 12)")
    parser.add_argument("--seed", type=int, default=0, help="of initialization and shuffling (default 0)")
    parser.add_argument("--output", type=Path, default=Path("digits.png"), help="the picture (default digits.png)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    folder = options.output.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        parser.error(f"--output: nothing can be written to {folder}")

    training, test = data.load()
    print(f"digits: {len(training.images)} training and {len(test.images)} test images of 8x8 pixels")
    result = train(training, epochs=options.epochs, seed=options.seed, progress=not options.quiet)
    print(f"trained {len(result.losses)} steps in {result.seconds:.1f} s on {nx.devices()[0]}\n")

    calibration = [(result.params, training.images[i : i + 64]) for i in range(0, 512, 64)]
    quantized = nx.quantize(model.predict, "int8", calibrate=calibration, progress=not options.quiet and None)
    rows = table.rows(result.params, quantized, test)
    last, plan = hybrid.run(quantized, result.params, test)
    rows.append(last)
    print(table.render(rows))
    for reason in table.missing():
        print(f"not available here: {reason}")
    loss = max(r.accuracy for r in rows if r.program == "float32") - min(
        r.accuracy for r in rows if r.program == "int8"
    )
    print(f"\ninteger arithmetic costs {100 * loss:.2f} points of accuracy, of {len(test.images)} test images")

    print(f"\none network on several units, batch after batch:\n{plan}")

    print("\ncompiling for every chip:")
    print(deploy.render(list(deploy.rows(quantized, result.params, test))))

    print("\none epoch of training on the model of an IPU:")
    print(ipu.trained(training, test, options.seed))

    print("\nreading rendered text with PP-OCRv4, a network from an ONNX file:")
    print(reading.told())

    logits = np.asarray(nx.jit(model.predict)(result.params, test.images))
    figure.save(options.output.absolute(), result.losses, logits, test)
    print(f"\nloss curve and misclassified digits: {options.output}")
    print(f"timeline of the hybrid row: {hybrid.save(options.output.absolute(), plan).name}")
    worst = min(r.accuracy for r in rows)
    if worst < BAR and options.epochs >= 12:
        print(f"accuracy {worst:.2%} is below {BAR:.0%}", file=sys.stderr)
        return 1
    if loss > POINTS:
        print(f"integers lose {100 * loss:.2f} points, more than {100 * POINTS:.1f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
