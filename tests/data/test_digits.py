"""The digits: fixed splits of real data, brought to size."""

import hashlib

import numpy as np
import pytest
import sklearn.datasets

from zoo.data import digits


def fingerprint(examples):
    return hashlib.sha256(examples.labels.tobytes()).hexdigest()[:12]


def test_random_fifth_is_stratified_and_fixed():
    train, test = digits.load()
    assert (len(train.labels), len(test.labels)) == (1438, 359)
    whole = np.bincount(np.concatenate([train.labels, test.labels]))
    assert np.array_equal(whole, np.bincount(sklearn.datasets.load_digits().target))
    assert np.abs(np.bincount(test.labels) - whole / 5).max() <= 0.5
    assert (fingerprint(train), fingerprint(test)) == ("0a876558cc94", "fe804e81681c")


def test_the_writers_split_keeps_the_last_fifth_apart():
    train, test = digits.load("writers")
    assert (len(train.labels), len(test.labels)) == (1437, 360)
    assert np.array_equal(np.concatenate([train.labels, test.labels]), sklearn.datasets.load_digits().target)


def test_pictures_are_the_real_ones_enlarged():
    train, test = digits.load("writers", 32)
    assert train.images.shape == (1437, 32, 32, 1)
    assert train.images.dtype == np.float32
    assert train.images.min() == 0
    assert train.images.max() == 1
    small = sklearn.datasets.load_digits().images[-len(test.labels) :] / 16
    blocks = test.images.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4))
    assert np.corrcoef(blocks.ravel(), small.ravel())[0, 1] > 0.99
    assert np.array_equal(digits.load("writers", 8).test.images[..., 0], small.astype("float32"))


def test_bad_settings():
    with pytest.raises(ValueError, match="split is one of random, writers; got 'fifth'"):
        digits.load("fifth")
    with pytest.raises(ValueError, match="size is at least 8; got 4"):
        digits.load(size=4)
