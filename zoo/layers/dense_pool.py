"""What stands between dense blocks: norm, ReLU, pooling and a 1 x 1 convolution of maps in pieces, recomputed too.

Average pooling and a 1 x 1 convolution are both linear and do not mix what the other one does: they commute. Pooling
first gives the paper's transition at a quarter of its multiplications.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from zoo.layers import shared_norm
from zoo.layers.dense_block_grad import (
    PLAIN,
    Maps,
    Primitives,
    conv,
    conv_input_grad,
    conv_kernel_grad,
    dropped,
    norms_of,
    part_of,
    relu_grad,
)
from zoo.layers.recompute import after
from zoo.layers.shared_norm import Moments


@dataclass(frozen=True)
class Pooled:
    """The passes over tensors of norm, ReLU, convolution and pooling.

    Args:
        gamma: [C], scale over all the pieces' channels.
        beta: [C], offset.
        kernel: [1, 1, C, D]; None for no convolution.
        pool: "AVG" (2 x 2, stride 2) or "MAX" (3 x 3, stride 2).
        padding: Of the pooling: "VALID", "SAME", or pairs for each axis.
        epsilon: Added to the variances.
        dropout_rate: Part of the values dropped after the convolution; it then stands before the pooling.
        seed: int32 [2], decides the mask.
        given: Statistics to normalise by in place of the batch's.
        primitives: ``DIFFERENTIABLE`` if the forward pass is differentiated by TensorFlow.
    """

    gamma: tf.Tensor
    beta: tf.Tensor
    kernel: tf.Tensor | None
    pool: str
    padding: str | Sequence[Sequence[int]]
    epsilon: float
    dropout_rate: float = 0.0
    seed: tf.Tensor | None = None
    given: Moments | None = None
    primitives: Primitives = PLAIN

    def forward(self, maps: Maps) -> tf.Tensor:
        """Computes the pooled map [N, H', W', D]."""
        sums: list[tf.Tensor] = []
        norms = norms_of(self.gamma, self.beta, maps.pieces, self.given, maps.moments)
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=False)):
            a = tf.nn.relu(self.primitives.normalise(x, *after(sums[-1:], gamma), beta, *statistics, self.epsilon))
            a = a if self.dropout_rate else self._pool(a)
            sums.append(a if self.kernel is None else conv(a, part_of(self.kernel, maps.pieces, i)))
        y = tf.add_n(sums) if len(sums) > 1 else sums[0]
        return self._pool(dropped(y, self.dropout_rate, self.seed)) if self.dropout_rate else y

    def backward(
        self, maps: Maps, y: tf.Tensor, dy: tf.Tensor
    ) -> tuple[list[tf.Tensor], list[Moments], list[tf.Tensor]]:
        """Returns the gradients of the pieces, of their statistics, and of gamma, beta and the kernel.

        Args:
            maps: The input.
            y: The output.
            dy: Its gradient.
        """
        if self.dropout_rate:
            (height, width), channels = maps.pieces[0].shape.as_list()[1:3], int(dy.shape[-1])
            shape = [tf.shape(dy)[0], *tf.unstack(tf.shape(maps.pieces[0])[1:3]), channels]
            dy = self._pool_grad(tf.ensure_shape(tf.zeros(shape, dy.dtype), [None, height, width, channels]), y, dy)
            dy = dropped(dy, self.dropout_rate, self.seed)
        token: list[tf.Tensor] = [dy]
        dpieces, dmoments, weights = [], [], []
        norms = norms_of(self.gamma, self.beta, maps.pieces, self.given, maps.moments)
        for i, (x, (gamma, beta, statistics)) in enumerate(zip(maps.pieces, norms, strict=False)):
            gamma = after(token, gamma)[0]  # noqa: PLW2901
            a = tf.nn.relu(shared_norm.normalise(x, gamma, beta, *statistics, self.epsilon))
            pooled, da, dkernel = a, dy, []
            if self.kernel is not None:
                pooled = a if self.dropout_rate else self._pool(a)
                kernel = part_of(self.kernel, maps.pieces, i)
                dkernel = [conv_kernel_grad(pooled, kernel, dy)]
                da = conv_input_grad(pooled, kernel, dy)
            if not self.dropout_rate:
                da = self._pool_grad(a, y, da)
            dx, dgamma, dbeta = shared_norm.normalise_grad(relu_grad(da, a), x, gamma, *statistics, self.epsilon)
            dpieces.append(dx)
            dmoments.append(shared_norm.statistics_grad(gamma, dgamma, dbeta, statistics[1], self.epsilon))
            weights.append([dgamma, dbeta, *dkernel])
            token = [*dkernel, dbeta]
        return (
            dpieces,
            dmoments,
            [tf.concat(parts, axis) for parts, axis in zip(zip(*weights, strict=False), (0, 0, 2), strict=False)],
        )

    def _pool(self, a: tf.Tensor) -> tf.Tensor:
        if self.pool == "AVG":
            return tf.nn.avg_pool2d(a, 2, 2, self.padding)
        padded, padding, _ = self._padded(a)
        return tf.nn.max_pool2d(padded, 3, 2, padding)

    def _pool_grad(self, a: tf.Tensor, y: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
        """The gradient for the map a, from that of its pooled map y."""
        if self.pool == "AVG":
            return tf.raw_ops.AvgPoolGrad(
                orig_input_shape=tf.shape(a), grad=dy, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=self.padding
            )
        padded, padding, corner = self._padded(a)
        gradient = tf.raw_ops.MaxPoolGrad(
            orig_input=padded, orig_output=y, grad=dy, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=padding
        )
        return gradient if corner is None else tf.ensure_shape(tf.slice(gradient, corner, tf.shape(a)), a.shape)

    def _padded(self, a: tf.Tensor) -> tuple[tf.Tensor, str, list[int] | None]:
        """The map with explicit padding laid around it, since XLA pools with none, and where the map begins in it.

        Zeros are right: the map is a ReLU's, so no value is lower, and a gradient that falls on a tie at 0 is dropped.
        """
        if isinstance(self.padding, str):
            return a, self.padding, None
        return tf.pad(a, self.padding), "VALID", [before for before, _ in self.padding]
