"""The head: softmax regression on pooled features, with everything about it chosen inside the training part.

Pooled features are made comparable first: signed square root (activations are skewed), standardised, each end point
scaled to rows of mean squared norm 1; then the spectrum of the training pictures is flattened half-way
(``select.POWER``). All that is linear but for the root, and goes into one weight matrix. scikit-learn's L-BFGS fits.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from threadpoolctl import threadpool_limits

from zoo.files import parse_json, reading, validated, write_whole
from zoo.nets.retrained import head as head_network
from zoo.nets.retrained import retrained
from zoo.scoping import Model, register_function
from zoo.transfer.features import Backbone, Extracted, Rows, Scaling, signed_root, with_views
from zoo.transfer.regression import (
    TEMPERATURES,
    flatten_spectrum,
    held_out,
    softmax,
    softmax_regression,
    temperature_of,
)
from zoo.transfer.scan import Scanned
from zoo.transfer.select import Choice, choose_end_points, make_folds, subsample
from zoo.transfer.settings import Job
from zoo.transfer.split import Dealt
from zoo.transfer.trunk import Trunk

FORMAT = 1
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
STEPS_PENALTY = 10.0  # of the regression that stands for a head trained by steps
ROWS_AT_A_TIME = 4096
OPTIMIZERS = {"sgd": ("momentum", 0.3), "adam": ("adam", 3e-3)}
BATCH = 64
_ARRAYS = ("shift", "scale", "weights", "bias", "hidden_weights", "hidden_bias")


@dataclasses.dataclass(frozen=True)
class Head:
    """A fitted softmax regression on one or several pooled end points.

    Args:
        end_points: The end points, in the order in which their features are put side by side.
        classes: The labels, in the order of the columns.
        shift: [D], subtracted from the rooted features.
        scale: [D], multiplied then.
        weights: [D, K], or [H, K] with a hidden layer.
        bias: [K].
        penalty: scikit-learn's C, the inverse of the L2 penalty; 0 for a head that was trained by steps.
        temperature: Divides the logits; 1 where nothing calibrated it.
        hidden_weights: [D, H] of a hidden layer with ReLU; None without one.
        hidden_bias: [H].
    """

    end_points: tuple[str, ...]
    classes: tuple[str, ...]
    shift: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    penalty: float
    temperature: float = 1.0
    hidden_weights: np.ndarray | None = None
    hidden_bias: np.ndarray | None = None

    def logits(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns calibrated logits [N, K] of features [N, C] by end point.

        Raises:
            ValueError: An end point is missing.
        """
        x = self.scaled(features)
        if self.hidden_weights is not None:
            x = np.maximum(x @ self.hidden_weights + self.hidden_bias, 0.0)
        return (x @ self.weights + self.bias) / self.temperature

    def scaled(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the rows [N, D] that the weights are multiplied with, of features [N, C] by end point.

        Raises:
            ValueError: An end point is missing.
        """
        absent = [name for name in self.end_points if name not in features]
        if absent:
            raise ValueError(f"The head reads {', '.join(self.end_points)}. Received: {', '.join(features)}")
        x = np.concatenate([features[name] for name in self.end_points], 1)
        return (signed_root(x) - self.shift) * self.scale

    def probabilities(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the probabilities [N, K] of features [N, C] by end point."""
        return softmax(self.logits(features))

    def save(self, path: str | Path) -> None:
        """Writes the head as safetensors."""
        from safetensors.numpy import save

        plain = {"end_points": self.end_points, "classes": self.classes, "penalty": self.penalty}
        text = json.dumps({"format": FORMAT, "temperature": self.temperature, **plain}, ensure_ascii=False)
        held = {name: getattr(self, name) for name in _ARRAYS}
        arrays = {name: np.ascontiguousarray(value) for name, value in held.items() if value is not None}
        write_whole(path, save(arrays, metadata={"head": text}))

    @classmethod
    def load(cls, path: str | Path) -> "Head":
        """Reads what ``save`` wrote.

        Raises:
            ValueError: The file is no head, or a newer zoo wrote it.
        """
        from safetensors import SafetensorError, safe_open

        with reading(path, "a head that `zoo retrain` wrote", also=(SafetensorError,)):
            with safe_open(path, "np") as file:
                plain = parse_json(file.metadata()["head"], path)
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if plain.pop("format") != FORMAT:
                raise ValueError(f"{path} was written by a newer zoo; update zoo to read it.")
            about = validated(_About, plain, path)
            head = cls(**vars(about), **arrays)
            first = head.weights if head.hidden_weights is None else head.hidden_weights
            sizes = {
                "shift": (head.shift, first.shape[:1]),
                "scale": (head.scale, first.shape[:1]),
                "bias": (head.bias, (len(head.classes),)),
                "weights": (head.weights, (head.weights.shape[0], len(head.classes))),
            }
            if wrong := [name for name, (array, shape) in sizes.items() if array.shape != shape]:
                raise ValueError(f"{', '.join(wrong)} do not fit the {len(head.classes)} classes or one another")
            if not all(np.isfinite(array).all() for array in arrays.values()) or not head.temperature > 0:
                raise ValueError("it holds numbers that are not finite, or a temperature that is not above 0")
            return head


@dataclasses.dataclass(frozen=True)
class _About:
    """What a saved head says beside its arrays."""

    end_points: tuple[str, ...]
    classes: tuple[str, ...]
    penalty: float
    temperature: float


def fit_head(  # noqa: PLR0913 - a user's options
    features: Mapping[str, np.ndarray],
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    candidates: Sequence[tuple[str, ...]] | None = None,
    penalties: Sequence[float] = PENALTIES,
    groups: np.ndarray | None = None,
    balance: bool = False,
    folds: int = 5,
    seed: int = 0,
    max_rows: int = 3000,
) -> tuple[Head, list[Choice]]:
    """Fits the head; end points and penalty are chosen by cross-validation on these pictures alone.

    Args:
        features: End point -> [N, C]; or [N, V, C] with V views of each picture: all views train, view 0 is judged.
        labels: [N] class indices.
        classes: The labels' names, K of them.
        candidates: Combinations of end points to choose among; by default each end point alone.
        penalties: Values of C to choose among.
        groups: [N]; pictures of one group (near-duplicates) stay in one fold.
        balance: Weighs pictures so that every class counts alike.
        folds: Folds of the cross-validation.
        seed: Seed of the folds.
        max_rows: The choice looks at so many pictures at most; the final fit uses all.

    Returns:
        The head, with temperature 1, and every line of the cross-validation.

    Raises:
        ValueError: Fewer than two classes have pictures, or labels and features do not agree.
    """
    labels = np.asarray(labels)
    views = {name: rows[:, None] if rows.ndim == 2 else rows for name, rows in features.items()}
    if any(len(rows) != len(labels) for rows in views.values()):
        shapes = {name: rows.shape for name, rows in features.items()}
        raise ValueError(f"Features must have a row for each of the {len(labels)} labels. Received: {shapes}")
    if len(np.unique(labels)) < 2:
        raise ValueError(f"A classifier needs pictures of at least two classes. Received: {len(np.unique(labels))}")
    candidates = [tuple(c) for c in candidates or [(name,) for name in features]]
    used = dict.fromkeys(itertools.chain(*candidates))
    scalings = {name: Scaling.fit(views[name].reshape(-1, views[name].shape[2])) for name in used}
    scaled = {name: scalings[name](views[name]) for name in used}
    chosen = subsample(labels, max_rows, seed)
    parts = make_folds(labels[chosen], None if groups is None else np.asarray(groups)[chosen], folds, seed)
    tried: list[Choice] = []
    end_points, penalty = candidates[0], float(penalties[len(penalties) // 2])
    with threadpool_limits(1, "blas"):  # the matrices are small: threads cost more than they bring
        if parts and len(candidates) > 1:
            some = {name: rows[chosen] for name, rows in scaled.items()}
            tried += choose_end_points(some, labels[chosen], candidates, parts)
            end_points = min(tried, key=lambda choice: choice.loss).end_points
        share = np.float32(1 / np.sqrt(len(end_points)))
        x = np.concatenate([scaled[name] * share for name in end_points], 2)
        rotation = flatten_spectrum(x.reshape(-1, x.shape[2]), len(classes))
        z = x @ rotation
        if parts and len(penalties) > 1:
            lines = _try_penalties(z[chosen], labels[chosen], end_points, penalties, parts, balance)
            penalty = max(lines, key=lambda choice: (choice.accuracy, -choice.loss)).penalty
            tried += lines
        weights, bias = softmax_regression(z, labels, len(classes), penalty, balance)
    head = Head(
        end_points=end_points,
        classes=tuple(classes),
        shift=np.concatenate([scalings[name].shift for name in end_points]),
        scale=np.concatenate([scalings[name].scale * share for name in end_points]),
        weights=(rotation @ weights).astype(np.float32),
        bias=bias.astype(np.float32),
        penalty=penalty,
    )
    return head, tried


def _try_penalties(
    z: np.ndarray,
    labels: np.ndarray,
    end_points: tuple[str, ...],
    penalties: Sequence[float],
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
    balance: bool,
) -> list[Choice]:
    """Cross-validates the softmax regression for each penalty."""
    lines, classes = [], int(labels.max()) + 1
    for penalty in penalties:
        right, loss, count = 0, 0.0, 0
        for train, left in parts:
            weights, bias = softmax_regression(z[train], labels[train], classes, penalty, balance, 1e-3)
            p = softmax(z[left, 0] @ weights + bias)
            right += int((p.argmax(1) == labels[left]).sum())
            loss -= float(np.log(np.maximum(p[np.arange(len(p)), labels[left]], 1e-12)).sum())
            count += len(left)
        lines.append(Choice(end_points, float(penalty), right / count, loss / count, "penalty"))
    return lines


def calibrate(head: Head, features: Mapping[str, np.ndarray], labels: np.ndarray) -> Head:
    """Returns the head with the temperature that minimises the cross-entropy of validation pictures.

    Args:
        head: A head with temperature 1.
        features: End point -> [N, C], of the validation part.
        labels: [N] class indices.

    Returns:
        The calibrated head; unchanged when there is no validation picture.

    Source: Guo et al., "On Calibration of Modern Neural Networks", arXiv 1706.04599, section 4.2.
    """
    if not len(labels):
        return head
    return dataclasses.replace(head, temperature=temperature_of(head.logits(features), labels) * head.temperature)


@register_function("head_alone")
def head_alone(features: tf.Tensor, **options: Any) -> tf.Tensor:
    """The head as a network of its own: pooled features [N, D] -> logits [N, K]; see ``zoo.nets.retrained.head``."""
    return head_network(features, **options)


def train_head(  # noqa: PLR0913 - a user's options
    features: Mapping[str, np.ndarray],
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    candidates: Sequence[tuple[str, ...]],
    validation: tuple[Mapping[str, np.ndarray], np.ndarray],
    optimizer: str = "adam",
    hidden: int = 0,
    dropout: float = 0.0,
    groups: np.ndarray | None = None,
    balance: bool = False,
    seed: int = 0,
    epochs: int = 60,
) -> tuple[Head, list[Choice]]:
    """Trains a head by steps; end points are chosen as ``fit_head`` does.

    Args:
        features: End point -> [N, C], or [N, V, C] with views, which count as further examples.
        labels: [N] class indices.
        classes: The labels' names.
        candidates: Combinations of end points to choose among.
        validation: Features and labels that stop the training early; training goes on to the end without any.
        optimizer: "sgd" (with momentum) or "adam".
        hidden: Width of a hidden layer; 0 has none.
        dropout: Share of the inputs that dropout takes away.
        groups: See ``fit_head``.
        balance: Weighs pictures so that every class counts alike.
        seed: Of the weights, the order and dropout.
        epochs: At most so many.

    Returns:
        The head, and the lines of the choice of end points.

    Raises:
        ValueError: The optimizer is another.
    """
    from zoo.training import Trainer

    if optimizer not in OPTIMIZERS:
        raise ValueError(f"head must be softmax, {' or '.join(OPTIMIZERS)}. Received: {optimizer!r}")
    started, choices = fit_head(
        features,
        labels,
        classes,
        candidates=candidates,
        penalties=(STEPS_PENALTY,),
        groups=groups,
        balance=balance,
        seed=seed,
    )
    names = started.end_points
    views = {name: rows[:, None] if rows.ndim == 2 else rows for name, rows in features.items() if name in names}
    x = np.concatenate([views[name] for name in names], 2)
    per_picture, width = x.shape[1:]
    x, y = x.reshape(-1, width), np.repeat(labels, per_picture).astype(np.int64)
    shift, scale = _scaling(views, names)
    options: dict[str, Any] = {"num_classes": len(classes), "hidden": hidden, "dropout_keep_prob": 1.0 - dropout}
    model = Model(head_alone, input_shape=(width,), seed=seed, **options)
    model.variable("Head/shift").assign(shift)
    model.variable("Head/scale").assign(scale)
    name, rate = OPTIMIZERS[optimizer]
    weights = None
    if balance:
        counts = np.bincount(y, minlength=len(classes))
        weights = {i: len(y) / (len(classes) * max(int(n), 1)) for i, n in enumerate(counts)}
    batch = min(BATCH, len(x))
    steps = epochs * -(-len(x) // batch)
    trainer = Trainer(
        model,
        optimizer=name,
        learning_rate=lambda step: rate * 0.5 * (1.0 + tf.cos(np.pi * tf.cast(step, tf.float32) / steps)),
        class_weights=weights,
        global_batch=batch,
        seed=seed,
    )
    held = np.concatenate([validation[0][name] for name in names], 1) if len(validation[1]) else None
    trainer.fit(
        (x, y),
        epochs=epochs,
        validation=None if held is None else (held, validation[1]),
        patience=None if held is None else 10,
        progress="none",
        summaries="none",
    )
    value = {short: np.asarray(model.variable(f"Head/{short}")) for short in ("weights", "biases")}
    trained = dataclasses.replace(
        started, shift=shift, scale=scale, weights=value["weights"], bias=value["biases"], penalty=0.0
    )
    if hidden:
        first = {short: np.asarray(model.variable(f"Head/hidden_{short}")) for short in ("weights", "biases")}
        trained = dataclasses.replace(trained, hidden_weights=first["weights"], hidden_bias=first["biases"])
    return trained, choices


def _scaling(views: Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale that give every feature about unit variance: what steps of one size need."""
    scalings = [Scaling.fit(views[name].reshape(-1, views[name].shape[2])) for name in names]
    shift, scale = (np.concatenate(list(parts)) for parts in zip(*((s.shift, s.scale) for s in scalings), strict=True))
    return shift, scale * np.float32(np.sqrt(len(shift) / len(names)))


def assemble(trunk: Trunk, head: Head, *, dropout_keep_prob: float = 1.0, train_batch_norm: bool = False) -> Model:
    """Builds the model that a retrained network is: the trunk's weights under the fitted head.

    Args:
        trunk: The trained network.
        head: The fitted head.
        dropout_keep_prob: For fine-tuning.
        train_batch_norm: For fine-tuning.

    Returns:
        A built ``zoo.Model`` from prepared images to logits.
    """
    model = Model(
        retrained,
        name="retrained",
        input_shape=trunk.size,
        seed=0,
        num_classes=len(head.classes),
        trunk=trunk.net,
        trunk_options=trunk.options,
        head_end_points=list(head.end_points),
        classes=list(head.classes),
        hidden=0 if head.hidden_bias is None else len(head.hidden_bias),
        dropout_keep_prob=dropout_keep_prob,
        train_batch_norm=train_batch_norm,
    )
    for name in trunk.model.variable_names:
        model.variable(name).assign(trunk.model.variable(name))
    write_head(model, head)
    return model


def write_head(model: Model, head: Head) -> None:
    """Gives the variables in a model's scope ``Head`` the head's values."""
    values = {"shift": head.shift, "scale": head.scale, "weights": head.weights, "biases": head.bias}
    if head.hidden_weights is not None and head.hidden_bias is not None:
        values |= {"hidden_weights": head.hidden_weights, "hidden_biases": head.hidden_bias}
    for name, value in values.items():
        model.variable(f"Head/{name}").assign(value)
    model.variable("Head/temperature").assign(np.float32(head.temperature))


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A head on its trunk, fine-tuned or not.

    Args:
        head: The head on the trunk as it came.
        choices: What its cross-validation tried.
        model: Trunk and head as one model.
        probabilities: Content hash -> [K], for every picture.
        held_out: The same, answered by heads on the trunk as it came that did not see the picture; without pictures
            that no such head can judge.
    """

    head: Head
    choices: list[Choice]
    model: Model
    probabilities: dict[str, np.ndarray]
    held_out: dict[str, np.ndarray]


def choose_head(job: Job, backbone: Backbone, scanned: Scanned, dealt: Dealt, extracted: Extracted) -> Fitted:
    """The stage of the head: fits it, calibrates it on answers held out and writes ``head.safetensors``."""
    settings, classes, names = job.settings, scanned.classes, backbone.end_points
    labels = {part: scanned.labels_of(dealt.sets[part]) for part in ("train", "validation")}
    held = extracted.rows.read(dealt.sets["validation"], names)
    train = with_views(job, extracted, dealt.sets["train"], scanned, names)
    how: dict[str, Any] = {
        "candidates": backbone.candidates,
        "groups": dealt.groups(dealt.sets["train"]),
        "seed": settings.seed,
        "balance": settings.balance,
    }
    if settings.head == "softmax":
        head, choices = fit_head(train, labels["train"], classes, **how)
    else:
        how |= {"optimizer": settings.head, "hidden": settings.hidden, "dropout": settings.dropout}
        head, choices = train_head(train, labels["train"], classes, validation=(held, labels["validation"]), **how)
    del train
    answers, temperature = _hold_out(head, scanned, dealt, extracted.rows, settings.balance, settings.seed)
    if settings.head == "softmax" and temperature:
        head = dataclasses.replace(head, temperature=temperature)
    else:
        head = calibrate(head, held, labels["validation"])
    head.save(job.place / "head.safetensors")
    job.tell(f"head: reads {' + '.join(head.end_points)}, {_in_words(head, settings.head)}")
    model = assemble(backbone.trunk, head, dropout_keep_prob=1.0, train_batch_norm=settings.train_batch_norm)
    probabilities = _probabilities(extracted.rows, dealt.keys, head)
    answers |= {key: probabilities[key] for key in dealt.sets["test"]}
    return Fitted(head, choices, model, probabilities, answers)


def _in_words(head: Head, kind: str) -> str:
    """Penalty and temperature, and where the search for one ended at its bound."""
    penalty = f"C = {head.penalty:g}" if head.penalty else kind
    if head.penalty == PENALTIES[-1]:
        penalty += " (the largest tried)"
    least, most = TEMPERATURES
    at_bound = not least * 1.01 < head.temperature < most / 1.01
    return f"{penalty}, temperature {head.temperature:.2f}{' (the bound of the search)' if at_bound else ''}"


def _hold_out(
    head: Head, scanned: Scanned, dealt: Dealt, rows: Rows, balance: bool, seed: int
) -> tuple[dict[str, np.ndarray], float | None]:
    """Answers for the training and validation pictures by heads of this kind that did not see them.

    A head that was trained by steps is stood for by a softmax regression on what it reads.

    Returns:
        Content hash -> [K] for the pictures that can be judged, calibrated, and the temperature that does that; None
        where no picture can be.
    """
    keys = [*dealt.sets["train"], *dealt.sets["validation"]]
    labels, classes = scanned.labels_of(keys), len(head.classes)
    x = head.scaled(rows.read(keys, head.end_points))
    with threadpool_limits(1, "blas"):
        z = x @ flatten_spectrum(x, classes)
        groups = dealt.groups(keys)
        found, known = held_out(z, labels, classes, head.penalty or STEPS_PENALTY, groups, balance=balance, seed=seed)
    if not known.any():
        return {}, None
    logits = np.log(np.maximum(found[known], 1e-12))
    temperature = temperature_of(logits, labels[known])
    return dict(zip(np.array(keys)[known].tolist(), softmax(logits / temperature), strict=True)), temperature


def _probabilities(rows: Rows, keys: Sequence[str], head: Head) -> dict[str, np.ndarray]:
    """Returns content hash -> [K] for every picture, reading a few thousand features at a time."""
    found: dict[str, np.ndarray] = {}
    for start in range(0, len(keys), ROWS_AT_A_TIME):
        some = keys[start : start + ROWS_AT_A_TIME]
        found.update(zip(some, head.probabilities(rows.read(some, head.end_points)), strict=True))
    return found
