"""Accuracy, its interval, the per-class table and calibration against known values and scikit-learn."""

import json

import numpy as np
import pytest
from sklearn import metrics

from zoo.transfer.evaluation import Evaluation, calibration_bins, calibration_by_chance, evaluate, wilson


@pytest.fixture
def predictions():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(200, 6))
    labels = generator.integers(0, 5, 200)  # class 5 has no picture
    logits[np.arange(200), labels] += 1.5
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return probabilities, labels, [f"class {i}" for i in range(6)]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_gives_newcombes_published_table(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


def test_figures_agree_with_scikit_learn(predictions):
    probabilities, labels, classes = predictions
    result = evaluate(probabilities, labels, classes)
    answers = probabilities.argmax(1)
    assert result.accuracy == pytest.approx(metrics.accuracy_score(labels, answers))
    assert result.interval[0] < result.accuracy < result.interval[1]
    assert result.confusion == metrics.confusion_matrix(labels, answers, labels=range(6)).tolist()
    expected = metrics.precision_recall_fscore_support(labels, answers, labels=range(5), zero_division=0)
    found = np.array([[c.precision, c.recall, c.f1, c.count] for c in result.classes[:5]]).T
    np.testing.assert_allclose(found, np.array(expected), rtol=1e-12)
    assert result.macro_f1 == pytest.approx(np.mean(expected[2]))
    assert result.top_k[3] == pytest.approx(metrics.top_k_accuracy_score(labels, probabilities, k=3, labels=range(6)))
    assert result.loss == pytest.approx(metrics.log_loss(labels, probabilities, labels=range(6)))


def test_a_class_without_pictures_is_shown_with_none(predictions):
    absent = evaluate(*predictions).classes[5]
    assert (absent.count, absent.recall, absent.f1) == (0, None, None)
    assert absent.predicted > 0 and absent.precision == 0.0


def test_no_pictures_at_all():
    result = evaluate(np.zeros((0, 2)), np.zeros(0), ["a", "b"])
    assert result.accuracy is None and result.loss is None and result.bins == () and not result.beats_majority


def test_majority_is_the_one_of_training(predictions):
    probabilities, labels, classes = predictions
    result = evaluate(probabilities, labels, classes, majority_class="class 2")
    assert result.majority == pytest.approx((labels == 2).mean())
    assert result.beats_majority
    chance = np.full_like(probabilities, 1 / 6)
    assert not evaluate(chance, labels, classes).beats_majority


def test_perfectly_calibrated_bins_have_no_error():
    generator = np.random.default_rng(1)
    confidence = generator.uniform(0.5, 1.0, 20000)
    right = generator.uniform(size=20000) < confidence
    error = sum(b.count * abs(b.confidence - b.accuracy) for b in calibration_bins(confidence, right)) / 20000
    assert error < 0.02
    [certain] = calibration_bins(np.ones(4), np.array([True, True, False, False]))
    assert (certain.low, certain.high, certain.confidence, certain.accuracy) == (0.9, 1.0, 1.0, 0.5)


def test_too_sure_and_not_sure_enough_do_not_cancel_in_the_calibration_error():
    table = np.array([[0.65, 0.35]] * 4 + [[0.85, 0.15]] * 4)
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])  # all four of the first kind are right, two of the second
    result = evaluate(table, labels, ["a", "b"])
    assert result.calibration_error == pytest.approx(0.5 * 0.35 + 0.5 * 0.35)


def test_row_31_labels_counted_from_one_are_refused():
    with pytest.raises(ValueError, match=r"Labels must lie in 0 .. 2. Received: 1 .. 3"):
        evaluate(np.full((3, 3), 1 / 3), np.array([1, 2, 3]), ["a", "b", "c"])
    with pytest.raises(ValueError, match=r"must be \[2, 3\]"):
        evaluate(np.full((2, 4), 1 / 4), np.array([0, 1]), ["a", "b", "c"])


def test_json_round_trip(predictions):
    result = evaluate(*predictions)
    assert Evaluation.from_dict(json.loads(json.dumps(result.to_dict()))) == result


def calibrated(count, seed, shift=0.0):
    """The evaluation of a model whose confidence is right, or too high by `shift`."""
    generator = np.random.default_rng(seed)
    sure = generator.uniform(0.5 + shift, 1.0, count)
    labels = (generator.random(count) > sure - shift).astype(int)
    return evaluate(np.stack([sure, 1 - sure], 1), labels, ["a", "b"])


def test_the_error_that_chance_gives_is_that_of_calibrated_models():
    for count in (30, 50, 400):
        found = [calibrated(count, seed) for seed in range(150)]
        errors = [one.calibration_error for one in found]
        usual, most = np.mean([calibration_by_chance(one.bins, 400) for one in found], 0)
        assert usual == pytest.approx(np.mean(errors), rel=0.1)
        assert np.mean(errors < most) == pytest.approx(0.95, abs=0.04)


def test_what_is_said_of_the_confidence():
    few, many, wrong = calibrated(50, 1), calibrated(4000, 2), calibrated(400, 1, shift=0.2)
    assert few.calibration_error > 0.06 and few.calibration_in_words.endswith("so few pictures say little about it.")
    assert many.calibration_in_words.endswith("it can be taken at face value.")
    assert calibrated(4000, 1).calibration_in_words.endswith("it is a little too sure.")
    assert wrong.calibration_in_words.endswith("it is too sure, so take it with care.")
    shy = evaluate(np.full((200, 2), [0.6, 0.4]), np.zeros(200, int), ["a", "b"])
    assert "is off by 40.0% on average, where chance explains" in shy.calibration_in_words
    assert "it is not sure enough" in shy.calibration_in_words
    assert not evaluate(np.zeros((0, 2)), np.zeros(0, int), ["a", "b"]).calibration_in_words
