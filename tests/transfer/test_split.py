"""Near-duplicates: found by the direction of features, never chained into half the data set."""

import numpy as np
import pytest

from zoo.transfer.split import near_duplicates


@pytest.fixture
def features():
    return np.random.default_rng(0).random((40, 64), np.float32)


def test_a_near_copy_is_joined_with_its_original(features):
    features[7] = features[3] * 1.001 + 1e-3
    features[30] = features[3] * 0.999
    keys = [f"{i:02d}" for i in range(40)]
    found = near_duplicates(features, keys, 0.98)
    assert [sorted(group) for group in found.groups] == [[3, 7, 30]]
    labels = dict.fromkeys(keys, 0) | {"30": 1}
    across = found.pairs_across(keys, labels)
    assert len(across) == 1 and set(across[0][:2]) & {"30"} and across[0][2] > 0.99


def test_blocks_agree_with_one_product(features, monkeypatch):
    features[20:30] = features[:10] + 1e-4
    keys = [str(i) for i in range(40)]
    whole = near_duplicates(features, keys, 0.98)
    monkeypatch.setattr("zoo.transfer.split.BLOCK", 7)
    assert near_duplicates(features, keys, 0.98).groups == whole.groups
    assert len(whole.groups) == 10


def test_a_trunk_that_tells_nothing_apart_makes_no_large_group(features):
    same = np.repeat(features[:1], 40, 0) + np.linspace(0, 1, 40)[:, None] * features[1]
    groups = near_duplicates(same, [str(i) for i in range(40)], 0.98).groups
    assert max(map(len, groups), default=0) <= 4  # a tenth of the pictures


def test_a_threshold_above_one_and_a_single_picture(features):
    assert near_duplicates(features, [""] * 40, 1.1).pairs == []
    assert near_duplicates(features[:1], ["a"], 0.5).groups == []
