"""Softmax and ridge regression on rows of features, and what they answer of rows that they did not see."""

import warnings

import numpy as np
from scipy import special

from zoo.transfer.select import POWER, make_folds

WORK = 2e9  # multiplications of one L-BFGS iteration, at most
FOLDS = 5
TEMPERATURES = (0.05, 100.0)  # the bounds of the search


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis, in float64."""
    return special.softmax(np.asarray(logits, np.float64), axis=-1)


def flatten_spectrum(x: np.ndarray, num_classes: int) -> np.ndarray:
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


def softmax_regression(
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


def temperature_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the divisor of the logits that minimises the cross-entropy with slightly smoothed labels [N].

    A few pictures that are all right would ask for infinite confidence, so each label counts as (n + 1) / (n + 2), as
    in Platt's scaling; and the logarithm of the divisor has a normal prior of mean 0 and deviation 1, which a few
    pictures hardly move and a hundred overrule.

    Source: Platt, "Probabilistic outputs for support vector machines", 1999, section 2.2.
    """
    from scipy.optimize import minimize_scalar

    logits, count = np.asarray(logits, np.float64), len(labels)
    others = max(logits.shape[1] - 1, 1)
    targets = np.full(logits.shape, 1 / (count + 2) / others)
    targets[np.arange(count), labels] = (count + 1) / (count + 2)

    def loss(log_t: float) -> float:
        entropy = -float((targets * special.log_softmax(logits / np.exp(log_t), axis=1)).sum())
        return entropy + log_t**2 / 2

    return float(np.exp(minimize_scalar(loss, bounds=np.log(TEMPERATURES), method="bounded").x))


def held_out(
    z: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    penalty: float,
    groups: np.ndarray,
    *,
    balance: bool = False,
    repeats: int = 1,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Answers for every row by softmax regressions that were fitted without it and its group, in five folds.

    Args:
        z: Rows [N, R].
        labels: [N] class indices below ``num_classes``.
        num_classes: K.
        penalty: scikit-learn's C, see ``softmax_regression``.
        groups: [N]; rows of one group (near-duplicates) stay in one fold.
        balance: Weighs rows so that every class counts alike.
        repeats: How many times the folds are drawn; the answers are averaged.
        seed: Of the folds.

    Returns:
        Probabilities [N, K], and whether each row could be judged [N]: its class was among the others each time.
    """
    found, known = np.zeros((len(z), num_classes)), np.zeros(len(z), int)
    for number in range(repeats):
        for train, held in make_folds(labels, groups, FOLDS, seed + number):
            weights, bias = softmax_regression(z[train][:, None], labels[train], num_classes, penalty, balance, 1e-3)
            found[held] += softmax(z[held] @ weights + bias) / repeats
            known[held] += np.isin(labels[held], labels[train])
    return found, known == repeats


def ridge_held_out(z: np.ndarray, labels: np.ndarray, num_classes: int, ridge: float, groups: np.ndarray) -> np.ndarray:
    """Scores [N, K] of every row by ridge regressions on the classes that were fitted without its group alone.

    With H the hat matrix of all rows, what is left of a group F when it is left out is (I - H_FF)^-1 (y_F - yhat_F).

    Source: textbook algebra (block form of Allen's PRESS).
    """
    gram = z.astype(np.float64) @ z.T
    values, vectors = np.linalg.eigh(gram / (np.trace(gram) / len(z)))
    hat = (vectors * (values / (values + ridge))) @ vectors.T
    one_hot = np.eye(num_classes)[labels]
    mean = one_hot.mean(0)
    residual = one_hot - mean - hat @ (one_hot - mean)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        residual[rows] = np.linalg.solve(np.eye(len(rows)) - hat[np.ix_(rows, rows)], residual[rows])
    return one_hot - residual
