"""Losses an example, against formulas written out in numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.training import TaskLoss, Trainer, softmax_cross_entropy

LOGITS = np.float32([[1, 2, 0], [0, 0, 3], [-1, 1, 1], [2, -2, 0]])
LABELS = np.int64([1, 2, 0, 0])


def reference(logits, labels, smoothing=0.0):
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    target = np.eye(3)[labels] * (1 - smoothing) + smoothing / 3
    return -(target * log_p).sum(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], np.eye(3, dtype="float32")[LABELS]])
def test_softmax_cross_entropy(labels, smoothing):
    found = softmax_cross_entropy(tf.constant(labels), tf.constant(LOGITS), smoothing)
    np.testing.assert_allclose(found, reference(LOGITS, LABELS, smoothing), rtol=1e-5)


@pytest.mark.parametrize("kind", [tf.constant, np.asarray, lambda a: np.asarray(a).tolist()], ids=["tf", "np", "list"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("labels", [LABELS, LABELS.astype("float32"), LABELS.astype("uint8"), np.eye(3)[LABELS]])
def test_labels_and_logits_of_any_kind(kind, smoothing, labels):
    found = softmax_cross_entropy(kind(labels), kind(LOGITS), smoothing)
    np.testing.assert_allclose(found, reference(LOGITS, LABELS, smoothing), rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "logits", "message"),
    [
        ([0, 1], LOGITS, r"labels of shape \(2,\) do not fit logits of shape \(4, 3\): give class numbers \(4,\)"),
        (np.eye(4), LOGITS, "do not fit logits"),
        (["cat"] * 4, LOGITS, "class numbers or probabilities, received string; give each class a number"),
        (LOGITS, LABELS, "logits are floating point, received int64; labels come first"),
    ],
)
def test_labels_that_fit_no_logits(labels, logits, message):
    with pytest.raises(ValueError, match=message):
        softmax_cross_entropy(labels, logits)


def test_half_precision_is_widened():
    found = softmax_cross_entropy(tf.constant(LABELS), tf.cast(LOGITS, tf.bfloat16))
    assert found.dtype == tf.float32


def call(task, outputs=LOGITS, labels=LABELS, weights=None, extra=None):
    outputs = tf.nest.map_structure(tf.constant, outputs)
    labels = tf.nest.map_structure(tf.constant, labels)
    weights = None if weights is None else tf.constant(weights)
    return task(labels, outputs, weights, extra).numpy()


def test_class_weights_name_every_class():
    weighted = call(TaskLoss(class_weights={0: 2.0, 1: 1.0, 2: 0.5}), extra={})
    np.testing.assert_allclose(weighted, reference(LOGITS, LABELS) * [1, 0.5, 2, 2], rtol=1e-5)
    with pytest.raises(ValueError, match=r"missing \[2\], unknown \[\]"):
        call(TaskLoss(class_weights={0: 1.0, 1: 1.0}), extra={})
    with pytest.raises(ValueError, match=r"missing \[\], unknown \[3\]"):
        call(TaskLoss(class_weights={0: 1, 1: 1, 2: 1, 3: 1}), extra={})
    # Validation measures the plain loss.
    np.testing.assert_allclose(call(TaskLoss(class_weights={0: 1.0})), reference(LOGITS, LABELS), rtol=1e-5)


def test_auxiliary_losses():
    task = TaskLoss(aux_losses={"AuxLogits": 0.4})
    aux = LOGITS[::-1].copy()
    expected = reference(LOGITS, LABELS) + 0.4 * reference(aux, LABELS)
    np.testing.assert_allclose(call(task, extra={"AuxLogits": tf.constant(aux)}), expected, rtol=1e-5)
    np.testing.assert_allclose(call(task), reference(LOGITS, LABELS), rtol=1e-5)
    with pytest.raises(ValueError, match="auxiliary loss 'AuxLogits': the model gives no end points"):
        call(task, extra={})


def test_sample_weights_and_sequences():
    weights = np.float32([1, 0, 2, 1])
    np.testing.assert_allclose(call(TaskLoss(), weights=weights), reference(LOGITS, LABELS) * weights, rtol=1e-5)
    sequence = call(TaskLoss(), LOGITS.reshape(2, 2, 3), LABELS.reshape(2, 2))  # one value an example
    np.testing.assert_allclose(sequence, reference(LOGITS, LABELS).reshape(2, 2).mean(1), rtol=1e-5)


def test_keras_names_objects_and_own_functions():
    squares = (LOGITS - 1) ** 2
    targets = np.ones_like(LOGITS)
    for loss in ("mse", keras.losses.MeanSquaredError(), lambda y, x: tf.square(y - x)):
        np.testing.assert_allclose(call(TaskLoss(loss), labels=targets), squares.mean(1), rtol=1e-6)
    scalar = TaskLoss(lambda y, x: tf.reduce_mean(tf.square(y - x)))
    np.testing.assert_allclose(call(scalar, labels=targets), np.full(4, squares.mean()), rtol=1e-6)
    object_given = keras.losses.MeanSquaredError()
    TaskLoss(object_given)
    assert object_given.reduction == "sum_over_batch_size"  # the user's object is left as it is


def test_several_outputs():
    task = TaskLoss({"a": "mse", "b": "mae"})
    outputs, labels = {"a": LOGITS, "b": LOGITS}, {"a": LOGITS + 2, "b": LOGITS - 3}
    np.testing.assert_allclose(call(task, outputs, labels), np.full(4, 7.0), rtol=1e-5)
    with pytest.raises(ValueError, match=r"losses are given for \['b'\], but the outputs are \['a'\]"):
        call(task, {"a": LOGITS}, labels)
    with pytest.raises(ValueError, match="give a loss for each as a dict"):
        call(TaskLoss(), outputs)
    assert call(TaskLoss(aux_losses={"b": 0.4}), outputs).shape == (4,)  # the one left over is the main output


def test_mistakes():
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\)"):
        TaskLoss(label_smoothing=1.0)
    with pytest.raises(ValueError, match="set it on your own loss object"):
        TaskLoss("mse", label_smoothing=0.1)
    with pytest.raises(ValueError, match="unknown loss 'mze'"):
        TaskLoss("mze")
    with pytest.raises(ValueError, match="need one loss"):
        TaskLoss({"a": "mse"}, class_weights={0: 1.0})


@pytest.mark.parametrize(
    ("loss", "labels", "measured"),
    [
        ("softmax_cross_entropy", tf.int64, ["accuracy"]),
        ("softmax_cross_entropy", tf.float32, ["accuracy"]),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), tf.int64, ["accuracy"]),
        (keras.losses.CategoricalCrossentropy(from_logits=True), tf.float32, ["accuracy"]),
        (lambda y, z: tf.reduce_mean(z), tf.int64, ["accuracy"]),
        (lambda y, z: tf.reduce_mean(z), tf.float32, []),
        *[(name, dtype, []) for name in ("mse", "mae", "huber", "log_cosh") for dtype in (tf.int64, tf.float32)],
        (keras.losses.MeanSquaredError(), tf.int64, []),
        ({"a": "mse"}, tf.float32, []),
    ],
)
def test_accuracy_is_measured_where_it_means_something(loss, labels, measured):
    assert (["accuracy"] if TaskLoss(loss).classifies(tf.TensorSpec([None], labels)) else []) == measured


@pytest.mark.parametrize("metrics", [None, ["accuracy"], ["mean_absolute_error"]])
def test_a_regression_logs_no_accuracy(metrics):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    x = np.random.default_rng(0).normal(size=(16, 2)).astype("float32")
    trainer = Trainer(model, loss="mse", learning_rate=0.1, global_batch=8, **({"metrics": metrics} if metrics else {}))
    lines = trainer.fit((x, x.sum(1, keepdims=True)), epochs=1).lines
    assert all(("accuracy" in line) == (metrics == ["accuracy"]) for line in lines if "loss" in line)
    assert set(trainer.evaluate((x, x.sum(1, keepdims=True)))) == {"loss", "regularization_loss", *(metrics or ())}


@pytest.mark.parametrize("labels", [np.arange(16) % 2, (np.arange(16) % 2)[:, None], (np.arange(16.0) % 2)[:, None]])
@pytest.mark.parametrize("last", [None, tf.sigmoid])
def test_the_accuracy_of_one_output_is_that_of_two_classes(labels, last):
    def network(x, *, is_training=False):
        return zoo.layers.fully_connected(x, 1, activation_fn=last, weights_initializer="ones")

    trainer = Trainer(
        zoo.Model(network, input_shape=(1,)),
        loss=keras.losses.BinaryCrossentropy(from_logits=last is None),
        metrics=["accuracy"],
        global_batch=8,
    )
    logits = np.where(np.ravel(labels) > 0, 0.3, -0.3)  # all right, and all below 0.5 as they are
    logits[:4] *= -1
    assert trainer.evaluate((logits[:, None].astype("float32"), labels))["accuracy"] == 0.75


def test_labels_of_a_model_of_zoo_are_looked_at_before_the_first_step():
    trainer = Trainer(
        zoo.Model(lambda x, *, is_training: zoo.layers.fully_connected(x, 3), input_shape=(3,)), global_batch=4
    )
    with pytest.raises(ValueError, match=r"training data: .*3"):
        trainer.fit((np.zeros([4, 3], "float32"), np.array([0, 1, 2, 3])), epochs=1)
