"""Trains a DenseNet-BC for small images as its paper does, with Nesterov momentum and, to compare, without.

SGD at 0.1, divided by 10 at half and at three quarters of the steps, L2 of 1e-4, random crops from padded images (and
mirror images, but not of digits): section 4.2 of arXiv:1608.06993. On the digits at 8 x 8, whose weights are kept, or
on CIFAR's binary files.

    python weights/recipes/densenet_cifar.py --out weights
    python weights/recipes/densenet_cifar.py --data cifar10 --data-dir cifar-10-batches-bin --epochs 300 --out runs
"""

import argparse
import csv
import functools
import importlib.metadata
from pathlib import Path
from typing import Any

import keras
import numpy as np

import zoo
from zoo.data import cifar, digits
from zoo.data.augment import normalize, pad_crop_flip
from zoo.data.stream import array_stream
from zoo.training import Trainer
from zoo.training.schedules import piecewise
from zoo.weights import bundled

OPTIMIZERS = ("nesterov", "sgd")
DIGITS = (
    "scikit-learn's handwritten digits of 8 x 8 pixels, as they are: white ink that reaches the upper and lower edge, "
    "on black paper"
)
LICENCE = {
    "digits": "weights: Apache-2.0; data: UCI optical recognition of handwritten digits, CC BY 4.0",
    "cifar10": "weights: Apache-2.0; data: CIFAR-10, A. Krizhevsky 2009, no licence stated",
}


def load(data: str, data_dir: str) -> tuple[Any, Any, int, Any]:
    """Returns (images, labels) to train and to test on, the channels, and the augmentation."""
    if data == "digits":
        train, test = digits.load("random", 8)
        return tuple(train), tuple(test), 1, functools.partial(pad_crop_flip, pad=1, flip=False)
    parts = [cifar.load_cifar10(data_dir, part) for part in ("train", "test")]
    mean, std = parts[0].images.mean((0, 1, 2)).tolist(), parts[0].images.std((0, 1, 2)).tolist()
    train, test = ((np.asarray(normalize(part.images, mean, std)), part.labels) for part in parts)
    return train, test, 3, pad_crop_flip


def train_one(optimizer: str, given: argparse.Namespace) -> tuple[Any, float, list[dict[str, Any]]]:
    """Trains one network; returns it, its accuracy on the test part, and the history's lines."""
    train, test, channels, augment = load(given.data, given.data_dir)
    keras.utils.set_random_seed(given.seed)
    options = {"depth": given.depth, "growth_rate": given.growth_rate, "in_channels": channels}
    model = zoo.densenet_cifar(seed=given.seed, input_shape=train[0].shape[1:], **options)
    stream = array_stream(*train, batch_size=given.batch, seed=given.seed, augment=augment, drop_remainder=True)
    steps = given.epochs * stream.batches
    trainer = Trainer(
        model,
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True) if optimizer == "nesterov" else "sgd",
        learning_rate=piecewise([steps // 2, 3 * steps // 4], [0.1, 0.01, 0.001]),
        global_batch=given.batch,
        seed=given.seed,
    )
    tests = array_stream(*test, batch_size=256, shuffle=False)
    history = trainer.fit(stream, epochs=given.epochs, validation=tests, restore_best=False, progress="none")
    return model, trainer.evaluate(tests)["accuracy"], history.lines


def main() -> None:
    """Trains with both optimizers, and keeps the weights of the first and the comparison of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=sorted(LICENCE), default="digits")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--depth", type=int, default=40)
    parser.add_argument("--growth-rate", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/densenet_cifar"))
    parser.add_argument("--compare", type=Path, help="CSV for the two learning curves")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for optimizer in OPTIMIZERS if given.compare else OPTIMIZERS[:1]:
        model, accuracy, lines = train_one(optimizer, given)
        print(f"{optimizer}: test accuracy {accuracy:.4f} after {given.epochs} epochs", flush=True)
        rows += [{"optimizer": optimizer, **{k: v for k, v in line.items() if np.isscalar(v)}} for line in lines]
        if optimizer != OPTIMIZERS[0]:
            continue
        card = {
            "net": "densenet_cifar",
            "options": {
                "depth": given.depth,
                "growth_rate": given.growth_rate,
                **({"in_channels": 1} if given.data == "digits" else {}),
            },
            "data": {"data": given.data, "size": 8, "split": "random"}
            if given.data == "digits"
            else {"data": given.data},
            **(
                {"pictures": bundled.pictures_of([digits.load("random", 8).train.images], DIGITS)}
                if given.data == "digits"
                else {}
            ),
            "recipe": f"python weights/recipes/densenet_cifar.py --data {given.data} --depth {given.depth} "
            f"--growth-rate {given.growth_rate} --epochs {given.epochs} --batch {given.batch} --seed {given.seed}",
            "seed": given.seed,
            "accuracy": round(float(accuracy), 4),
            "licence": LICENCE[given.data],
            "versions": {"scoped-zoo": zoo.__version__}
            | {name: importlib.metadata.version(name) for name in ("tensorflow", "keras", "numpy", "scikit-learn")},
        }
        bundled.save(model, given.out / f"densenet_cifar-{given.data}.safetensors", card)
    if given.compare:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with given.compare.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
