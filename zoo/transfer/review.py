"""The stage of the label review: which labels may be wrong, by models that did not see the pictures."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata
from threadpoolctl import threadpool_limits

from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.transfer.features import Backbone, Extracted, Scaling
from zoo.transfer.head import Fitted
from zoo.transfer.regression import flatten_spectrum, held_out, ridge_held_out
from zoo.transfer.scan import Scanned
from zoo.transfer.split import Dealt
from zoo.transfer.suspicious import Suspect

# Softmax regression at this penalty, drawn into folds so many times, and ridge regression, chosen on
# emoji with flipped labels (docs/transfer.md); up to so many pictures, above which the head's own answers do.
PENALTY, REPEATS, RIDGE, MOST = 3.0, 3, 1.0, 3000
LEADING = 512  # directions that the softmax regression reads: no worse than all of them, and eight times faster


@dataclasses.dataclass(frozen=True)
class Review:
    """What models that did not see the pictures say of their labels.

    Args:
        probabilities: Content hash -> [K]; without pictures that no such model can judge.
        order: Content hash -> the lower, the likelier its label is wrong.
        errors: How many labels confident learning counts as wrong.
    """

    probabilities: dict[str, np.ndarray]
    order: dict[str, float]
    errors: int


def review_labels(
    keys: Sequence[str], features: Mapping[str, np.ndarray], labels: np.ndarray, num_classes: int, groups: np.ndarray
) -> Review:
    """Lets every picture be judged by models that did not see it or its near-duplicates.

    Two of them, on all end points side by side: softmax regression, by the log of its own label's probability over the
    best other one's, and ridge regression, by the same difference of its scores. The mean of the two ranks orders them.

    Args:
        keys: Content hashes of the pictures, N.
        features: End point -> [N, C].
        labels: [N] class indices.
        num_classes: K.
        groups: [N]; the same number for near-duplicates.
    """
    x = np.concatenate([Scaling.fit(rows)(rows) for rows in features.values()], 1) / np.sqrt(len(features))
    with threadpool_limits(1, "blas"):
        z = x @ flatten_spectrum(x, num_classes)
        found, known = held_out(z[:, -LEADING:], labels, num_classes, PENALTY, groups, repeats=REPEATS)
        scores = ridge_held_out(z, labels, num_classes, RIDGE, groups)
    ranks = sum(rankdata(margins(values, labels)) for values in (np.log(np.maximum(found, 1e-12)), scores))
    order = {key: float(rank) for key, rank, judged in zip(keys, ranks, known, strict=True) if judged}
    judged = {key: row for key, row in zip(keys, found, strict=True) if key in order}
    return Review(judged, order, int((label_errors(found[known], labels[known]) >= 0).sum()))


def review_of(probabilities: Mapping[str, np.ndarray], label_of: Mapping[str, int]) -> Review:
    """The same from a head's answers to pictures that it did not see."""
    keys = list(probabilities)
    if not keys:
        return Review({}, {}, 0)
    table, labels = np.stack([probabilities[key] for key in keys]), np.array([label_of[key] for key in keys])
    order = dict(zip(keys, margins(np.log(np.maximum(table, 1e-12)), labels).tolist(), strict=True))
    return Review(dict(probabilities), order, int((label_errors(table, labels) >= 0).sum()))


def margins(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns by how much the own label's value [N, K] is above the best other one's: [N]."""
    rows = np.arange(len(labels))
    others = values.copy()
    others[rows, labels] = -np.inf
    return values[rows, labels] - others.max(1)


def label_errors(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns the class that each of the labels [N] should have which confident learning counts as wrong; -1 else.

    A picture is confidently of class j where its probability reaches the mean of those of the pictures labelled j; of
    several such classes the most probable counts.

    Source: Northcutt et al., "Confident Learning", arXiv 1911.00068, section 3.
    """
    rows, count = np.arange(len(labels)), probabilities.shape[1]
    own = probabilities[rows, labels]
    mean = np.array([own[labels == j].mean() if (labels == j).any() else np.inf for j in range(count)])
    confident = np.where(probabilities >= mean, probabilities, -1.0)
    best = confident.argmax(1)
    return np.where((confident.max(1) > 0) & (best != labels), best, -1)


def find_suspicious(
    scan: Scan,
    split: Split,
    review: Review,
    classes: Sequence[str],
    near_pairs: Sequence[tuple[str, str, float]] = (),
) -> list[Suspect]:
    """Lists pictures that lie in two classes, near-duplicates with different labels, and labels that seem wrong.

    Args:
        scan: The pictures.
        split: Their sets.
        review: What models that did not see them say.
        classes: The K labels.
        near_pairs: (content hash, content hash, cosine) of near-duplicates that have different labels.

    Returns:
        The suspects: conflicts first, then near-duplicates, then pictures for which models that did not see them find
        another class more probable, the likeliest first.
    """
    conflicts = []
    for group in scan.conflicts:
        for picture in group:
            others = sorted({p.label for p in group} - {picture.label})
            reason = f"the same picture is also in {', '.join(others)}"
            conflicts.append(Suspect(picture.name, picture.label, others[0], None, None, reason, picture.sha256))
    seen = {suspect.sha256 for suspect in conflicts}
    of_key = {picture.sha256: picture for picture in scan.pictures}
    near = []
    for first, second, cosine in near_pairs:
        for picture, other in ((of_key[first], of_key[second]), (of_key[second], of_key[first])):
            if picture.sha256 not in seen:
                reason = f"looks like {other.name} in {other.label}"
                near.append(Suspect(picture.name, picture.label, other.label, None, cosine, reason, picture.sha256))
                seen.add(picture.sha256)
    wrong = []
    for picture in scan.pictures:
        row = review.probabilities.get(picture.sha256)
        if row is None or picture.sha256 in seen or classes[best := int(row.argmax())] == picture.label:
            continue
        reason = f"a model that did not see it disagrees ({split.sets[picture.sha256]} picture)"
        sure = round(float(row[best]), 4)
        wrong.append(Suspect(picture.name, picture.label, classes[best], sure, None, reason, picture.sha256))
    return conflicts + near + sorted(wrong, key=lambda suspect: (review.order[suspect.sha256], suspect.path))


def review(backbone: Backbone, scanned: Scanned, dealt: Dealt, extracted: Extracted, fitted: Fitted) -> Review:
    """The stage: by all end points that the head might read; very many pictures by what the head's fit held out."""
    if len(dealt.keys) > MOST:
        return review_of(fitted.held_out, scanned.label_of)
    names = list(dict.fromkeys(name for some in backbone.candidates for name in some))
    features = extracted.rows.read(dealt.keys, names)
    labels = scanned.labels_of(dealt.keys)
    return review_labels(dealt.keys, features, labels, len(scanned.classes), dealt.groups(dealt.keys))
