"""Labels reviewed by models that did not see the pictures: flipped ones are found, and none judges what it has seen."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from zoo.transfer.regression import held_out, ridge_held_out
from zoo.transfer.review import label_errors, margins, review_labels


@pytest.fixture(scope="module")
def pictures():
    """Features of two end points that tell four classes apart, with one label of ten flipped."""
    random = np.random.default_rng(0)
    right = np.arange(200) % 4
    centres = random.normal(size=(2, 4, 12))
    noise = random.normal(size=(2, 200, 12)) * 0.7
    features = dict(zip("ab", np.abs(centres[:, right] + noise), strict=True))
    places = random.choice(200, 20, replace=False)
    labels = right.copy()
    labels[places] = (right[places] + random.integers(1, 4, 20)) % 4
    return features, labels, places


def test_flipped_labels_come_first(pictures):
    features, labels, places = pictures
    keys = [f"k{i}" for i in range(200)]
    found = review_labels(keys, features, labels, 4, np.arange(200))
    first = sorted(keys, key=found.order.__getitem__)[:20]
    assert len(set(first) & {keys[i] for i in places}) >= 17
    table = np.stack([found.probabilities[key] for key in keys])
    wrong = label_errors(table, labels)
    assert (wrong[places] == np.arange(200)[places] % 4).mean() >= 0.75
    assert (wrong >= 0).sum() < 40


def test_no_picture_is_judged_by_a_model_that_saw_it_or_its_near_duplicate(pictures):
    """Labels drawn by lot are learnt by heart by who sees them, and guessed by who does not."""
    features, _, _ = pictures
    x = np.repeat(features["a"], 2, 0)  # each picture twice, under one label
    labels = np.repeat(np.random.default_rng(1).integers(0, 4, 200), 2)
    groups = np.repeat(np.arange(200), 2)
    for answer in (lambda g: held_out(x, labels, 4, 1e5, g)[0], lambda g: ridge_held_out(x, labels, 4, 1e-6, g)):
        together, apart = ((answer(g).argmax(1) == labels).mean() for g in (groups, np.arange(400)))
        assert together < 0.35
        assert apart > together + 0.03


def test_ridge_held_out_is_ridge_fitted_without_the_group():
    random = np.random.default_rng(0)
    z, labels, groups = random.normal(size=(30, 6)), np.arange(30) % 3, np.arange(30) // 4
    found = ridge_held_out(z, labels, 3, 0.5, groups)
    scale = np.trace(z @ z.T) / 30
    one_hot = np.eye(3)[labels]
    for group in range(8):
        rest, left = groups != group, groups == group
        model = Ridge(alpha=0.5 * scale, fit_intercept=False).fit(z[rest], one_hot[rest] - one_hot.mean(0))
        np.testing.assert_allclose(found[left], model.predict(z[left]) + one_hot.mean(0), atol=1e-10)


def test_a_class_of_one_picture_cannot_be_judged():
    z, labels = np.random.default_rng(0).normal(size=(41, 5)), np.array([*np.arange(40) % 2, 2])
    found, known = held_out(z, labels, 3, 1.0, np.arange(41), repeats=2)
    assert known[:40].all() and not known[40]
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert len(review_labels([str(i) for i in range(41)], {"a": z}, labels, 3, np.arange(41)).order) == 40


def test_margins_and_label_errors_by_hand():
    values = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    labels = np.array([0, 1, 1, 2])
    np.testing.assert_allclose(margins(values, labels), [0.3, 0.2, -0.5, 0.7])
    # the means of the own class are 0.6, 0.35 and 0.8: only the third picture reaches another class' alone
    assert label_errors(values, labels).tolist() == [-1, -1, 0, -1]
