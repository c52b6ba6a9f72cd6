"""The trainer on scoped networks: auxiliary end points, frozen scopes, names, dropout's seed over a resume."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_trainer, weights

import zoo
from zoo import layers
from zoo.scoping import variable_scope
from zoo.training import read_checkpoint


def network(inputs, *, is_training=False, num_classes=3, keep_prob=0.5):
    ends = {}
    with variable_scope("Net"):
        net = layers.fully_connected(inputs, 8, weights_regularizer=layers.l2_regularizer(1e-3), scope="body")
        net = layers.batch_norm(net, is_training=is_training, decay=0.9, scope="norm")
        ends["AuxLogits"] = layers.fully_connected(net, num_classes, activation_fn=None, scope="aux")
        net = layers.dropout(net, keep_prob=keep_prob, is_training=is_training, scope="drop")
        logits = layers.fully_connected(net, num_classes, activation_fn=None, scope="logits")
    return logits, ends


def make_model(**options):
    return zoo.Model(network, input_shape=(6,), seed=3, **options)


def test_auxiliary_loss_of_an_end_point():
    inputs, labels = make_data(8)
    model = make_model(keep_prob=1.0)
    before = {name: np.array(model.variable(name)) for name in model.variable_names}
    with tf.GradientTape() as tape:
        outputs, ends = model.outputs_and_end_points(tf.constant(inputs), training=True)
        losses = [tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x) for x in (outputs, ends["AuxLogits"])]
        total = tf.reduce_mean(losses[0] + 0.4 * losses[1]) + tf.add_n(model.losses)
    gradients = tape.gradient(total, [v.value for v in model.trainable_variables])
    for name, value in before.items():
        model.variable(name).assign(value)  # the moving statistics have moved
    trainer = make_trainer(model, aux_losses={"AuxLogits": 0.4})
    data = tf.data.Dataset.from_tensors((inputs, labels))
    line = trainer.fit(data, steps=1, log_every=1, progress="none").lines[0]
    assert line["loss"] == pytest.approx(float(total), rel=1e-5)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        name = next(n for n in before if model.variable(n) is variable)
        np.testing.assert_allclose(variable, before[name] - 0.1 * gradient, rtol=1e-4, atol=1e-6)
    assert trainer.evaluate(data)["loss"] < line["task_loss"]  # without the auxiliary loss
    with pytest.raises(ValueError, match="auxiliary loss 'Aux': the model gives \\['AuxLogits'\\]"):
        make_trainer(make_model(), aux_losses={"Aux": 0.4}).fit(make_data(), epochs=1, progress="none")


def test_train_only_by_scope_freezes_batch_norm():
    model = make_model()
    before = {name: np.array(model.variable(name)) for name in model.variable_names}
    make_trainer(model, train_only=["logits"], averages=0.9).fit(make_data(), epochs=1, progress="none")
    changed = [name for name, value in before.items() if not np.array_equal(value, model.variable(name))]
    assert changed == ["Net/logits/weights", "Net/logits/biases"]


def test_checkpoint_has_tf1_names_and_a_resume_goes_on_with_the_same_dropout(tmp_path):
    def train(folder, epochs):
        keras.utils.set_random_seed(1)
        trainer = make_trainer(make_model(), optimizer="adam", learning_rate=0.01)
        trainer.fit(make_data(), epochs=epochs, folder=folder, progress="none", summaries="none")
        return trainer

    whole = train(tmp_path / "whole", 4)
    train(tmp_path / "cut", 2)
    resumed = train(tmp_path / "cut", 4)
    for one, other in zip(weights(whole.model), weights(resumed.model), strict=True):
        np.testing.assert_array_equal(one, other)
    saved = read_checkpoint(tmp_path / "cut" / "model.ckpt-20").arrays
    assert {f"model/{name}" for name in whole.model.variable_names} <= saved.keys()
    assert [name for name in saved if name.startswith("model_state/")]  # dropout's seed
