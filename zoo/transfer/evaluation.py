"""How good a classifier is, with how far that can be believed."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.data import pluralize

SMALL = 0.05  # an error of the confidence that does no harm
ROUGH = 0.1  # one that, where chance may give it, leaves the confidence unknown


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Returns Wilson's 95 % interval of a proportion; (0, 1) without trials.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    from scipy.stats import binomtest

    if not trials:
        return 0.0, 1.0
    interval = binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return float(interval.low), float(interval.high)


@dataclasses.dataclass(frozen=True)
class ClassResult:
    """How one class did.

    Args:
        name: The label.
        count: Pictures of it; 0 leaves recall and F1 None.
        predicted: Pictures that were called so; 0 leaves precision None.
        precision: Share of those called so that are.
        recall: Share of the class that was found.
        f1: Harmonic mean of both.
        interval: Wilson's 95 % interval of the recall.
    """

    name: str
    count: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None
    interval: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class CalibrationBin:
    """Predictions of about the same confidence: how sure they were and how often they were right."""

    low: float
    high: float
    count: int
    confidence: float
    accuracy: float


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of ``evaluate``.

    Args:
        count: Pictures.
        correct: Of them right.
        accuracy: Their share; None without pictures.
        interval: Wilson's 95 % interval of the accuracy.
        top_k: k -> share of pictures whose label is among the k most probable.
        macro_f1: Mean F1 of the classes that have pictures.
        loss: Mean cross-entropy, in nats.
        calibration_error: Expected calibration error over ten bins of confidence.
        bins: Those bins that are not empty.
        majority: Accuracy of always answering the class that is most frequent in training.
        majority_class: That class.
        beats_majority: Whether the interval lies above it.
        classes: Per class.
        confusion: confusion[i][j] pictures of class i were called j.
    """

    count: int
    correct: int
    accuracy: float | None
    interval: tuple[float, float]
    top_k: dict[int, float]
    macro_f1: float | None
    loss: float | None
    calibration_error: float | None
    bins: tuple[CalibrationBin, ...]
    majority: float | None
    majority_class: str | None
    beats_majority: bool
    classes: tuple[ClassResult, ...]
    confusion: list[list[int]]

    @property
    def calibration_in_words(self) -> str:
        """Whether its confidence can be believed, as far as so many pictures can tell; empty without pictures."""
        if self.calibration_error is None:
            return ""
        usual, most = calibration_by_chance(self.bins)
        off = f"Its confidence is off by {self.calibration_error:.1%} on average"
        if self.calibration_error > most:
            sure = sum(b.count * b.confidence for b in self.bins) / self.count
            which = "too sure" if sure > self.correct / self.count else "not sure enough"
            how = f"a little {which}" if self.calibration_error < SMALL else f"{which}, so take it with care"
            return f"{off}, where chance explains {most:.1%} at most: it is {how}."
        found = f"{off}; one that is right would be off by {usual:.1%} in {pluralize(self.count, 'picture')}, by chance"
        if most > ROUGH:
            return f"{found}: so few pictures say little about it."
        return f"{found}: it can be taken at face value."

    @property
    def in_words(self) -> str:
        """The accuracy with its interval and the number of pictures."""
        low, high = self.interval
        share = "-" if self.accuracy is None else f"{self.accuracy:.1%}"
        return f"accuracy {share} ({low:.1%} to {high:.1%}, {pluralize(self.count, 'picture')})"

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Evaluation":
        """Reads what ``to_dict`` gave, after a journey through JSON."""
        plain = dict(values)
        plain["interval"] = tuple(plain["interval"])
        plain["top_k"] = {int(k): share for k, share in plain["top_k"].items()}
        plain["bins"] = tuple(CalibrationBin(**line) for line in plain["bins"])
        results = [line | {"interval": tuple(line["interval"])} for line in plain["classes"]]
        plain["classes"] = tuple(ClassResult(**line) for line in results)
        return cls(**plain)


def evaluate(
    probabilities: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    majority_class: str | None = None,
    top: Sequence[int] = (3, 5),
) -> Evaluation:
    """Judges predictions.

    Args:
        probabilities: [N, K], rows that sum to 1.
        labels: [N] class indices below K.
        classes: The K labels.
        majority_class: The class most frequent in training; by default the most frequent one here.
        top: Values of k, those below K are used.

    Returns:
        The evaluation; without pictures its shares are None.

    Raises:
        ValueError: Shapes do not agree, or a label is out of range.
    """
    from sklearn.metrics import confusion_matrix

    probabilities, labels = np.asarray(probabilities, np.float64), np.asarray(labels, np.int64)
    count, num_classes = len(labels), len(classes)
    if probabilities.shape != (count, num_classes):
        raise ValueError(f"Probabilities must be [{count}, {num_classes}]. Received: {list(probabilities.shape)}")
    if count and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(
            f"Labels must lie in 0 .. {num_classes - 1}. Received: {labels.min()} .. {labels.max()}; "
            "were they counted from 1, or is there a background class?"
        )
    predicted = probabilities.argmax(1) if count else np.zeros(0, np.int64)
    confusion = np.zeros((num_classes, num_classes), np.int64)
    if count:  # scikit-learn refuses to judge nothing
        confusion = confusion_matrix(labels, predicted, labels=np.arange(num_classes))
    results = _class_results(labels, predicted, classes)
    correct = int(np.trace(confusion))
    interval = wilson(correct, count)
    if majority_class is None and count:
        majority_class = classes[int(confusion.sum(1).argmax())]
    shares: dict[int, float] = {}
    majority = loss = error = macro = None
    bins: tuple[CalibrationBin, ...] = ()
    if count:
        of_label = probabilities[np.arange(count), labels]
        better = (probabilities > of_label[:, None]).sum(1)
        shares = {k: float((better < k).mean()) for k in top if k < num_classes}
        loss = float(-np.log(np.maximum(of_label, 1e-12)).mean())
        bins = calibration_bins(probabilities.max(1), predicted == labels)
        error = sum(b.count * abs(b.confidence - b.accuracy) for b in bins) / count
        macro = float(np.mean([r.f1 or 0.0 for r in results if r.count]))
        majority = sum(r.count for r in results if r.name == majority_class) / count
    return Evaluation(
        count=count,
        correct=correct,
        accuracy=correct / count if count else None,
        interval=interval,
        top_k=shares,
        macro_f1=macro,
        loss=loss,
        calibration_error=error,
        bins=bins,
        majority=majority,
        majority_class=majority_class,
        beats_majority=majority is not None and interval[0] > majority,
        classes=tuple(results),
        confusion=confusion.tolist(),
    )


def calibration_bins(confidence: np.ndarray, right: np.ndarray, bins: int = 10) -> tuple[CalibrationBin, ...]:
    """Sorts predictions into bins of equal width by confidence [N]; empty bins are left out.

    Source: Guo et al., "On Calibration of Modern Neural Networks", arXiv 1706.04599, section 2.
    """
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return tuple(
        CalibrationBin(
            low=i / bins,
            high=(i + 1) / bins,
            count=int(inside.sum()),
            confidence=float(confidence[inside].mean()),
            accuracy=float(right[inside].mean()),
        )
        for i in range(bins)
        if (inside := place == i).any()
    )


def calibration_by_chance(bins: Sequence[CalibrationBin], draws: int = 4000) -> tuple[float, float]:
    """Returns what error a model would show whose confidence is right: its mean, and what 95 of 100 stay below.

    Even then the answers in a bin are right now more often, now less: of n, as many as a binomial draw at the bin's
    mean confidence says. With few pictures that alone is a large error.

    Source: Vaicenavicius et al., "Evaluating model calibration in classification", arXiv 1902.06977, section 5.
    """
    counts = np.array([b.count for b in bins])
    sure = np.clip([b.confidence for b in bins], 0.0, 1.0)
    right = np.random.default_rng(0).binomial(counts, sure, (draws, len(bins)))
    errors = np.abs(right - counts * sure).sum(1) / counts.sum()
    return float(errors.mean()), float(np.quantile(errors, 0.95))


def _class_results(labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> list[ClassResult]:
    from sklearn.metrics import precision_recall_fscore_support

    numbers = np.arange(len(classes))
    shares = np.full((3, len(classes)), np.nan)
    if len(labels):
        shares = precision_recall_fscore_support(labels, predicted, labels=numbers, zero_division=np.nan)[:3]
    results = []
    for number, name, precision, recall, f1 in zip(numbers, classes, *shares, strict=True):
        of_class, called = labels == number, predicted == number
        count, calls = int(of_class.sum()), int(called.sum())
        results.append(
            ClassResult(
                name=name,
                count=count,
                predicted=calls,
                precision=float(precision) if calls else None,
                recall=float(recall) if count else None,
                f1=float(f1) if count else None,
                interval=wilson(int((of_class & called).sum()), count),
            )
        )
    return results
