"""Pictures to distil on: cut-outs on random grounds, windows of photographs, photographs cut by silhouettes, shapes.

Nothing here knows about classes. ``near`` finds the sources that show up in a set that must stay unseen.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

CANVAS = 136  # side of a training picture; the student sees 128 x 128 of it
PHOTOGRAPH = 900  # an opaque picture with a side of so many pixels is used by windows
SHARES = {"cut-out": 0.55, "photograph": 0.25, "cut photograph": 0.12, "made up": 0.08}
LARGEST = 36_000_000  # pixels; larger files take seconds to open
WHITE = (255, 255, 255)


def find_pictures(folders: Sequence[str]) -> list[Path]:
    """Returns the picture files below the folders, and those that scikit-learn and matplotlib ship, each file once."""
    import matplotlib
    import sklearn.datasets

    shipped = [Path(matplotlib.get_data_path()) / "sample_data", Path(sklearn.datasets.__file__).parent / "images"]
    found: dict[Path, None] = {}
    for folder in [*map(Path, folders), *shipped]:
        files = (p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg") and p.is_file())
        found.update(dict.fromkeys(sorted(p.resolve() for p in files)))
    return list(found)


def open_picture(path: Path) -> Image.Image | None:
    """Opens a picture as RGBA, shrunk to 1,600 px (a photograph) or 320 px (others); None if unreadable or large."""
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > LARGEST:
                return None
            opened.draft("RGB", (1600, 1600))
            picture = opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    side = 1600 if is_photograph(picture) else 320
    picture.thumbnail((side, side))
    return picture


def is_photograph(picture: Image.Image) -> bool:
    """Tells a large opaque picture, of which any window is a picture, from a drawing or cut-out."""
    return min(picture.size) >= PHOTOGRAPH and picture.getextrema()[3][0] == 255


def on_white(picture: Image.Image, side: int) -> np.ndarray:
    """Sets the whole picture on a white square: uint8 [side, side, 3]."""
    picture = picture.copy()
    picture.thumbnail((side, side))
    ground = Image.new("RGB", (side, side), WHITE)
    ground.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2), picture)
    return np.asarray(ground)


def near(features: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Returns the largest cosine of each row of ``features`` [N, C] with rows of ``unseen`` [M, C]."""
    mean, deviation = features.mean(0), features.std(0)
    units = [(rows - mean) / (deviation + 0.1 * deviation.mean()) for rows in (features, unseen)]
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in units]
    return (units[0] @ units[1].T).max(1)


def texture(rng: np.random.Generator) -> Image.Image:
    """Makes up a ground: one colour, a gradient, smooth noise or stripes."""
    first, second = rng.integers(0, 256, (2, 3))
    y, x = np.mgrid[0:CANVAS, 0:CANVAS] / CANVAS
    kind = rng.integers(4)
    angle = rng.uniform(0, 2 * np.pi)
    wave = np.cos(angle) * x + np.sin(angle) * y
    if kind == 0:
        mix = np.zeros_like(x)
    elif kind == 1:
        mix = (wave - wave.min()) / np.ptp(wave)
    elif kind == 2:
        coarse = rng.integers(0, 256, (n := int(rng.integers(3, 24)), n)).astype(np.uint8)
        mix = np.asarray(Image.fromarray(coarse).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)) / 255
    else:
        mix = (np.sin(wave * rng.uniform(10, 90)) > rng.uniform(-0.5, 0.5)).astype(float)
    return Image.fromarray((first + (second - first) * mix[..., None]).astype(np.uint8))


def shapes(rng: np.random.Generator) -> Image.Image:
    """Draws a few figures on a made-up ground."""
    image = texture(rng)
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(1, 9)):
        centre, radius = rng.uniform(0, CANVAS, 2), rng.uniform(6, 60)
        corners = int(rng.integers(2, 8))
        turn = np.arange(corners) * 2 * np.pi / corners
        if rng.random() < 0.5:
            turn = np.sort(rng.uniform(0, 2 * np.pi, corners))
        points = [tuple(centre + radius * np.array([np.cos(t), np.sin(t)])) for t in turn]
        colour = tuple(int(level) for level in rng.integers(0, 256, 3))
        if corners == 2:
            draw.ellipse([*(centre - radius), *(centre + radius * rng.uniform(0.5, 1.5))], fill=colour)
        elif corners == 3 and rng.random() < 0.3:
            draw.line(points, fill=colour, width=int(rng.integers(1, 9)))
        else:
            draw.polygon(points, fill=colour, outline=None if rng.random() < 0.5 else (0, 0, 0))
    return image


def window(photograph: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Cuts a square out of a photograph, small or large, mirrored and tinted at random."""
    side = int(min(photograph.size) * np.exp(rng.uniform(np.log(0.1), 0.0)))
    left, top = (int(rng.uniform(0, length - side + 1)) for length in photograph.size)
    cut = photograph.resize((CANVAS, CANVAS), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
    pixels = np.asarray(cut.convert("RGB"), np.float32)
    if rng.random() < 0.5:
        pixels = pixels[:, :: rng.choice([-1, 1])] * rng.uniform(0.6, 1.4, 3)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def compose(picture: Image.Image, ground: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Puts a cut-out on a ground, turned, scaled and shifted at random."""
    if rng.random() < 0.3:
        picture = picture.rotate(rng.uniform(-30, 30), Image.Resampling.BILINEAR, expand=True)
    tidy = rng.random() < 0.6  # fills the canvas, as in sets of cut-outs
    scale = CANVAS * (rng.uniform(0.85, 1.0) if tidy else rng.uniform(0.35, 1.3)) / max(picture.size)
    width, height = (max(2, round(length * scale)) for length in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    jitter = 0.1 if tidy else 0.5
    left = round((CANVAS - width) * rng.uniform(0.5 - jitter, 0.5 + jitter))
    top = round((CANVAS - height) * rng.uniform(0.5 - jitter, 0.5 + jitter))
    ground = ground.copy()
    ground.paste(picture, (left, top), picture)
    return ground.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.5))) if rng.random() < 0.1 else ground


def ground(photographs: Sequence[Image.Image], rng: np.random.Generator) -> Image.Image:
    """White, mostly; or made up; or a window of a photograph."""
    if (draw := rng.random()) < 0.6:
        return Image.new("RGB", (CANVAS, CANVAS), WHITE)
    if draw < 0.8 or not photographs:
        return texture(rng)
    return window(photographs[rng.integers(len(photographs))], rng)


def make_pool(sources: Iterable[Path], count: int, seed: int, pool: np.ndarray) -> int:
    """Fills the pool, uint8 [count, CANVAS, CANVAS, 3]; every source gives its pictures in one run of rows.

    Args:
        sources: The files, in the order wanted.
        count: Pictures to make.
        seed: Of everything random.
        pool: Where they go.

    Returns:
        How many sources could be used.
    """
    rng = np.random.default_rng(seed)
    photographs, cutouts = [], []
    for path in sources:
        if (picture := open_picture(path)) is not None:
            (photographs if is_photograph(picture) else cutouts).append(path)
    large = [picture for path in photographs if (picture := open_picture(path)) is not None]
    names, shares = list(SHARES), np.array(list(SHARES.values()))
    if not large:
        shares = shares * [name in ("cut-out", "made up") for name in names]
    for i in range(count):
        if i * len(cutouts) // count != (i - 1) * len(cutouts) // count or i == 0:
            picture = open_picture(cutouts[i * len(cutouts) // count])
        kind = names[rng.choice(len(names), p=shares / shares.sum())]
        if kind == "made up":
            made = shapes(rng)
        elif kind == "photograph":
            made = window(large[rng.integers(len(large))], rng)
        elif kind == "cut-out":
            made = compose(picture, ground(large, rng), rng)
        else:
            inside = window(large[rng.integers(len(large))], rng).resize(picture.size)
            inside.putalpha(picture.getchannel("A"))
            made = compose(inside, ground(large, rng), rng)
        pool[i] = np.asarray(made)
    return len(cutouts) + len(photographs)
