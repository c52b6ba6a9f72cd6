"""Deals pictures into training, validation and test sets by their content.

Each picture's hash, with the seed, is a number u in [0, 1): test takes u < test, validation the next share, training
the rest. So a picture stays where it is when others are added, and renaming or moving files changes nothing. On top
of that come the guarantees: pictures that show the same thing are dealt together, and every class with three or more
different pictures is in all three sets. A split saved before is the last word: no old picture moves.
"""

import hashlib
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from zoo.data import pluralize
from zoo.data.scan import Scan
from zoo.files import read_versioned, validated, write_whole

FORMAT = 1  # of the saved file
SETS = ("train", "validation", "test")


@dataclass
class Split:
    """Which picture is in which set.

    Args:
        sets: Key (hash of the content) -> "train", "validation" or "test".
        labels: Class -> set -> number of pictures.
        train_only: Classes with too few different pictures to be validated or tested.
        notes: What a person should know, in sentences.
        seed: Seed of the hash.
        shares: (validation, test): the shares aimed at.
    """

    sets: dict[str, str]
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    train_only: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seed: int = 0
    shares: tuple[float, float] = (0.1, 0.1)

    def indices(self, keys: Sequence[str], name: str) -> list[int]:
        """Returns the positions in ``keys`` that are in the set ``name``.

        Raises:
            ValueError: another name, or a key that was not dealt.
        """
        if name not in SETS:
            raise ValueError(f"sets are {', '.join(SETS)}, got {name!r}")
        missing = [key for key in keys if key not in self.sets]
        if missing:
            raise ValueError(f"{len(missing)} pictures were not dealt into a set, the first has hash {missing[0]}")
        return [index for index, key in enumerate(keys) if self.sets[key] == name]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the split as JSON, whole or not at all."""
        write_whole(path, json.dumps({"format": FORMAT, **self.__dict__}, indent=1, sort_keys=True))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Split":
        """Reads what ``save`` wrote.

        Raises:
            ValueError: the file is of another kind or a newer version.
        """
        split = validated(cls, read_versioned(path, FORMAT, "a saved split"), path)
        if not set(split.sets.values()) <= set(SETS):
            raise ValueError(f"{path} is not a saved split: sets are {', '.join(SETS)}")
        return split


_Key = TypeVar("_Key", str, int)


class Groups(Generic[_Key]):
    """Keys that must stay together (union-find)."""

    def __init__(self, keys: Iterable[_Key]) -> None:
        self.parent: dict[_Key, _Key] = {key: key for key in keys}

    def find(self, key: _Key) -> _Key:
        """Returns the key that stands for a key's group."""
        while self.parent[key] != key:
            self.parent[key] = key = self.parent[self.parent[key]]
        return key

    def join(self, first: _Key, second: _Key) -> None:
        """Puts two groups together."""
        low, high = sorted((self.find(first), self.find(second)))
        self.parent[high] = low  # the smallest key stands for the group, in whatever order it grew


def split_keys(
    keys: Sequence[str],
    labels: Sequence[str],
    *,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    together: Iterable[Sequence[str]] = (),
    given: Mapping[str, str] | None = None,
    previous: Split | None = None,
) -> Split:
    """Deals keys into sets.

    Args:
        keys: One content hash a picture; equal ones are the same picture.
        labels: One class a picture.
        validation: Share of the validation set, 0 for none.
        test: Share of the test set, 0 for none.
        seed: Another seed deals anew.
        together: Groups of keys that must be in one set: near-duplicates.
        given: Key -> set for pictures whose set is decided already, as by folders called train and test.
        previous: An earlier split: its pictures stay where they are.

    Returns:
        The split.

    Raises:
        ValueError: fewer than two classes, shares that are negative or sum to 1 or more, or lengths that differ.
    """
    if len(keys) != len(labels):
        raise ValueError(f"one label a picture: got {len(keys)} pictures and {len(labels)} labels")
    if validation < 0 or test < 0 or validation + test >= 1:
        raise ValueError(f"shares must be 0 or more and leave something to train on, got {validation=}, {test=}")
    if len(set(labels)) < 2:
        raise ValueError(f"a classifier needs two classes or more, got {sorted(set(labels))}")
    groups = Groups(keys)
    for group in together:
        for key in group[1:]:
            groups.join(group[0], key)
    result = Split({}, seed=seed, shares=(validation, test))
    fixed = dict(previous.sets) if previous else {}
    fixed.update(given or {})
    fixed = {key: name for key, name in fixed.items() if key in groups.parent}
    place, settled = _deal(groups, fixed, result)
    members = defaultdict(set)
    for key, label in zip(keys, labels, strict=True):
        members[label].add(groups.find(key))
    _guarantee(place, settled, members, result)
    for key in groups.parent:
        result.sets[key] = fixed.get(key, place[groups.find(key)])
    count = Counter((label, result.sets[key]) for key, label in zip(keys, labels, strict=True))
    result.labels = {label: {name: count[label, name] for name in SETS} for label in sorted(members)}
    return result


def _position(key: str, seed: int) -> float:
    """Returns u in [0, 1) for a key."""
    return int.from_bytes(hashlib.sha256(f"{seed} {key}".encode()).digest()[:7], "big") / 2**56


def _deal(groups: Groups[str], fixed: Mapping[str, str], result: Split) -> tuple[dict[str, str], set[str]]:
    """Returns the set of each group, by its position or by what is fixed, and the groups that must not move."""
    validation, test = result.shares
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for key, name in fixed.items():
        votes[groups.find(key)][name] += 1
    place = {}
    for root in {groups.find(key) for key in groups.parent}:
        if root in votes:
            place[root] = min(votes[root], key=lambda name: (-votes[root][name], SETS.index(name)))
        else:
            u = _position(root, result.seed)
            place[root] = "test" if u < test else "validation" if u < test + validation else "train"
    torn = sum(len(names) > 1 for names in votes.values())
    if torn:
        result.notes.append(f"{pluralize(torn, 'group of equal or similar pictures')} in several sets, as before")
    return place, set(votes)


def _guarantee(place: dict[str, str], settled: set[str], members: Mapping[str, set[str]], result: Split) -> None:
    """Moves as few groups as possible so that every class is in every set, or in training only."""
    wanted = [name for name, share in zip(("test", "validation"), reversed(result.shares), strict=True) if share > 0]
    crowd = Counter(root for roots in members.values() for root in roots)
    for label in sorted(members):
        if len(members[label]) < len(wanted) + 1:
            result.train_only.append(label)
            for root in members[label] - settled:
                place[root] = "train"
    small = {root for label in result.train_only for root in members[label]}
    for label in sorted(set(members) - set(result.train_only)):
        for name in (*wanted, "train"):
            count = Counter(place[root] for root in members[label])
            if count[name]:
                continue
            free = [r for r in members[label] - settled - small if count[place[r]] > 1 and crowd[r] == 1]
            free = free or [r for r in members[label] - settled - small if count[place[r]] > 1]
            if not free:
                result.notes.append(f"class {label!r} has no picture that could move to the {name} set")
                continue
            # From the fullest set, the group nearest to the border, so that few move back when pictures are added.
            side = -1 if name == "train" else 1
            place[min(free, key=lambda r: (-count[place[r]], side * _position(r, result.seed)))] = name
    if result.train_only:
        few = ", ".join(map(repr, result.train_only[:5])) + (" and others" if len(result.train_only) > 5 else "")
        result.notes.append(
            f"{pluralize(len(result.train_only), 'class')} with fewer than {len(wanted) + 1} different pictures, used "
            f"for training only: {few}"
        )


def split_scan(
    scan: Scan,
    *,
    validation: float = 0.1,
    test: float = 0.1,
    seed: int = 0,
    similar: Iterable[Sequence[str]] = (),
    previous: Split | None = None,
) -> Split:
    """Deals the pictures of a scan into sets; equal pictures go together, whatever their files or classes.

    Pictures that lie in train, validation or test folders stay there; a set that has no folder is taken out of the
    training folder.

    Args:
        scan: The pictures.
        validation: Share of the validation set, 0 for none.
        test: Share of the test set, 0 for none.
        seed: Another seed deals anew.
        similar: Further groups of hashes (``Picture.sha256``) to keep together: near-duplicates.
        previous: An earlier split of this data set: none of its pictures moves.

    Returns:
        The split, by ``Picture.sha256``.

    Raises:
        ValueError: as ``split_keys``.
    """
    together = [[picture.sha256 for picture in group] for group in scan.duplicates]
    folders = {picture.subset for picture in scan.pictures if picture.subset}
    given = {
        picture.sha256: picture.subset
        for picture in scan.pictures
        if picture.subset and (picture.subset != "train" or folders == set(SETS))
    }
    missing = [name for name in ("validation", "test") if name not in folders]
    validation, test = (
        share if name in missing else 0.0 for name, share in zip(SETS[1:], (validation, test), strict=True)
    )
    result = split_keys(
        [picture.sha256 for picture in scan.pictures],
        [picture.label for picture in scan.pictures],
        validation=validation,
        test=test,
        seed=seed,
        together=[*together, *similar],
        given=given,
        previous=previous,
    )
    if folders and missing:
        result.notes.append(f"no folder for the {' and '.join(missing)} set: taken out of the training folder")
    if scan.leaks:
        result.notes.append(f"{pluralize(len(scan.leaks), 'picture')} in two of the folders train, validation and test")
    return result


def key_of(pixels: np.ndarray | bytes) -> str:
    """Returns the key of a picture that is no file: SHA-256 of its bytes, and of an array's shape and type."""
    if isinstance(pixels, bytes):
        return hashlib.sha256(pixels).hexdigest()
    head = f"{pixels.dtype.str} {pixels.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(pixels).tobytes()).hexdigest()
