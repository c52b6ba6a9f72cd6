"""The estimate of a step's memory."""

import pytest
import tensorflow as tf
from training.small import make_trainer

from zoo.training import estimate_inference, estimate_memory
from zoo.training.memory import peak_bytes


def test_memory_of_a_chain_is_counted_by_life():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1000])  # a given input is not counted
        a = tf.sin(x)  # 4,000 bytes
        b = tf.reshape(a, [10, 100])  # the same buffer
        c = tf.matmul(b, tf.compat.v1.placeholder(tf.float32, [100, 200]))  # 8,000 more
        d = tf.nn.relu(c)  # written over c
        tf.reduce_sum(d)  # 4 more, a is gone
    assert 12_000 <= peak_bytes(graph) <= 12_100


def test_memory_estimate_grows_with_the_batch():
    trainer = make_trainer(optimizer="adam", averages=0.9, global_batch=None)

    def spec(batch):
        return tf.TensorSpec((batch, 6)), tf.TensorSpec((batch,), tf.int64)

    engine = trainer.build(spec(8))
    small, large = estimate_memory(engine, spec(1000)), estimate_memory(engine, spec(2000))
    count = 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert count <= small.weights <= count + 16  # the dropout's seed
    assert small.averages == count
    assert 2 * count <= small.optimizer <= 2 * count + 16
    assert 1.9 < large.step / small.step < 2.1
    # At least the inputs, the hidden layer and its gradient, the logits and theirs are alive at once.
    assert small.step >= 4 * 1000 * (6 + 8 + 3)
    assert estimate_inference(trainer.model, spec(1000)[0]) < small.step
    with pytest.raises(ValueError, match="the batch size must be in the spec"):
        estimate_memory(engine, spec(None))
