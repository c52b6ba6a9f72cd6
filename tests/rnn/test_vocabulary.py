"""The fast cross-entropy against TensorFlow's own, also where probabilities leave the range of floats."""

import numpy as np
import pytest
import tensorflow as tf

from zoo.rnn import softmax_cross_entropy


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
def test_equals_tensorflows(scale):
    logits = tf.random.stateless_normal([3, 4, 7], [1, 2]) * scale
    labels = tf.random.stateless_uniform([3, 4], [3, 4], 0, 7, tf.int32)
    weights = tf.random.stateless_uniform([3, 4], [5, 6])
    results = []
    for function in (softmax_cross_entropy, tf.nn.sparse_softmax_cross_entropy_with_logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = function(labels=labels, logits=logits)
            total = tf.reduce_sum(losses * weights)
        results.append((losses, tape.gradient(total, logits)))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


def test_not_finite_stays_visible_and_refusals():
    logits = tf.constant([[0.0, np.nan], [1.0, 2.0]])
    assert np.isnan(softmax_cross_entropy([0, 1], logits)[0])
    assert softmax_cross_entropy([0, 1], tf.cast(logits, tf.bfloat16)).dtype == tf.float32
    with pytest.raises(ValueError, match="integers, got float32"):
        softmax_cross_entropy([0.0, 1.0], logits)
    with pytest.raises(ValueError, match="do not fit"):
        softmax_cross_entropy([0, 1, 1], logits)
