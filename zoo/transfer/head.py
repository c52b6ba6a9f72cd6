"""The head: softmax regression on pooled features, with everything about it chosen inside the training part.

Pooled features are made comparable first: signed square root (activations are skewed), centred, divided by the root of
their deviation (half-way to standardising, so that quiet channels do not shout), each end point scaled to mean squared
norm 1. Then scikit-learn's L-BFGS fits the regression. Cross-validation runs on the Gram matrix of the
pictures, ``K = X X^T``: its eigenvectors are an exact rotation of the features, so that trying many end points and
penalties costs seconds even where the features are thousands wide.
"""

import dataclasses
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.transfer.bottlenecks import write_atomically

FORMAT = 1
PENALTIES = (3.0, 10.0, 30.0, 100.0)
ROOT_SHIFT = 1e-3  # keeps the slope of the square root finite, so that fine-tuning can pass through it


def signed_root(x: Any) -> Any:
    """Returns ``sign(x) (sqrt(|x| + e) - sqrt(e))`` with e = ROOT_SHIFT; arrays of NumPy, any shape."""
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
        scale = 1.0 / np.sqrt(deviation * deviation.mean() + 1e-12)
        norm = np.sqrt(np.square((rooted - shift) * scale).sum(1).mean())
        return cls(shift.astype(np.float32), (scale / max(norm, 1e-6)).astype(np.float32))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Scales features [N, C] -> float32 [N, C]."""
        return ((signed_root(features) - self.shift) * self.scale).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Head:
    """A fitted softmax regression on one or several pooled end points.

    Args:
        end_points: The end points, in the order in which their features are put side by side.
        classes: The labels, in the order of the columns.
        shift: [D], subtracted from the rooted features.
        scale: [D], multiplied then.
        weights: [D, K].
        bias: [K].
        penalty: scikit-learn's C, the inverse of the L2 penalty.
        temperature: Divides the logits; calibrated on the validation part, 1 without one.
    """

    end_points: tuple[str, ...]
    classes: tuple[str, ...]
    shift: np.ndarray
    scale: np.ndarray
    weights: np.ndarray
    bias: np.ndarray
    penalty: float
    temperature: float = 1.0

    def logits(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns calibrated logits [N, K] of features [N, C] by end point.

        Raises:
            ValueError: An end point is missing.
        """
        absent = [name for name in self.end_points if name not in features]
        if absent:
            raise ValueError(f"The head reads {', '.join(self.end_points)}. Received: {', '.join(features)}")
        x = np.concatenate([features[name] for name in self.end_points], 1)
        return ((signed_root(x) - self.shift) * self.scale @ self.weights + self.bias) / self.temperature

    def probabilities(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the probabilities [N, K] of features [N, C] by end point."""
        return softmax(self.logits(features))

    def save(self, path: str | Path) -> None:
        """Writes the head as safetensors."""
        from safetensors.numpy import save

        plain = {"end_points": self.end_points, "classes": self.classes, "penalty": self.penalty}
        text = json.dumps({"format": FORMAT, "temperature": self.temperature, **plain}, ensure_ascii=False)
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in ("shift", "scale", "weights", "bias")}
        write_atomically(path, save(arrays, metadata={"head": text}))

    @classmethod
    def load(cls, path: str | Path) -> "Head":
        """Reads what ``save`` wrote.

        Raises:
            ValueError: The file is no head, or a newer zoo wrote it.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, "np") as file:
                plain = json.loads(file.metadata()["head"])
                arrays = {name: file.get_tensor(name) for name in ("shift", "scale", "weights", "bias")}
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a head that `zoo retrain` wrote ({error}).") from error
        if plain.pop("format", None) != FORMAT:
            raise ValueError(f"{path} was written by a newer zoo; update zoo to read it.")
        values: dict[str, Any] = {**plain, **arrays}
        return cls(**{name: tuple(x) if isinstance(x, list) else x for name, x in values.items()})


@dataclasses.dataclass(frozen=True)
class Choice:
    """One line of the cross-validation: what was tried and how it did.

    Args:
        end_points: The end points tried.
        penalty: The C tried.
        accuracy: Share of left-out training pictures that were right.
        loss: Their mean cross-entropy.
        error: Standard error of the accuracy.
    """

    end_points: tuple[str, ...]
    penalty: float
    accuracy: float
    loss: float
    error: float


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis, in float64."""
    shifted = np.asarray(logits, np.float64)
    shifted = np.exp(shifted - shifted.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def candidates_of(end_points: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns what ``auto`` tries: each end point, and each pair side by side."""
    return [(name,) for name in end_points] + list(itertools.combinations(end_points, 2))


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
        candidates: Groups of end points to try; each end point alone when None.
        penalties: Values of C to try.
        groups: [N]; pictures of one group (near-duplicates) stay in one fold.
        balance: Weighs pictures so that every class counts alike.
        folds: Folds of the cross-validation; fewer where a class has fewer pictures.
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
    candidates = list(candidates or [(name,) for name in features])
    scalings = {name: Scaling.fit(rows.reshape(-1, rows.shape[2])) for name, rows in views.items()}
    tried = []
    if len(candidates) * len(penalties) > 1:
        tried = _cross_validate(views, labels, scalings, candidates, penalties, groups, balance, folds, seed, max_rows)
    best = max(tried, key=lambda choice: (choice.accuracy, -choice.loss), default=None)
    end_points, penalty = (best.end_points, best.penalty) if best else (candidates[0], float(penalties[0]))
    share = 1 / np.sqrt(len(end_points))
    x = np.concatenate([scalings[n](views[n].reshape(-1, views[n].shape[2])) * share for n in end_points], 1)
    per_picture = next(iter(views.values())).shape[1]
    weights, bias = _softmax_regression(x, np.repeat(labels, per_picture), len(classes), penalty / per_picture, balance)
    head = Head(
        end_points=end_points,
        classes=tuple(classes),
        shift=np.concatenate([scalings[n].shift for n in end_points]),
        scale=np.concatenate([scalings[n].scale * np.float32(share) for n in end_points]),
        weights=weights.astype(np.float32),
        bias=bias.astype(np.float32),
        penalty=penalty,
    )
    return head, tried


def _softmax_regression(
    x: np.ndarray, labels: np.ndarray, num_classes: int, penalty: float, balance: bool, tolerance: float = 1e-5
) -> tuple[np.ndarray, np.ndarray]:
    """Fits W [D, K] and b [K]; rotates wide features into the span of the rows first, which is exact under L2."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    basis = None
    if x.shape[1] > x.shape[0]:
        basis = np.linalg.qr(x.T)[0]  # [D, N]
        x = x @ basis
    model = LogisticRegression(C=penalty, max_iter=1000, tol=tolerance, class_weight="balanced" if balance else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, labels)
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # scikit-learn keeps one column for two classes: logits +-z/2 are the same model
        coefficients, intercept = np.concatenate([-coefficients, coefficients]) / 2, np.array([-1, 1]) * intercept / 2
    rotated = coefficients.T if basis is None else basis @ coefficients.T
    weights, bias = np.zeros((len(rotated), num_classes)), np.full(num_classes, -30.0)
    weights[:, model.classes_], bias[model.classes_] = rotated, intercept  # a class without pictures gets nothing
    return weights, bias


def _cross_validate(
    views: Mapping[str, np.ndarray],
    labels: np.ndarray,
    scalings: Mapping[str, Scaling],
    candidates: Sequence[tuple[str, ...]],
    penalties: Sequence[float],
    groups: np.ndarray | None,
    balance: bool,
    folds: int,
    seed: int,
    max_rows: int,
) -> list[Choice]:
    """Tries every candidate with every penalty on the same folds."""
    chosen = _subsample(labels, max_rows, seed)
    y = labels[chosen]
    parts = _folds(y, None if groups is None else np.asarray(groups)[chosen], folds, seed)
    if not parts:
        return []
    grams, num_views = {}, next(iter(views.values())).shape[1]
    for name in dict.fromkeys(itertools.chain(*candidates)):
        rows = views[name][chosen]
        x = scalings[name](rows.reshape(-1, rows.shape[2])).astype(np.float64)
        grams[name] = x @ x.T
    tried = []
    for end_points in candidates:
        gram = sum(grams[name] for name in end_points) / len(end_points)
        values, vectors = np.linalg.eigh(gram)
        keep = values > values[-1] * 1e-7
        z = (vectors[:, keep] * np.sqrt(values[keep])).reshape(len(y), num_views, -1).astype(np.float32)
        for penalty in penalties:
            right, losses = np.zeros(len(y), bool), np.zeros(len(y))
            for train, held_out in parts:
                x, t = z[train].reshape(-1, z.shape[2]), np.repeat(y[train], num_views)
                weights, bias = _softmax_regression(x, t, int(y.max()) + 1, penalty / num_views, balance, 1e-2)
                p = softmax(z[held_out, 0] @ weights + bias)
                right[held_out] = p.argmax(1) == y[held_out]
                losses[held_out] = -np.log(np.maximum(p[np.arange(len(p)), y[held_out]], 1e-12))
            judged = np.concatenate([held_out for _, held_out in parts])
            accuracy = float(right[judged].mean())
            error = float(np.sqrt(accuracy * (1 - accuracy) / len(judged)))
            tried.append(Choice(tuple(end_points), float(penalty), accuracy, float(losses[judged].mean()), error))
    return tried


def _subsample(labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Returns the indices of at most ``limit`` pictures, each class in its share, at least two of each."""
    if len(labels) <= limit:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    rank = np.empty(len(labels), int)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        rank[of_class] = np.arange(len(of_class))
    share = limit / len(labels)
    counts = np.bincount(labels)[labels]
    return np.flatnonzero(rank < np.maximum(np.round(counts * share), 2))


def _folds(labels: np.ndarray, groups: np.ndarray | None, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns stratified folds (train, held out) that keep groups together; none when a class would vanish."""
    from sklearn.model_selection import StratifiedGroupKFold

    groups = np.arange(len(labels)) if groups is None else groups
    splitter = StratifiedGroupKFold(max(2, min(folds, len(np.unique(groups)))), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer pictures than folds
        parts = list(splitter.split(labels, labels, groups))
    return [(train, held) for train, held in parts if len(held) and len(np.unique(labels[train])) > 1]


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
    from scipy.optimize import minimize_scalar

    if not len(labels):
        return head
    logits, rows = head.logits(features).astype(np.float64), np.arange(len(labels))

    def loss(log_t: float) -> float:
        z = logits / np.exp(log_t)
        z = z - z.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(z).sum(1)) - z[rows, labels]))

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(100.0)), method="bounded")
    return dataclasses.replace(head, temperature=float(np.exp(found.x)) * head.temperature)
