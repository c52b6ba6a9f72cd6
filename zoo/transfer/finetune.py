"""Fine-tuning: the later part of the trunk trains with the head, and is kept only if validation says so."""

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from zoo.data import pluralize
from zoo.data.images import decode
from zoo.data.stream import permutation
from zoo.transfer.features import Backbone
from zoo.transfer.head import Fitted, Head, assemble
from zoo.transfer.reader import Reader
from zoo.transfer.regression import softmax, temperature_of
from zoo.transfer.scan import Scanned
from zoo.transfer.settings import Job, Settings
from zoo.transfer.split import Dealt
from zoo.transfer.trunk import Trunk

if TYPE_CHECKING:
    from zoo.scoping import Model

BATCH = 16
PATIENCE = 3
HEAD_TO_TRUNK = 10.0  # the head learns so many times faster than the trunk


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What fine-tuning gave.

    Args:
        model: The fine-tuned model; None when it is not clearly better on the validation part, see ``compare``.
        probabilities: Content hash -> [K]; empty without a model.
        facts: For the report: sentence, kept, history, and what ``compare`` found on the validation part.
    """

    model: "Model | None"
    probabilities: dict[str, np.ndarray]
    facts: dict[str, Any]


def check_end_point(job: Job, trunk: Trunk) -> None:
    """Raises ValueError where ``finetune_from`` names no end point with variables; the message lists those."""
    settings = job.settings
    if settings.finetune_from is not None:
        trained_names(trunk.model.variable_names, trunk, settings.finetune_from, settings.train_batch_norm)


def tune(
    job: Job, backbone: Backbone, scanned: Scanned, dealt: Dealt, fitted: Fitted
) -> tuple[Fitted, dict[str, Any] | None]:
    """The stage of fine-tuning: the better of both models, and what the report says; the head's alone if not asked."""
    if not job.settings.finetune_from:
        return fitted, None
    tuned = fine_tune(
        backbone.trunk,
        fitted.head,
        backbone.reader,
        scanned.files,
        dealt.sets,
        scanned.label_of,
        job.settings,
        job.folder,
        progress=job.progress,
    )
    job.tell(tuned.facts["sentence"])
    if tuned.model is not None:
        fitted = dataclasses.replace(fitted, model=tuned.model, probabilities=tuned.probabilities)
    return fitted, tuned.facts


def fine_tune(  # noqa: PLR0913 - a user's options
    trunk: Trunk,
    head: Head,
    reader: Reader,
    files: Mapping[str, str],
    sets: Mapping[str, Sequence[str]],
    label_of: Mapping[str, int],
    settings: Settings,
    folder: Path,
    *,
    progress: Callable[[str, int, int], None],
) -> Tuned:
    """Trains head and trunk from ``settings.finetune_from`` on, with early stopping; a killed run goes on exactly.

    Args:
        trunk: The trained network.
        head: The fitted head, where training starts.
        reader: How pictures are read.
        files: Content hash -> file.
        sets: "train" and "validation" -> content hashes.
        label_of: Content hash -> class index.
        settings: The run's settings.
        folder: Run folder; checkpoints go to ``finetune`` in it.
        progress: Called with (stage, done, total).

    Returns:
        The model, when it is clearly better on the validation part than the head alone.

    Raises:
        ValueError: The trunk has no such end point, or there is no validation part.
    """
    from zoo.training import NonFiniteLossError, Trainer

    if not sets["validation"]:
        raise ValueError("Fine-tuning needs validation pictures to be judged by, and there are too few for that part.")
    model = assemble(trunk, head, dropout_keep_prob=0.8, train_batch_norm=settings.train_batch_norm)
    trained = trained_names(model.variable_names, trunk, settings.finetune_from or "", settings.train_batch_norm)
    labels = np.array([label_of[key] for key in sets["validation"]])
    before = _logits(model, reader, files, sets["validation"])
    trainer = Trainer(
        model,
        optimizer="momentum",
        learning_rate=settings.finetune_rate * HEAD_TO_TRUNK,
        multipliers={name: 1 / HEAD_TO_TRUNK for name in trained if not name.startswith("Head/")},
        clip_norm=1.0,
        train_only=trained,
        global_batch=BATCH,
        seed=settings.seed,
        config={"pictures": sorted(sets["train"]), "from": settings.finetune_from},
    )
    validation = _batches(reader, files, sets["validation"], label_of)
    try:
        done = trainer.fit(
            lambda epoch, skip=0: _epoch(reader, files, sets["train"], label_of, settings.seed, epoch, skip),
            epochs=settings.epochs,
            validation=validation,
            steps_per_epoch=math.ceil(len(sets["train"]) / BATCH),
            patience=PATIENCE,
            folder=folder / "finetune" / _name_of(trunk, head, sets["train"], label_of, settings),
            progress="none",
            summaries="none",
            callbacks=[_Counter(lambda epoch: progress("fine-tuning", epoch, settings.epochs))],
        )
    except NonFiniteLossError as error:
        raise NonFiniteLossError(f"{error}. {_batch_of(error, files, sets['train'], settings)}") from error
    logits = _logits(model, reader, files, sets["validation"])
    history = _history(done.lines)
    facts = compare(before, logits, labels)
    facts |= {"sentence": f"fine-tuning from {settings.finetune_from}, {facts['sentence']}", "history": history}
    if not facts["kept"]:
        return Tuned(None, {}, facts)
    model.variable("Head/temperature").assign(np.float32(temperature_of(logits, labels)))
    keys = list(files)
    rows = softmax(_logits(model, reader, files, keys, raw=False))
    return Tuned(model, dict(zip(keys, rows, strict=True)), facts)


def _batch_of(error: Exception, files: Mapping[str, str], keys: Sequence[str], settings: Settings) -> str:
    """Names the files of the batch that an error of the Trainer is about, and what to change."""
    where = re.search(r"epoch (\d+), batch (\d+)", str(error))
    if where is None:
        return f"--finetune-rate is {settings.finetune_rate:g}"
    epoch, batch = (int(number) - 1 for number in where.groups())
    places = permutation(len(keys), settings.seed, epoch)[batch * BATCH : (batch + 1) * BATCH]
    names = ", ".join(str(files[keys[i]]) for i in places)
    return f"--finetune-rate is {settings.finetune_rate:g}; the files of that batch: {names}"


def _name_of(trunk: Trunk, head: Head, keys: Sequence[str], label_of: Mapping[str, int], settings: Settings) -> str:
    """Names the folder of checkpoints after everything that decides them, so that only the same training goes on."""
    digest = hashlib.sha256(trunk.digest.encode() + head.weights.tobytes())
    digest.update(repr(sorted((key, label_of[key]) for key in keys)).encode())
    digest.update(repr(sorted(settings.to_dict().items())).encode())
    return digest.hexdigest()[:16]


def trained_names(names: Sequence[str], trunk: Trunk, first: str, train_batch_norm: bool) -> list[str]:
    """Returns the names of the variables that fine-tuning trains: the head's, and the trunk's from an end point on.

    Raises:
        ValueError: No variables belong to such an end point; the message lists those that have some.
    """
    own = [name for name in names if not name.startswith("Head/")]
    starts = [i for i, name in enumerate(own) if first and f"/{first}/" in f"/{name}"]
    if not starts:
        known = [name for name in trunk.end_points if any(f"/{name}/" in f"/{variable}" for variable in own)]
        raise ValueError(f"--finetune-from is one of {', '.join(known)}. Received: {first!r}")
    later = own[starts[0] :]
    kept = [name for name in later if train_batch_norm or not is_batch_norm(name)]
    unlearned = ("moving_mean", "moving_variance")
    return [name for name in kept if name.rpartition("/")[2] not in unlearned] + ["Head/weights", "Head/biases"]


def is_batch_norm(name: str) -> bool:
    """Says whether a variable belongs to batch norm, by its name."""
    return name.rpartition("/")[2] in ("beta", "gamma", "moving_mean", "moving_variance")


class _Counter(keras.callbacks.Callback):
    """Reports finished epochs."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        super().__init__()
        self._tell = tell

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._tell(epoch + 1)


def _read(reader: Reader, path: tf.Tensor) -> tf.Tensor:
    """Reads and prepares one file with Pillow inside tf.data."""

    def read(name: bytes) -> np.ndarray:
        return decode(Path(name.decode()).read_bytes(), background=reader.background, orient=reader.orient)

    pixels = tf.ensure_shape(tf.numpy_function(read, [path], tf.uint8, stateful=False), [None, None, 3])
    return reader.prepare(pixels)


def _batches(
    reader: Reader, files: Mapping[str, str], keys: Sequence[str], label_of: Mapping[str, int]
) -> tf.data.Dataset:
    """The pictures in order, as batches (images, labels)."""
    paths, labels = [files[key] for key in keys], [label_of[key] for key in keys]
    data = tf.data.Dataset.from_tensor_slices((paths, np.array(labels, np.int64)))
    data = data.map(lambda path, label: (_read(reader, path), label), num_parallel_calls=tf.data.AUTOTUNE)
    return data.batch(BATCH).prefetch(2)


def _epoch(
    reader: Reader,
    files: Mapping[str, str],
    keys: Sequence[str],
    label_of: Mapping[str, int],
    seed: int,
    epoch: int,
    skip: int,
) -> tf.data.Dataset:
    """One epoch's batches, shuffled and augmented by (seed, epoch), from batch ``skip`` on."""
    order = permutation(len(keys), seed, epoch)[skip * BATCH :]
    paths = [files[keys[i]] for i in order]
    labels = np.array([label_of[keys[i]] for i in order], np.int64)
    numbers = np.array(order, np.int32)

    def load(path: tf.Tensor, label: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return augment(_read(reader, path), tf.stack([number, seed * 10007 + epoch])), label

    data = tf.data.Dataset.from_tensor_slices((paths, labels, numbers))
    return data.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(2)


def augment(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Mirrors, crops (at least 80 % of each side) and brightens a prepared picture.

    Args:
        image: float32 [H, W, C].
        seed: int32 [2]; the same seed gives the same picture.

    Returns:
        float32 [H, W, C].
    """
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 4))
    image = tf.image.stateless_random_flip_left_right(image, seeds[0])
    size = tf.shape(image)[:2]
    share = tf.random.stateless_uniform([], seeds[1], 0.8, 1.0)
    part = tf.cast(tf.round(tf.cast(size, tf.float32) * share), tf.int32)
    crop = tf.image.stateless_random_crop(image, tf.concat([part, tf.shape(image)[2:]], 0), seeds[2])
    resized = tf.ensure_shape(tf.image.resize(crop, size), image.shape)
    return resized + tf.random.stateless_uniform([], seeds[3], -0.1, 0.1)


def _logits(
    model: "Model", reader: Reader, files: Mapping[str, str], keys: Sequence[str], raw: bool = True
) -> np.ndarray:
    """Returns logits [N, K]; raw ones are not divided by the temperature."""
    batches = _batches(reader, files, keys, dict.fromkeys(keys, 0))
    call = tf.function(lambda images: model(images, training=False), input_signature=batches.element_spec[:1])
    rows = np.concatenate([call(images).numpy() for images, _ in batches])
    return rows * float(model.variable("Head/temperature").numpy()) if raw else rows


def compare(before: np.ndarray, after: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Says whether fine-tuning made a model clearly better on the validation pictures.

    It did when the accuracy is not lower and the mean gain in cross-entropy, picture by picture, is larger than twice
    its standard error; fewer than two pictures say nothing. Both models are judged at their best temperature. One
    standard error is too few, as the best of several epochs was chosen by the same pictures.

    Args:
        before: [N, K] logits of the head on the original trunk.
        after: [N, K] logits of the fine-tuned model.
        labels: [N] class indices.

    Returns:
        "before" and "after" (accuracy and loss), "gain", its "error" (None for one picture), "pictures", "kept", and
        the "sentence" that says it all.
    """
    (was, was_right), (now, now_right) = (_losses(logits, labels) for logits in (before, after))
    count, gain = len(labels), float((was - now).mean())
    error = float((was - now).std(ddof=1)) / math.sqrt(count) if count > 1 else None
    kept = error is not None and now_right >= was_right and gain > 2 * error
    noise = "one picture has no standard error" if error is None else f"standard error {error:.3f}"
    sentence = (
        f"judged on {pluralize(count, 'picture')} of the validation part: "
        f"accuracy {was_right:.1%} before and {now_right:.1%} after, "
        f"cross-entropy {was.mean():.3f} before and {now.mean():.3f} after ({-gain:+.3f}, {noise}): "
        + ("the fine-tuned model is kept" if kept else "not clearly better, so the head on the original trunk is kept")
    )
    return {
        "before": {"accuracy": was_right, "loss": float(was.mean())},
        "after": {"accuracy": now_right, "loss": float(now.mean())},
        "gain": gain,
        "error": error,
        "pictures": count,
        "kept": kept,
        "sentence": sentence,
    }


def _losses(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, float]:
    """Cross-entropy of each picture at the best temperature, and the accuracy."""
    p = softmax(logits / temperature_of(logits, labels))
    return -np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-12)), float((p.argmax(1) == labels).mean())


def _history(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Joins what the Trainer noted of training and of validation, epoch by epoch."""
    epochs: dict[int, dict[str, Any]] = {}
    for line in lines:
        epochs.setdefault(line["epoch"], {}).update(line)
    names = {"accuracy": "accuracy", "loss": "loss"} | {f"validation_{n}": f"val_{n}" for n in ("accuracy", "loss")}
    return [
        {"epoch": epoch, **{name: line.get(key) for name, key in names.items()}}
        for epoch, line in sorted(epochs.items())
        if "val_accuracy" in line
    ]
