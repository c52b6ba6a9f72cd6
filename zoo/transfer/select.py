"""Which end points the head should read: exact cross-validation by ridge regression on the pictures' Gram matrix.

With K = X X^T the left-out residuals of every fold follow from one eigendecomposition,
``r_F = (I - H_FF)^-1 (y_F - yhat_F)`` with H the hat matrix, so that dozens of combinations of end points and
penalties cost seconds. The combination with the least squared error wins: it is a steadier judge than the number of
right answers, which moves by points from fold to fold.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence

import numpy as np

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)
POWER = 0.75  # the spectrum of the features is flattened to its power: half-way whitening helped on small sets


@dataclasses.dataclass(frozen=True)
class Choice:
    """One line of the cross-validation: what was tried and how it did.

    Args:
        end_points: The end points tried.
        penalty: The ridge, or scikit-learn's C, tried.
        accuracy: Share of left-out training pictures that were right.
        loss: Their mean squared error (ridge) or cross-entropy (softmax regression).
        stage: "end points" or "penalty": what the line helped to choose.
    """

    end_points: tuple[str, ...]
    penalty: float
    accuracy: float
    loss: float
    stage: str


def combinations(end_points: Sequence[str], most: int = 3) -> list[tuple[str, ...]]:
    """Returns what ``auto`` tries: each end point alone, and up to ``most`` side by side."""
    sizes = range(1, min(most, len(end_points)) + 1)
    return [chosen for size in sizes for chosen in itertools.combinations(end_points, size)]


def choose_end_points(
    scaled: Mapping[str, np.ndarray],
    labels: np.ndarray,
    candidates: Sequence[tuple[str, ...]],
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> list[Choice]:
    """Judges combinations of end points (each scaled, [N, V, C] of V views) on the held-out pictures of the folds.

    Returns:
        The best line of each candidate.

    Source: the left-out residual of ridge regression is textbook algebra (block form of Allen's PRESS).
    """
    num_views = next(iter(scaled.values())).shape[1]
    grams = {}
    for name in dict.fromkeys(itertools.chain(*candidates)):
        rows = scaled[name].reshape(-1, scaled[name].shape[2]).astype(np.float64)
        grams[name] = rows @ rows.T
    classes, targets = np.unique(labels, return_inverse=True)
    one_hot = np.repeat(np.eye(len(classes))[targets], num_views, 0)
    mean = one_hot.mean(0)
    centred = one_hot - mean
    lines = []
    for end_points in candidates:
        gram = sum(grams[name] for name in end_points) / len(end_points)
        values, vectors = np.linalg.eigh(gram)
        kept = values > values[-1] * 1e-6
        values, vectors = values[kept] ** POWER, vectors[:, kept]
        values /= values.mean()
        found = [_left_out(vectors, values, ridge, centred, mean, targets, num_views, parts) for ridge in RIDGES]
        best = int(np.argmin([loss for _, loss in found]))
        lines.append(Choice(tuple(end_points), RIDGES[best], *found[best], "end points"))
    return lines


def _left_out(
    vectors: np.ndarray,
    values: np.ndarray,
    ridge: float,
    centred: np.ndarray,
    mean: np.ndarray,
    targets: np.ndarray,
    num_views: int,
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[float, float]:
    """Returns accuracy and squared error of left-out pictures, judged on their first view."""
    shrunk = vectors * (values / (values + ridge))
    fitted = shrunk @ (vectors.T @ centred)
    right, error, count = 0, 0.0, 0
    for _, held_out in parts:
        rows = (held_out[:, None] * num_views + np.arange(num_views)).ravel()
        block = np.eye(len(rows)) - shrunk[rows] @ vectors[rows].T
        residual = np.linalg.solve(block, centred[rows] - fitted[rows])[::num_views]
        predicted = (centred[rows][::num_views] - residual + mean).argmax(1)
        right += int((predicted == targets[held_out]).sum())
        error += float(np.square(residual).sum())
        count += len(held_out)
    return right / count, error / count


def subsample(labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Returns the indices of about ``limit`` pictures at most, each class in its share, at least two of each."""
    if len(labels) <= limit:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    rank = np.empty(len(labels), int)
    rank[by_class] = np.arange(len(labels)) - first[labels[by_class]]
    return np.flatnonzero(rank < np.maximum(np.round(counts[labels] * limit / len(labels)), 2))


def make_folds(
    labels: np.ndarray, groups: np.ndarray | None, folds: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns stratified folds (train, held out) that keep groups together; none where they would be one class only."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    splitter: StratifiedKFold | StratifiedGroupKFold
    different = len(labels) if groups is None else len(np.unique(groups))
    if different < 4:
        return []
    if groups is None or different == len(labels):
        splitter = StratifiedKFold(min(folds, different // 2), shuffle=True, random_state=seed)
    else:
        splitter = StratifiedGroupKFold(min(folds, different // 2), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer pictures than folds
        try:
            parts = list(splitter.split(labels, labels, groups))
        except ValueError:  # every class has fewer pictures than folds
            parts = list(
                StratifiedGroupKFold(2, shuffle=True, random_state=seed).split(
                    labels, np.zeros(len(labels)), groups if groups is not None else np.arange(len(labels))
                )
            )
    return [(train, held) for train, held in parts if len(held) and len(np.unique(labels[train])) > 1]
