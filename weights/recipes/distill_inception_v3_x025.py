r"""Distils a trained Inception-v3 into one of a quarter of its width at 128 px: ``weights/inception_v3_x025``.

The student's pooled features, through a linear map that is thrown away afterwards, are fitted to the teacher's at four
depths. Pictures are drawn from folders and put on random grounds at random places, or made up (shapes, textures); the
teacher looks at each once, the student at a new crop, mirror image and colour of it in every epoch. A source that looks
like a picture of the ``--hold-out`` folders is not used.

    python weights/recipes/distill_inception_v3_x025.py --teacher TEACHER --pictures EMOJI CLIPART PHOTOGRAPHS \
        --hold-out STAMPS --out weights

Sources: Hinton, Vinyals and Dean, arXiv 1503.02531 (distillation); Romero et al., arXiv 1412.6550 (inner features
through a map); Beyer et al., arXiv 2106.05237 (teacher and student look at the same picture, for long).
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from training_pictures import CANVAS, SHARES, find_pictures, make_pool, near, on_white, open_picture

SIZE = 128
# Student's end point -> teacher's end points that its pooled features must be able to express.
MATCHES = {
    "Mixed_6b": ("Mixed_6b",),
    "Mixed_6e": ("Mixed_6e",),
    "Mixed_7a": ("Mixed_6e", "Mixed_7a"),
    "Mixed_7c": ("Mixed_6e", "Mixed_7a", "Mixed_7c"),
}
DIRECTIONS = 512  # leading directions of the teacher's features at a depth
LOOK_ALIKE = "Mixed_6e"  # the end point that tells pictures apart, as in zoo.transfer.split


def make_teacher(source: str, size: int) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Returns the function from uint8 [N, S, S, 3] to the teacher's pooled features at the depths wanted."""
    import tensorflow as tf

    import zoo

    teacher = zoo.create("inception_v3", weights=source, num_classes=0, input_shape=(size, size, 3), global_pool=True)
    wanted = sorted({name for names in MATCHES.values() for name in names})

    @tf.function
    def look(images: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tf.image.resize(tf.cast(images, tf.float32), (size, size)) / 127.5 - 1.0
        points = teacher.end_points(inputs)
        return {name: tf.reduce_mean(points[name], [1, 2]) for name in wanted}

    def features(images: np.ndarray) -> dict[str, np.ndarray]:
        parts = [look(images[i : i + 20]) for i in range(0, len(images), 20)]
        return {name: np.concatenate([part[name] for part in parts]) for name in wanted}

    return features


def unseen_only(sources: Sequence[Path], folders: Sequence[str], teacher: Callable, limit: float) -> list[Path]:
    """Returns the sources that look like no picture of the folders, nor like its mirror image.

    Args:
        sources: The files.
        folders: Folders of pictures that must stay unseen.
        teacher: See ``make_teacher``.
        limit: Largest cosine of the standardised features that is let through.
    """
    kept = [path for folder in folders for path in sorted(Path(folder).rglob("*")) if path.is_file()]
    held = [on_white(picture, CANVAS) for path in kept if (picture := open_picture(path)) is not None]
    if not held:
        raise SystemExit(f"--hold-out: no picture below {', '.join(folders)}")
    unseen = np.concatenate([teacher(np.stack(held))[LOOK_ALIKE], teacher(np.stack(held)[:, :, ::-1])[LOOK_ALIKE]])
    usable, rows = [], []
    for start in range(0, len(sources), 200):
        opened = [(path, open_picture(path)) for path in sources[start : start + 200]]
        some = [(path, on_white(picture, CANVAS)) for path, picture in opened if picture is not None]
        usable += [path for path, _ in some]
        rows.append(teacher(np.stack([pixels for _, pixels in some]))[LOOK_ALIKE])
    cosine = near(np.concatenate(rows), unseen)
    return [path for path, value in zip(usable, cosine, strict=True) if value < limit]


def look_up_teacher(teacher: Callable, pool: np.ndarray, work: Path, tag: str) -> dict[str, np.ndarray]:
    """Runs the teacher over the pool; what is done is kept in ``work``, so that an interrupted run goes on."""
    parts = []
    for start in range(0, len(pool), 1000):
        path = work / f"teacher-{tag}-{start}.npz"
        if not path.exists():
            values = teacher(pool[start : start + 1000])
            np.savez(path.with_suffix(".part.npz"), **{k: v.astype(np.float16) for k, v in values.items()})
            path.with_suffix(".part.npz").rename(path)
            print(f"teacher: {min(start + 1000, len(pool))} of {len(pool)}", flush=True)
        parts.append(dict(np.load(path)))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def directions(features: Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Returns the leading directions of some features, their spectrum flattened half-way, of mean square 1.

    Rooted, centred, scaled and flattened as the head of ``zoo.transfer`` sees them: what tells classes apart is not
    always what varies most.

    Args:
        features: Arrays [N, C], side by side.
        rows: The rows that the statistics come from.
    """
    scaled = []
    for table in features:
        rooted = np.sqrt(np.maximum(table.astype(np.float32), 0.0))
        deviation = rooted[rows].std(0)
        scaled.append((rooted - rooted[rows].mean(0)) / (deviation + 0.1 * deviation.mean()) / np.sqrt(table.shape[1]))
    joined = np.concatenate(scaled, 1)
    values, vectors = np.linalg.eigh(joined[rows].T @ joined[rows] / len(rows))
    values, vectors = values[-DIRECTIONS:], vectors[:, -DIRECTIONS:]
    found = joined @ (vectors * np.maximum(values, 1e-12) ** -0.25)
    return (found / np.sqrt(np.square(found[rows]).mean())).astype(np.float32)


def main() -> None:
    """Runs the recipe."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", required=True, help="weights of Inception-v3, in any format zoo reads")
    parser.add_argument("--pictures", nargs="+", required=True, help="folders of pictures")
    parser.add_argument("--hold-out", nargs="+", default=[], help="folders of pictures that must stay unseen")
    parser.add_argument("--look-alike", type=float, default=0.8, help="cosine at which a source counts as held out")
    parser.add_argument("--out", default="weights", help="folder for inception_v3_x025.safetensors and its card")
    parser.add_argument("--work", default="distil-work", help="folder for what can be reused")
    parser.add_argument("--count", type=int, default=36000, help="training pictures")
    parser.add_argument("--teacher-size", type=int, default=192, help="side of the teacher's input")
    parser.add_argument("--minutes", type=float, default=60.0, help="time for the student")
    parser.add_argument("--epochs", type=int, default=40, help="at most so many; the rate falls to zero over them")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prepare", action="store_true", help="stop before the student: pictures and teacher only")
    parser.add_argument("--about", default="pictures of the folders given", help="what the pictures are, for the card")
    parser.add_argument("--teacher-about", default="not stated", help="what the teacher is, for the card")
    parser.add_argument("--licence", default="not stated", help="for the card")
    options = parser.parse_args()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)

    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(options.seed)
    teacher = make_teacher(options.teacher, options.teacher_size)
    facts = prepare(options, work, teacher)
    pool = np.load(work / "pool.npy", mmap_mode="r")
    features = look_up_teacher(teacher, pool, work, f"{options.teacher_size}")
    del teacher
    if options.prepare:
        return
    held_out = len(pool) // 20  # the first sources' pictures: the student never trains on them
    rows = np.arange(held_out, len(pool))
    targets = {name: directions([features[t] for t in names], rows) for name, names in MATCHES.items()}
    del features
    train(options, pool, targets, held_out, facts)


def prepare(options: argparse.Namespace, work: Path, teacher: Callable) -> dict[str, Any]:
    """Chooses the sources and makes the pool once; returns what the card says about them."""
    if not (work / "sources.json").exists():
        sources = find_pictures(options.pictures)
        used = unseen_only(sources, options.hold_out, teacher, options.look_alike) if options.hold_out else sources
        order = np.random.default_rng(options.seed).permutation(len(used))
        pool = np.lib.format.open_memmap(work / "pool.part.npy", "w+", np.uint8, (options.count, CANVAS, CANVAS, 3))
        count = make_pool([used[i] for i in order], options.count, options.seed, pool)
        pool.flush()
        (work / "pool.part.npy").rename(work / "pool.npy")
        facts = {"files": len(sources), "like_held_out": len(sources) - len(used), "from_files": count}
        (work / "sources.json").write_text(json.dumps(facts))
    facts = json.loads((work / "sources.json").read_text())
    print(facts, flush=True)
    return facts


def train(
    options: argparse.Namespace, pool: np.ndarray, targets: dict[str, np.ndarray], held_out: int, facts: dict[str, Any]
) -> None:
    """Trains the student, and saves it after every epoch."""
    import keras
    import tensorflow as tf

    import zoo

    student = zoo.create(
        "inception_v3",
        num_classes=0,
        depth_multiplier=0.25,
        input_shape=(SIZE, SIZE, 3),
        global_pool=True,
        weight_decay=0.0,
        batch_norm_decay=0.99,
        seed=options.seed,
    )
    maps = {name: keras.layers.Dense(rows.shape[1]) for name, rows in targets.items()}
    for name, layer in maps.items():
        layer.build((None, int(student.book.end_point_specs[name].shape[-1])))

    def losses(images: tf.Tensor, wanted: dict[str, tf.Tensor], training: bool) -> list[tf.Tensor]:
        points = student.end_points(images / 127.5 - 1.0, training=training)
        rooted = {name: tf.sqrt(tf.reduce_mean(points[name], [1, 2]) + 1e-3) for name in maps}
        return [tf.reduce_mean(tf.square(maps[name](rooted[name]) - wanted[name])) for name in maps]

    variables = student.trainable_variables + [v for layer in maps.values() for v in layer.trainable_variables]
    optimizer = keras.optimizers.Adam(options.rate, global_clipnorm=5.0)
    optimizer.build(variables)

    @tf.function
    def step(images: tf.Tensor, wanted: dict[str, tf.Tensor], seed: tf.Tensor) -> tf.Tensor:
        images, count = tf.cast(images, tf.float32), tf.shape(images)[0]
        images = tf.image.stateless_random_crop(images, [count, SIZE, SIZE, 3], seed)
        mirrored = tf.random.stateless_uniform([count, 1, 1, 1], seed) < 0.5
        images = tf.where(mirrored, images, images[:, :, ::-1])
        gain = tf.random.stateless_uniform([count, 1, 1, 3], seed + 1, 0.9, 1.1)
        with tf.GradientTape() as tape:
            loss = tf.add_n(losses(tf.minimum(images * gain, 255.0), wanted, True))
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    @tf.function
    def judge(images: tf.Tensor, wanted: dict[str, tf.Tensor]) -> tf.Tensor:
        edge = (CANVAS - SIZE) // 2
        return tf.stack(losses(tf.cast(images[:, edge:-edge, edge:-edge], tf.float32), wanted, False))

    def batch(rows: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return pool[rows], {name: values[rows] for name, values in targets.items()}

    rng = np.random.default_rng(options.seed)
    steps_an_epoch = (len(pool) - held_out) // options.batch
    began, done = time.monotonic(), 0
    for epoch in range(options.epochs):
        order, total = held_out + rng.permutation(len(pool) - held_out), 0.0
        for i in range(steps_an_epoch):
            spent = max((time.monotonic() - began) / (60 * options.minutes), done / (options.epochs * steps_an_epoch))
            falling = 0.5 * (1 + np.cos(np.pi * min(spent, 1.0)))
            optimizer.learning_rate.assign(options.rate * min(1.0, (done + 1) / 300) * falling)
            rows = np.sort(order[i * options.batch : (i + 1) * options.batch])
            total += float(step(*batch(rows), tf.constant([options.seed, done])))
            done += 1
            if spent >= 1:
                break
        starts = range(0, held_out - options.batch + 1, options.batch)
        checks = [judge(*batch(np.arange(start, start + options.batch))) for start in starts]
        unexplained = dict(zip(maps, np.mean(checks, 0, np.float64).round(4).tolist(), strict=True))
        result = {"epochs": epoch + 1, "steps": done, "loss": round(total / (i + 1), 4), "unexplained": unexplained}
        print(json.dumps(result | {"minutes": round((time.monotonic() - began) / 60, 1)}), flush=True)
        save(student, options, result, facts)
        if spent >= 1:
            break


def save(student: Any, options: argparse.Namespace, result: dict[str, Any], facts: dict[str, Any]) -> None:
    """Writes the weights in float16 and their card."""
    from importlib.metadata import version

    from safetensors.numpy import save as to_bytes

    from zoo.data.preprocessing import Preprocessing
    from zoo.weights.bundled import write_whole

    values = {name: np.asarray(student.variable(name)).astype(np.float16) for name in student.variable_names}
    content = to_bytes(values)
    settings = ("count", "teacher_size", "look_alike", "minutes", "epochs", "batch", "rate")
    card = {
        "net": "inception_v3",
        "options": {"num_classes": 0, "depth_multiplier": 0.25, "global_pool": True},
        "size": SIZE,
        "preprocessing": Preprocessing(size=(SIZE, SIZE), method="bilinear_antialias").to_dict(),
        "data": {"pictures": options.about, **facts, "training_pictures": options.count, "shares": SHARES},
        "recipe": "python weights/recipes/distill_inception_v3_x025.py --teacher T --pictures P --hold-out H",
        "teacher": options.teacher_about,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in settings},
        "accuracy": None,  # written in by hand from benchmarks/transfer.py, which does not see this training
        "result": result,
        "licence": options.licence,
        "versions": {name: version(name) for name in ("scoped-zoo", "tensorflow", "keras", "numpy")},
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    path = Path(options.out) / "inception_v3_x025.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    write_whole(path.with_suffix(".json"), (json.dumps(card, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
