"""Every network in the graph of a program that starts with `tf.compat.v1.disable_v2_behavior()`."""

import subprocess
import sys

import pytest
import tensorflow as tf

import zoo

PICTURES = [
    *((zoo.lenet5, (32, 32, 1), {"variant": variant}) for variant in ("dense", "original")),
    *((zoo.densenet_cifar, (16, 16, 3), {"depth": 10, "growth_rate": 4, "memory": m}) for m in ("store", "minimal")),
    (zoo.densenet, (32, 32, 3), {"block_config": (2, 2), "growth_rate": 4, "dropout_rate": 0.1}),
    (zoo.inception_v3, (107, 107, 3), {"depth_multiplier": 0.1, "num_classes": 5, "aux_logits": True}),
    (zoo.cifarnet, (24, 24, 3), {}),
    (zoo.sequence_tagger, (7, 8), {}),
    (zoo.row_classifier, (28, 28, 1), {}),
]


@pytest.mark.parametrize(("net", "shape", "options"), PICTURES, ids=lambda value: getattr(value, "__name__", None))
def test_shapes_that_hold_dimensions(net, shape, options):
    tf.compat.v1.disable_v2_tensorshape()
    try:
        with tf.Graph().as_default():
            images = tf.compat.v1.placeholder(tf.float32, [None, *shape])
            assert not isinstance(images.shape[1], int)
            logits, _ = net(images, is_training=True, **options)
            tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(logits))
            assert len(tf.compat.v1.trainable_variables()) > 3
    finally:
        tf.compat.v1.enable_v2_tensorshape()


OLD_PROGRAM = """
import numpy as np
import tensorflow as tf

tf.compat.v1.disable_v2_behavior()
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import zoo
from zoo import parallel

for make in (zoo.lenet5, lambda: zoo.Model(zoo.lenet5.network), lambda: zoo.multi_gpu("lenet5", devices=["CPU:0"])):
    try:
        make()
    except RuntimeError as error:
        print(str(error).split(". ")[1])
images, labels = tf.compat.v1.placeholder(tf.float32, [8, 32, 32, 1]), tf.compat.v1.placeholder(tf.int64, [8])
print([share.batch.shape.as_list() for share in parallel.split_batch(images, 2)])


def tower(batch):
    logits, _ = zoo.lenet5(batch[0], is_training=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch[1], logits=logits))


optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
step = parallel.build_towers(tower, (images, labels), ["CPU:0", "CPU:1"], optimizer)
with tf.compat.v1.Session() as session:
    session.run(tf.compat.v1.global_variables_initializer())
    feed = {images: np.zeros([8, 32, 32, 1]), labels: np.zeros(8)}
    losses = [session.run([step.loss, step.train_op], feed)[0] for _ in range(3)]
print(losses[0] > losses[1] > losses[2])
"""


@pytest.mark.slow
def test_an_old_program_has_towers_and_is_told_what_a_model_needs():
    done = subprocess.run([sys.executable, "-c", OLD_PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *refused, shapes, sinks = done.stdout.splitlines()
    off = "its tensor shapes (disable_v2_tensorshape) and eager execution (disable_eager_execution)"
    assert len(refused) == 3
    assert all(off in line for line in refused)
    assert (shapes, sinks) == ("[[4, 32, 32, 1], [4, 32, 32, 1]]", "True")
