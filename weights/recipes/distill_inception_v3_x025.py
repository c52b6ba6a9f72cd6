"""Distils a trained Inception-v3 into one of a quarter of its width at 128 px: ``weights/inception_v3_x025``.

The student's pooled features, through a linear map that is thrown away afterwards, are fitted to the teacher's at four
depths. Pictures are drawn from folders and put on random grounds at random places, or made up (shapes, textures); the
teacher looks at each once, the student at a new crop, mirror image and colour of it in every epoch.

    python weights/recipes/distill_inception_v3_x025.py --teacher TEACHER --pictures EMOJI CLIPART --out weights
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

CANVAS = 144  # side of a training picture; the student sees 128 x 128 of it
SIZE = 128
# Student's end point -> teacher's end points that its pooled features must be able to express.
MATCHES = {
    "Mixed_6b": ("Mixed_6b",),
    "Mixed_6e": ("Mixed_6b", "Mixed_6e"),
    "Mixed_7c": ("Mixed_6e", "Mixed_7a", "Mixed_7c"),
}


def find_pictures(folders: Sequence[str]) -> list[Path]:
    """Returns the picture files below the folders, and those that scikit-learn and matplotlib ship, sorted."""
    import matplotlib
    import sklearn.datasets

    shipped = [Path(matplotlib.get_data_path()) / "sample_data", Path(sklearn.datasets.__file__).parent / "images"]
    found = []
    for folder in [*map(Path, folders), *shipped]:
        found += sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".png", ".jpg", ".jpeg") and p.is_file())
    return found


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
        turn = (
            np.sort(rng.uniform(0, 2 * np.pi, corners))
            if rng.random() < 0.5
            else np.arange(corners) * 2 * np.pi / corners
        )
        points = [tuple(centre + radius * np.array([np.cos(t), np.sin(t)])) for t in turn]
        colour = tuple(int(level) for level in rng.integers(0, 256, 3))
        if corners == 2:
            draw.ellipse([*(centre - radius), *(centre + radius * rng.uniform(0.5, 1.5))], fill=colour)
        elif corners == 3 and rng.random() < 0.3:
            draw.line(points, fill=colour, width=int(rng.integers(1, 9)))
        else:
            draw.polygon(points, fill=colour, outline=None if rng.random() < 0.5 else (0, 0, 0))
    return image


def compose(path: Path, rng: np.random.Generator) -> Image.Image | None:
    """Puts a picture, turned, scaled and shifted at random, on white or on a made-up ground; None if unreadable."""
    try:
        with Image.open(path) as opened:
            if max(opened.size) > 1600:
                return None
            opened.thumbnail((640, 640))
            picture = opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    ground = Image.new("RGB", (CANVAS, CANVAS), (255, 255, 255)) if rng.random() < 0.6 else texture(rng)
    if min(picture.size) > 300 and picture.getextrema()[3][0] == 255:  # a photograph: a window of it
        side = int(rng.uniform(0.2, 1.0) * min(picture.size))
        left, top = (int(rng.uniform(0, length - side + 1)) for length in picture.size)
        picture = picture.crop((left, top, left + side, top + side))
    if rng.random() < 0.3:
        picture = picture.rotate(rng.uniform(-30, 30), Image.Resampling.BILINEAR, expand=True)
    scale = CANVAS * (rng.uniform(0.8, 1.0) if rng.random() < 0.6 else rng.uniform(0.35, 1.3)) / max(picture.size)
    width, height = (max(2, round(length * scale)) for length in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    jitter = 0.1 if rng.random() < 0.6 else 0.5
    left = round((CANVAS - width) * rng.uniform(0.5 - jitter, 0.5 + jitter))
    top = round((CANVAS - height) * rng.uniform(0.5 - jitter, 0.5 + jitter))
    ground.paste(picture, (left, top), picture)
    if rng.random() < 0.1:
        ground = ground.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 1.5)))
    return ground


def make_pool(pictures: Sequence[Path], count: int, seed: int) -> np.ndarray:
    """Makes the training pictures, uint8 [count, CANVAS, CANVAS, 3]; one in eight is made up."""
    rng = np.random.default_rng(seed)
    pool = np.empty((count, CANVAS, CANVAS, 3), np.uint8)
    order = rng.permutation(len(pictures))
    turn = 0
    for i in range(count):
        image = shapes(rng) if i % 8 == 7 or not len(pictures) else None
        while image is None:
            image = compose(pictures[order[turn % len(order)]], rng)
            turn += 1
        pool[i] = np.asarray(image)
    return pool


def look_up_teacher(source: str, pool: np.ndarray, size: int, work: Path) -> dict[str, np.ndarray]:
    """Runs the teacher over the pool; what is done is kept in ``work``, so that an interrupted run goes on."""
    import tensorflow as tf

    import zoo

    teacher = zoo.create("inception_v3", weights=source, num_classes=0, input_shape=(size, size, 3), global_pool=True)
    wanted = sorted({name for names in MATCHES.values() for name in names})

    @tf.function
    def look(images: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tf.image.resize(tf.cast(images, tf.float32), (size, size)) / 127.5 - 1.0
        points = teacher.end_points(inputs)
        return {name: tf.reduce_mean(points[name], [1, 2]) for name in wanted}

    parts = []
    for start in range(0, len(pool), 100):
        path = work / f"teacher-{size}-{start}.npz"
        if not path.exists():
            batches = [look(pool[i : i + 20]) for i in range(start, min(start + 100, len(pool)), 20)]
            values = {name: np.concatenate([b[name] for b in batches]).astype(np.float16) for name in wanted}
            np.savez(path.with_suffix(".part.npz"), **values)
            path.with_suffix(".part.npz").rename(path)
            print(f"teacher: {start + 100} of {len(pool)}", flush=True)
        parts.append(dict(np.load(path)))
    return {name: np.concatenate([part[name] for part in parts]).astype(np.float32) for name in wanted}


def standardise(features: np.ndarray) -> np.ndarray:
    """Roots, centres and scales the teacher's features, as the head of ``zoo.transfer`` sees them."""
    rooted = np.sqrt(np.maximum(features, 0.0))
    deviation = rooted.std(0)
    return ((rooted - rooted.mean(0)) / (deviation + 0.1 * deviation.mean())).astype(np.float32)


def main() -> None:
    """Runs the recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="weights of Inception-v3, in any format zoo reads")
    parser.add_argument("--pictures", nargs="+", required=True, help="folders of pictures")
    parser.add_argument("--out", default="weights", help="folder for inception_v3_x025.safetensors and its card")
    parser.add_argument("--work", default="distil-work", help="folder for what can be reused")
    parser.add_argument("--count", type=int, default=6000, help="training pictures")
    parser.add_argument("--teacher-size", type=int, default=160, help="side of the teacher's input")
    parser.add_argument("--minutes", type=float, default=25.0, help="time for the student")
    parser.add_argument("--epochs", type=int, default=30, help="at most so many; the rate falls to zero over them")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--licence", default="not stated", help="for the card")
    options = parser.parse_args()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)

    import keras
    import tensorflow as tf

    import zoo

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(options.seed)
    pictures = find_pictures(options.pictures)
    if (work / "pool.npy").exists():
        pool = np.load(work / "pool.npy", mmap_mode="r")[: options.count]
    else:
        pool = make_pool(pictures, options.count, options.seed)
        np.save(work / "pool.npy", pool)
    print(f"{len(pool)} training pictures from {len(pictures)} files", flush=True)
    teacher = look_up_teacher(options.teacher, pool, options.teacher_size, work)
    targets = {name: np.concatenate([standardise(teacher[t]) for t in names], 1) for name, names in MATCHES.items()}
    held_out = len(pool) // 20
    student = zoo.create(
        "inception_v3",
        num_classes=0,
        depth_multiplier=0.25,
        input_shape=(SIZE, SIZE, 3),
        global_pool=True,
        weight_decay=0.0,
        batch_norm_decay=0.98,
        seed=options.seed,
    )
    maps = {name: keras.layers.Dense(rows.shape[1]) for name, rows in targets.items()}

    def losses(images: tf.Tensor, wanted: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        points = student.end_points(images / 127.5 - 1.0, training=training)
        rooted = {name: tf.sqrt(tf.reduce_mean(points[name], [1, 2]) + 1e-3) for name in maps}
        return [tf.reduce_mean(tf.square(maps[name](rooted[name]) - wanted[name])) for name in maps]

    for name, layer in maps.items():
        layer.build((None, int(student.book.end_point_specs[name].shape[-1])))
    variables = student.trainable_variables + [v for layer in maps.values() for v in layer.trainable_variables]
    steps_an_epoch = (len(pool) - held_out) // options.batch
    rate = tf.Variable(options.rate, dtype=tf.float32)
    optimizer = keras.optimizers.Adam(rate, global_clipnorm=5.0)
    optimizer.build(variables)

    @tf.function
    def step(images: tf.Tensor, wanted: dict[str, tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        images = tf.cast(images, tf.float32)
        images = tf.image.stateless_random_crop(images, [tf.shape(images)[0], SIZE, SIZE, 3], seed)
        images = tf.where(
            tf.random.stateless_uniform([tf.shape(images)[0], 1, 1, 1], seed) < 0.5, images, images[:, :, ::-1]
        )
        gain = tf.random.stateless_uniform([tf.shape(images)[0], 1, 1, 3], seed + 1, 0.85, 1.15)
        with tf.GradientTape() as tape:
            loss = tf.add_n(losses(tf.minimum(images * gain, 255.0), wanted, True))
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    @tf.function
    def judge(images: tf.Tensor, wanted: dict[str, tf.Tensor]) -> tf.Tensor:
        edge = (CANVAS - SIZE) // 2
        return tf.stack(losses(tf.cast(images[:, edge:-edge, edge:-edge], tf.float32), wanted, False))

    rng = np.random.default_rng(options.seed)
    began, done, best = time.monotonic(), 0, None
    for epoch in range(options.epochs):
        order, total = held_out + rng.permutation(len(pool) - held_out), 0.0
        for i in range(steps_an_epoch):
            spent = max((time.monotonic() - began) / (60 * options.minutes), done / (options.epochs * steps_an_epoch))
            rate.assign(options.rate * min(1.0, (done + 1) / 100) * 0.5 * (1 + np.cos(np.pi * min(spent, 1.0))))
            rows = np.sort(order[i * options.batch : (i + 1) * options.batch])
            wanted = {name: values[rows] for name, values in targets.items()}
            total += float(step(pool[rows], wanted, tf.constant([options.seed, done])))
            done += 1
            if spent >= 1:
                break
        rows = range(0, held_out, options.batch)
        checks = [
            judge(pool[r : r + options.batch], {n: v[r : r + options.batch] for n, v in targets.items()}) for r in rows
        ]
        unexplained = dict(zip(maps, np.mean(checks, 0).round(4).tolist(), strict=True))
        best = {"epoch": epoch + 1, "steps": done, "loss": round(total / (i + 1), 4), "unexplained": unexplained}
        print(json.dumps(best | {"minutes": round((time.monotonic() - began) / 60, 1)}), flush=True)
        save(student, options, best, len(pool), len(pictures))
        if spent >= 1:
            break


def save(student: object, options: argparse.Namespace, result: dict, count: int, files: int) -> None:
    """Writes the weights in float16 and their card."""
    import hashlib
    from importlib.metadata import version

    from safetensors.numpy import save as to_bytes

    from zoo.data.preprocessing import Preprocessing
    from zoo.weights.bundled import write_whole

    values = {name: np.asarray(student.variable(name)).astype(np.float16) for name in student.variable_names}
    content = to_bytes(values)
    preprocessing = Preprocessing(size=(SIZE, SIZE), method="bilinear_antialias")
    card = {
        "net": "inception_v3",
        "options": {"num_classes": 0, "depth_multiplier": 0.25, "global_pool": True},
        "size": SIZE,
        "preprocessing": preprocessing.to_dict(),
        "data": {"training_pictures": count, "from_files": files, "made_up": "one in eight: shapes and textures"},
        "recipe": "weights/recipes/distill_inception_v3_x025.py",
        "settings": {
            k: v for k, v in vars(options).items() if k in ("count", "teacher_size", "minutes", "batch", "rate", "seed")
        },
        "result": result,
        "licence": options.licence,
        "versions": {name: version(name) for name in ("tensorflow", "keras", "numpy")},
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    path = Path(options.out) / "inception_v3_x025.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    write_whole(path.with_suffix(".json"), (json.dumps(card, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
