"""Near-duplicates: pictures whose features point the same way, such as two shots of one thing or a resized copy."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from zoo.transfer.head import Scaling

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

    Args:
        features: [N, C], pooled.
        keys: [N] content hashes, which settle ties.
        threshold: Cosine; above 1 joins nothing.

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
    parent = list(range(count))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in pairs:
        parent[find(i)] = find(j)
    groups: dict[int, list[int]] = {}
    for i in sorted({i for pair in pairs for i in pair}, key=lambda i: keys[i]):
        groups.setdefault(find(i), []).append(i)
    limit = max(2, int(LARGEST_SHARE * count))
    return Similar(
        [group for group in groups.values() if len(group) <= limit],
        [(i, j, c) for (i, j), c in sorted(pairs.items())],
        threshold,
    )
