"""The stage of the split: training, validation and test pictures, near-duplicates kept together.

Near-duplicates are pictures whose features point the same way, such as two shots of one thing or a resized copy.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from zoo.data import pluralize
from zoo.data.split import SETS, Groups, Split, split_scan
from zoo.transfer.features import Backbone, Extracted, Scaling
from zoo.transfer.scan import Scanned
from zoo.transfer.settings import Job

BLOCK = 1024
LARGEST_SHARE = 0.1  # a larger group is no duplicate but a data set whose pictures the trunk cannot tell apart


@dataclasses.dataclass(frozen=True)
class Similar:
    """Near-duplicates among some pictures.

    Args:
        groups: Indices of pictures to keep together.
        pairs: (index, index of its nearest, cosine), each pair once.
        threshold: The cosine they reach.
    """

    groups: list[list[int]]
    pairs: list[tuple[int, int, float]]
    threshold: float

    def pairs_across(self, keys: Sequence[str], label_of: Mapping[str, int]) -> list[tuple[str, str, float]]:
        """Returns the pairs that have different labels, as (key, key, cosine), the closest first."""
        across = [(keys[i], keys[j], round(c, 4)) for i, j, c in self.pairs if label_of[keys[i]] != label_of[keys[j]]]
        return sorted(across, key=lambda pair: (-pair[2], pair[0]))


def near_duplicates(features: np.ndarray, keys: Sequence[str], threshold: float) -> Similar:
    """Joins every picture with its nearest one where the cosine of their standardised features reaches the threshold.

    The features are pooled, [N, C]; the keys settle ties; a threshold above 1 joins nothing.

    Returns:
        The near-duplicates; no group is larger than a tenth of the pictures.
    """
    count = len(features)
    if count < 2 or threshold > 1:
        return Similar([], [], threshold)
    units = Scaling.fit(features)(features)
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-12)
    nearest, cosine = np.zeros(count, int), np.zeros(count)
    for start in range(0, count, BLOCK):
        block = units[start : start + BLOCK] @ units.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -2.0
        nearest[start : start + BLOCK] = block.argmax(1)
        cosine[start : start + BLOCK] = block.max(1)
    joined = np.flatnonzero(cosine >= threshold)
    pairs = {tuple(sorted((int(i), int(nearest[i])))): float(cosine[i]) for i in joined}
    joined_with = Groups(range(count))
    for i, j in pairs:
        joined_with.join(i, j)
    groups: dict[int, list[int]] = {}
    for i in sorted({i for pair in pairs for i in pair}, key=lambda i: keys[i]):
        groups.setdefault(joined_with.find(i), []).append(i)
    limit = max(2, int(LARGEST_SHARE * count))
    return Similar(
        [group for group in groups.values() if len(group) <= limit],
        [(i, j, c) for (i, j), c in sorted(pairs.items())],
        threshold,
    )


@dataclasses.dataclass(frozen=True)
class Dealt:
    """Which set each picture is in.

    Args:
        split: The sets by content hash.
        sets: Set -> content hashes, in the order of the scan.
        similar: Near-duplicates, as indices into ``keys``.
        keys: The content hashes of all pictures.
    """

    split: Split
    sets: dict[str, list[str]]
    similar: Similar
    keys: list[str]

    def groups(self, keys: Sequence[str]) -> np.ndarray:
        """Returns a number for each of some pictures, the same for near-duplicates: [N]."""
        group_of = {self.keys[i]: number for number, group in enumerate(self.similar.groups) for i in group}
        return np.array([group_of.get(key, len(group_of) + i) for i, key in enumerate(keys)])


def previous_split(job: Job) -> Split | None:
    """Returns the split that is there when it was dealt with the same seed and shares.

    Raises:
        ValueError: It is damaged.
    """
    path, settings = job.folder / "split.json", job.settings
    if not path.is_file():
        return None
    try:
        split = Split.load(path)
    except ValueError as error:
        raise ValueError(f"{error}. Delete it, and the pictures are dealt anew; or give another --out.") from None
    same = split.seed == settings.seed and split.shares == (settings.validation, settings.test)
    return split if same else None


def deal(job: Job, backbone: Backbone, scanned: Scanned, extracted: Extracted, previous: Split | None) -> Dealt:
    """Deals the pictures into sets and writes ``split.json``; none that was dealt before moves."""
    settings, keys, detail = job.settings, list(scanned.files), backbone.trunk.detail
    near = backbone.trunk.near if settings.near is None else settings.near
    similar = near_duplicates(extracted.rows.read(keys, [detail])[detail], keys, near)
    split = split_scan(
        scanned.scan,
        validation=settings.validation,
        test=settings.test,
        seed=settings.seed,
        similar=[[keys[i] for i in group] for group in similar.groups],
        previous=previous,
    )
    split.save(job.place / "split.json")
    sets = {name: [key for key in keys if split.sets[key] == name] for name in SETS}
    dealt = ", ".join(f"{len(sets[name])} {name}" for name in SETS)
    job.tell(f"split: {dealt}; {pluralize(len(similar.groups), 'group of near-duplicates')} kept together")
    return Dealt(split, sets, similar, keys)
