"""The head: softmax regression on pooled features, with everything about it chosen inside the training part.

Pooled features are made comparable first: signed square root (activations are skewed), standardised, each end point
scaled to rows of mean squared norm 1; then the spectrum of the training pictures is flattened half-way
(``select.POWER``). All that is linear but for the root, and goes into one weight matrix. scikit-learn's L-BFGS fits.
"""

import dataclasses
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from zoo.files import parse_json, reading, validated, write_whole
from zoo.transfer.select import POWER, Choice, choose_end_points, make_folds, subsample

FORMAT = 1
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
WORK = 2e9  # multiplications of one L-BFGS iteration, at most
_ARRAYS = ("shift", "scale", "weights", "bias", "hidden_weights", "hidden_bias")
ROOT_SHIFT = 1e-3  # keeps the slope of the square root finite, so that fine-tuning can pass through it


def signed_root(x: np.ndarray) -> np.ndarray:
    """Returns ``sign(x) (sqrt(|x| + e) - sqrt(e))`` with e = ROOT_SHIFT, as the network ``retrained`` does."""
    return np.sign(x) * (np.sqrt(np.abs(x) + ROOT_SHIFT) - np.sqrt(ROOT_SHIFT))


@dataclasses.dataclass(frozen=True)
class Scaling:
    """What brings one end point's features to the scale that the head expects: ``(signed_root(x) - shift) * scale``.

    Args:
        shift: [C], the mean over the training pictures.
        scale: [C], so that rows have a mean squared norm of 1.
    """

    shift: np.ndarray
    scale: np.ndarray

    @classmethod
    def fit(cls, features: np.ndarray) -> "Scaling":
        """Measures the training pictures' features [N, C]."""
        rooted = signed_root(features.astype(np.float64))
        shift, deviation = rooted.mean(0), rooted.std(0)
        scale = 1.0 / (deviation + 0.02 * deviation.mean() + 1e-9)
        norm = np.sqrt(np.square((rooted - shift) * scale).sum(1).mean())
        return cls(shift.astype(np.float32), (scale / max(norm, 1e-6)).astype(np.float32))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Scales features [..., C] -> float32 [..., C]."""
        return ((signed_root(features) - self.shift) * self.scale).astype(np.float32)


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
        temperature: Divides the logits; calibrated on the validation part, 1 without one.
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
        absent = [name for name in self.end_points if name not in features]
        if absent:
            raise ValueError(f"The head reads {', '.join(self.end_points)}. Received: {', '.join(features)}")
        x = np.concatenate([features[name] for name in self.end_points], 1)
        x = (signed_root(x) - self.shift) * self.scale
        if self.hidden_weights is not None:
            x = np.maximum(x @ self.hidden_weights + self.hidden_bias, 0.0)
        return (x @ self.weights + self.bias) / self.temperature

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


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis, in float64."""
    shifted = np.asarray(logits, np.float64)
    shifted = np.exp(shifted - shifted.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def fit_head(
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
        rotation = _flatten_spectrum(x.reshape(-1, x.shape[2]), len(classes))
        z = x @ rotation
        if parts and len(penalties) > 1:
            lines = _try_penalties(z[chosen], labels[chosen], end_points, penalties, parts, balance)
            penalty = max(lines, key=lambda choice: (choice.accuracy, -choice.loss)).penalty
            tried += lines
        weights, bias = _softmax_regression(z, labels, len(classes), penalty, balance)
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


def _flatten_spectrum(x: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns the map [D, R] onto principal directions whose variances are raised to POWER, rows of mean norm 1."""
    x = x.astype(np.float64)
    if len(x) <= x.shape[1]:
        values, vectors = np.linalg.eigh(x @ x.T)
        vectors = x.T @ (vectors / np.sqrt(np.maximum(values, values[-1] * 1e-12)))
    else:
        values, vectors = np.linalg.eigh(x.T @ x)
    most = max(64, int(WORK / (len(x) * num_classes)))  # with very many classes the leading directions must do
    kept = np.flatnonzero(values > values[-1] * 1e-6)[-most:]
    flat = vectors[:, kept] * values[kept] ** ((POWER - 1) / 2)
    return flat / np.sqrt(np.sum(values[kept] ** POWER) / len(x))


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
        for train, held_out in parts:
            weights, bias = _softmax_regression(z[train], labels[train], classes, penalty, balance, 1e-3)
            p = softmax(z[held_out, 0] @ weights + bias)
            right += int((p.argmax(1) == labels[held_out]).sum())
            loss -= float(np.log(np.maximum(p[np.arange(len(p)), labels[held_out]], 1e-12)).sum())
            count += len(held_out)
        lines.append(Choice(end_points, float(penalty), right / count, loss / count, "penalty"))
    return lines


def _softmax_regression(
    z: np.ndarray, labels: np.ndarray, num_classes: int, penalty: float, balance: bool, tolerance: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
    """Fits W [R, K] and b [K] to rows z [N, V, R]; V views of a picture weigh as much as one."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    views, width = z.shape[1:]
    stretch = np.sqrt(width)  # unit variance a direction: L-BFGS' tolerance means the same for any width
    model = LogisticRegression(
        C=penalty / (width * views), max_iter=500, tol=tolerance, class_weight="balanced" if balance else None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(z.reshape(-1, width) * stretch, np.repeat(labels, views))
    coefficients, intercept = model.coef_ * stretch, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps one column for two classes: logits +-t/2 are the same model
        coefficients, intercept = np.concatenate([-coefficients, coefficients]) / 2, np.array([-1, 1]) * intercept / 2
    weights, bias = np.zeros((width, num_classes)), np.full(num_classes, -30.0)
    weights[:, model.classes_], bias[model.classes_] = coefficients.T, intercept  # no picture, no chance
    return weights, bias


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


def temperature_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the divisor of the logits that minimises the cross-entropy with slightly smoothed labels.

    A few pictures that are all right would ask for infinite confidence, so each label counts as (n + 1) / (n + 2), as
    in Platt's scaling.

    Args:
        logits: [N, K].
        labels: [N] class indices.

    Source: Platt, "Probabilistic outputs for support vector machines", 1999, section 2.2.
    """
    from scipy.optimize import minimize_scalar

    logits, count = np.asarray(logits, np.float64), len(labels)
    others = max(logits.shape[1] - 1, 1)
    targets = np.full(logits.shape, 1 / (count + 2) / others)
    targets[np.arange(count), labels] = (count + 1) / (count + 2)

    def loss(log_t: float) -> float:
        z = logits / np.exp(log_t)
        z = z - z.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(z).sum(1)) - (targets * z).sum(1)))

    return float(np.exp(minimize_scalar(loss, bounds=(np.log(0.05), np.log(100.0)), method="bounded").x))
