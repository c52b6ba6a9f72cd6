"""The data sets that ``zoo train`` knows by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.data.arrays import Examples, Split

DATA_LICENCES = {
    "digits": "data: UCI optical recognition of handwritten digits, CC BY 4.0",
    "mnist": "data: MNIST, CC BY-SA 3.0",
    "mnist-sample": "data: MNIST, CC BY-SA 3.0",
}


def load(data: str, split: str, data_dir: Path | None, download: bool, size: Any, num_classes: int) -> "Split":
    """Loads and checks the data before anything is trained.

    Args:
        data: A key of `DATA_LICENCES`.
        split: For digits: how they are split.
        data_dir: For mnist: where its files are.
        download: Fetch them first.
        size: The network's input, (height, width, channels).
        num_classes: Labels must lie below it.

    Returns:
        Examples to train on and to test on.

    Raises:
        ValueError: Another name, an input that does not fit, or bad examples.
    """
    from zoo.data import digits, mnist
    from zoo.data.arrays import Split, check_examples

    if data not in DATA_LICENCES:
        raise ValueError(f"--data is one of {', '.join(DATA_LICENCES)}; got {data!r}")
    if not isinstance(size, tuple) or len(size) != 3 or size[0] != size[1] or size[2] != 1:
        raise ValueError(f"{data} are square images of one channel, but the network takes inputs of {size}")
    if data == "digits":
        examples = digits.load(split, size[0])
    elif data == "mnist-sample":
        examples = mnist.sample(size[0])
    elif data_dir is None:
        raise ValueError("--data mnist reads a folder: give --data-dir DIR (and --download to fetch mnist.npz into it)")
    else:
        if download:
            mnist.download(data_dir)
        examples = mnist.load(data_dir, size[0])
    return Split(*(check_examples(*part, size=size, num_classes=num_classes, what=data) for part in examples))


def hold_out(examples: "Examples", fraction: float, seed: int) -> tuple["Examples", "Examples | None"]:
    """Sets a part of every class aside for validation.

    Args:
        examples: What there is to train on.
        fraction: How much of each class, 0 to below 1; at least one example of a class stays for training.
        seed: Decides which.

    Returns:
        The rest and the part set aside; None for a fraction of 0.

    Raises:
        ValueError: So small a fraction that nothing is set aside.
    """
    import numpy as np

    from zoo.data.arrays import Examples

    if not fraction:
        return examples, None
    aside = np.zeros(len(examples.labels), bool)
    chance = np.random.default_rng(seed)
    for label in np.unique(examples.labels):
        members = chance.permutation(np.flatnonzero(examples.labels == label))
        aside[members[: min(round(len(members) * fraction), len(members) - 1)]] = True
    if not aside.any():
        raise ValueError(f"--validation {fraction} of {len(aside)} examples is none of any class; give more")
    images, labels = examples
    return Examples(images[~aside], labels[~aside]), Examples(images[aside], labels[aside])
