"""The sizes that the textbooks' formulas give are those that the ops give."""

import pytest
import tensorflow as tf

from zoo.layers import output_size


@pytest.mark.parametrize("n", [7, 8, 28])
@pytest.mark.parametrize("kernel", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID", 0, 2])
def test_sizes_are_the_ops(n, kernel, stride, padding):
    pads = padding if isinstance(padding, str) else [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]
    y = tf.nn.conv2d(tf.zeros([1, n, n, 1]), tf.zeros([kernel, kernel, 1, 1]), stride, pads)
    assert output_size(n, kernel, stride, padding) == y.shape[1]


def test_lenets_sizes():
    assert output_size(32, 5, padding="VALID") == 28
    assert output_size(28, 2, 2, "valid") == 14
    assert output_size(28, 5) == 28
    assert output_size(7, 3, rate=2, padding="VALID") == 3
    assert output_size(None, 5, 2) is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, 3), "n=0"),
        ((5, 0), "kernel=0"),
        ((5, 3, 0), "stride=0"),
        ((5, 3, 1, "FULL"), "'FULL'"),
        ((4, 5, 1, 0), "fit"),
    ],
)
def test_bad_arguments(args, message):
    with pytest.raises(ValueError, match=message):
        output_size(*args)
