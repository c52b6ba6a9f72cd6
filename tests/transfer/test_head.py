"""The softmax-regression head: what it chooses, that the rotation is exact, calibration, and its file."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from zoo.transfer.features import Scaling, signed_root
from zoo.transfer.head import PENALTIES, Head, calibrate, fit_head
from zoo.transfer.regression import softmax, temperature_of
from zoo.transfer.select import choose_end_points, combinations, make_folds, subsample


def blobs(count, classes, width, spread, seed=0):
    """Pooled-feature look-alikes: not negative, skewed, each class with its own active channels."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(99).exponential(1.0, (classes, width))
    labels = np.arange(count) % classes
    return (centres[labels] * generator.gamma(1 / spread, spread, (count, width))).astype(np.float32), labels


@pytest.fixture
def data():
    good, labels = blobs(120, 4, 40, 1.0)
    noise = np.random.default_rng(5).exponential(1.0, (120, 60)).astype(np.float32)
    return {"good": good, "noise": noise}, labels, ["a", "b", "c", "d"]


def test_auto_chooses_the_end_point_that_carries_the_classes(data):
    features, labels, classes = data
    head, tried = fit_head(features, labels, classes, candidates=combinations(["noise", "good"]))
    assert "good" in head.end_points
    lines = {choice.end_points: choice for choice in tried if choice.stage == "end points"}
    assert set(lines) == {("noise",), ("good",), ("noise", "good")}
    assert lines["good",].accuracy > 0.9 > 0.5 > lines["noise",].accuracy
    assert [choice.penalty for choice in tried if choice.stage == "penalty"] == list(PENALTIES)
    new, new_labels = blobs(200, 4, 40, 1.0, seed=1)
    features = {"good": new, "noise": np.ones((200, 60), np.float32)}
    assert (head.logits(features).argmax(1) == new_labels).mean() > 0.9


def test_left_out_residuals_are_those_of_fitting_again():
    x, labels = blobs(60, 3, 100, 1.0)
    scaled = Scaling.fit(x)(x)[:, None]
    parts = make_folds(labels, None, 5, seed=0)
    [line] = choose_end_points({"x": scaled}, labels, [("x",)], parts)
    values, vectors = np.linalg.eigh(scaled[:, 0].astype(np.float64) @ scaled[:, 0].T.astype(np.float64))
    kept = values > values[-1] * 1e-6
    z = vectors[:, kept] * values[kept] ** 0.375  # half of POWER
    ridge = line.penalty * np.mean(values[kept] ** 0.75)
    targets, error = np.eye(3)[labels] - np.eye(3)[labels].mean(0), 0.0
    for train, held_out in parts:
        w = np.linalg.solve(z[train].T @ z[train] + ridge * np.eye(z.shape[1]), z[train].T @ targets[train])
        error += np.square(targets[held_out] - z[held_out] @ w).sum()
    assert line.loss == pytest.approx(error / 60, rel=1e-6)


def test_left_out_answers_are_those_of_fitting_again_where_classes_are_uneven():
    """The regression is on centred labels, so the answer needs their mean: a frequent class is likelier."""
    random = np.random.default_rng(3)
    labels = np.repeat([0, 1, 2], [60, 18, 12])
    x = random.exponential(1.0, (90, 40)).astype(np.float32)  # noise: the shares decide
    scaled = Scaling.fit(x)(x)[:, None]
    parts = make_folds(labels, None, 5, seed=0)
    [line] = choose_end_points({"x": scaled}, labels, [("x",)], parts)
    values, vectors = np.linalg.eigh(scaled[:, 0].astype(np.float64) @ scaled[:, 0].T.astype(np.float64))
    kept = values > values[-1] * 1e-6
    z = vectors[:, kept] * values[kept] ** 0.375  # half of POWER
    ridge, shares = line.penalty * np.mean(values[kept] ** 0.75), np.eye(3)[labels].mean(0)
    right = with_shares_left_out = 0
    for train, held_out in parts:
        w = np.linalg.solve(
            z[train].T @ z[train] + ridge * np.eye(z.shape[1]), z[train].T @ (np.eye(3)[labels] - shares)[train]
        )
        right += int(((z[held_out] @ w + shares).argmax(1) == labels[held_out]).sum())
        with_shares_left_out += int(((z[held_out] @ w).argmax(1) == labels[held_out]).sum())
    assert line.accuracy == pytest.approx(right / 90) and right != with_shares_left_out


def test_folded_weights_are_the_regression_on_flattened_features(data):
    features, labels, classes = data
    for count in (24, 120):  # fewer and more pictures than features
        x = features["good"][:count]
        head, _ = fit_head({"good": x}, labels[:count], classes, penalties=(10.0,))
        scaled = Scaling.fit(x)(x).astype(np.float64)
        _, s, basis = np.linalg.svd(scaled, full_matrices=False)
        kept = s**2 > s[0] ** 2 * 1e-6
        z = scaled @ basis[kept].T * s[kept] ** -0.25  # variances to the power .75
        z /= np.sqrt(np.square(z).sum(1).mean())
        plain = LogisticRegression(C=10.0, max_iter=5000, tol=1e-8).fit(z, labels[:count])
        np.testing.assert_allclose(head.probabilities({"good": x}), plain.predict_proba(z), atol=5e-3)


def test_two_classes_and_a_class_without_training_pictures(data):
    features, labels, _ = data
    two = labels < 2
    head, _ = fit_head({"good": features["good"][two]}, labels[two], ["a", "b", "ghost"])
    p = head.probabilities({"good": features["good"][two]})
    assert p.shape == (60, 3) and (p.argmax(1) == labels[two]).mean() > 0.95
    assert p[:, 2].max() < 1e-6


def test_the_same_seed_gives_the_same_bits(data):
    features, labels, classes = data
    first, second = (fit_head(features, labels, classes, seed=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first.weights, second.weights)


def test_views_train_and_view_zero_is_judged(data):
    features, labels, classes = data
    views = np.stack([features["good"], np.random.default_rng(0).exponential(1.0, features["good"].shape)], 1)
    _, tried = fit_head({"good": views.astype(np.float32)}, labels, classes)
    assert max(choice.accuracy for choice in tried) > 0.8
    doubled = np.repeat(features["good"][:, None], 2, 1)  # two equal views are one picture, not two
    once, _ = fit_head({"good": features["good"]}, labels, classes, penalties=(10.0,))
    twice, _ = fit_head({"good": doubled}, labels, classes, penalties=(10.0,))
    np.testing.assert_allclose(twice.weights, once.weights, atol=1e-3)


def test_balance_helps_the_rare_class():
    x, labels = blobs(400, 2, 6, 6.0)
    kept = (labels == 0) | (np.arange(400) < 30)
    x, labels = x[kept], labels[kept]
    recall = {}
    for balance in (False, True):
        head, _ = fit_head({"x": x}, labels, ["often", "rare"], penalties=(3.0,), balance=balance)
        recall[balance] = (head.logits({"x": x}).argmax(1)[labels == 1] == 1).mean()
    assert recall[True] > recall[False]


def test_duplicates_stay_in_one_fold():
    groups = np.repeat(np.arange(20), 3)
    labels = np.repeat(np.arange(20) % 2, 3)
    for train, held_out in make_folds(labels, groups, 5, seed=0):
        assert not set(groups[train]) & set(groups[held_out])


def test_a_subsample_keeps_shares_and_rare_classes():
    labels = np.array([0] * 9000 + [1] * 900 + [2] * 3)
    chosen = labels[subsample(labels, 1000, seed=0)]
    assert 990 <= len(chosen) <= 1010
    assert (chosen == 2).sum() == 2 and 85 <= (chosen == 1).sum() <= 100


def test_calibration_finds_the_temperature(data):
    features, labels, classes = data
    head, _ = fit_head(
        features, labels, classes, candidates=[("noise",)], penalties=(1000.0,)
    )  # fits noise: far too sure
    new, new_labels = {"noise": np.random.default_rng(6).exponential(1.0, (300, 60))}, np.arange(300) % 4
    calibrated = calibrate(head, new, new_labels)
    assert calibrated.temperature > 3
    loss = [-np.log(h.probabilities(new)[np.arange(300), new_labels]).mean() for h in (head, calibrated)]
    assert loss[1] < loss[0] and loss[1] < np.log(4) + 0.05
    assert calibrate(head, {"noise": np.zeros((0, 60))}, np.zeros(0, int)) is head


def test_a_few_right_answers_do_not_make_it_certain():
    logits = np.eye(3)[np.arange(9) % 3] * 2.0
    p = softmax(logits / temperature_of(logits, np.arange(9) % 3))
    assert 0.85 < p.max() < 0.95  # (n + 1) / (n + 2) = 10 / 11


def test_the_temperature_fits_labels_that_are_smoothed_over_all_classes():
    """At the minimum the sum of (p - target) z over rows and classes is the prior's log T."""
    random = np.random.default_rng(0)
    labels, logits = np.arange(30) % 4, random.normal(size=(30, 4))
    logits[np.arange(30), labels] += 1.5  # most are right, some are not
    temperature = temperature_of(logits, labels)
    z = logits / temperature
    targets = np.full((30, 4), 1 / 32 / 3)  # (n + 1) / (n + 2) for the label, the rest for the others alike
    targets[np.arange(30), labels] = 31 / 32
    assert abs(((softmax(z) - targets) * z).sum() - np.log(temperature)) < 1e-2
    bare = np.eye(4)[labels]
    assert abs(((softmax(z) - bare) * z).sum() - np.log(temperature)) > 0.3


def test_few_pictures_hardly_move_the_temperature():
    random = np.random.default_rng(0)
    labels = random.integers(0, 5, 400)
    logits = random.normal(size=(400, 5)) * 0.01  # knows nothing, so without a prior T grows without bound
    few, many = (temperature_of(logits[:n] * 300, labels[:n]) for n in (2, 400))
    assert 1 < few < 4 < 20 < many


def test_the_file_brings_every_bit_back(data, tmp_path):
    features, labels, classes = data
    head, _ = fit_head(features, labels, [*classes[:3], "猫 <b>"])
    head = dataclasses.replace(head, temperature=1.25)
    head.save(tmp_path / "head.safetensors")
    again = Head.load(tmp_path / "head.safetensors")
    assert again.classes == head.classes and again.end_points == head.end_points and again.temperature == 1.25
    np.testing.assert_array_equal(again.logits(features), head.logits(features))


def test_a_file_that_is_no_head_says_so(tmp_path):
    (tmp_path / "head.safetensors").write_bytes(b"12345678 not a head")
    with pytest.raises(ValueError, match="is not a head"):
        Head.load(tmp_path / "head.safetensors")


def test_bad_input(data):
    features, labels, classes = data
    with pytest.raises(ValueError, match="at least two classes"):
        fit_head(features, np.zeros(120, int), classes)
    with pytest.raises(ValueError, match="a row for each of the 7 labels"):
        fit_head(features, labels[:7], classes)
    head, _ = fit_head({"good": features["good"]}, labels, classes)
    with pytest.raises(ValueError, match="The head reads good"):
        head.logits({"noise": features["noise"]})


def test_signed_root_is_odd_and_smooth_at_zero():
    x = np.array([-4.0, 0.0, 4.0])
    np.testing.assert_allclose(signed_root(x), [-1.9689, 0, 1.9689], atol=1e-3)
    assert (signed_root(1e-6) - signed_root(-1e-6)) / 2e-6 == pytest.approx(0.5 / np.sqrt(1e-3), rel=1e-2)
    assert softmax(np.array([[1000.0, 1000.0]])).tolist() == [[0.5, 0.5]]
