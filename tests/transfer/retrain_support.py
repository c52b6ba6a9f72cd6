"""A tiny set of pictures and a tiny trunk, so that whole runs take seconds."""

import numpy as np

from zoo.data.images import encode_png

TINY = {"net": "lenet5", "weights": "none"}  # any registered image network will do as a trunk


def colour_pictures(per_class=12, seed=0):
    """Noise with more red, green or blue: uint8 [N, 40, 30, 3] and class numbers."""
    generator = np.random.default_rng(seed)
    labels = np.arange(3 * per_class) % 3
    pixels = generator.integers(0, 80, (len(labels), 40, 30, 3))
    pixels[np.arange(len(labels)), :, :, labels] += 120
    return pixels.astype(np.uint8), labels


def write_folder(root, names=("red", "green", "<script>alert(1)</script>"), per_class=12, seed=0):
    """Writes them into a folder a class; a label's slash becomes a sign that looks like one, as folders need."""
    pixels, labels = colour_pictures(per_class, seed)
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = root / names[label].replace("/", "\u2215")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}.png").write_bytes(encode_png(picture))
    return root
