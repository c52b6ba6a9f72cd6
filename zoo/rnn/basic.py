"""The simple recurrent cell and the gated recurrent unit, with TF1's names and numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo.rnn.cells import RNNCell, activation_function
from zoo.rnn.checks import DType, Reuse, State, Tensor, check_kernel, check_units
from zoo.scoping.keras_names import Activation, Initializer


class _OneVectorCell(RNNCell):
    """A cell whose state is its output, of `num_units`; `options` are those of `RNNCell`."""

    def __init__(self, num_units: int, activation: Activation, **options: Any) -> None:
        super().__init__(**options)
        self.num_units = check_units(num_units)
        self.activation = activation_function(activation, type(self).__name__)

    @property
    def state_size(self) -> int:
        """The number of units."""
        return self.num_units

    @property
    def output_size(self) -> int:
        """The number of units."""
        return self.num_units


class BasicRNNCell(_OneVectorCell):
    """The simple cell: ``h' = act([x, h] K + b)``, state = output.

    Args:
      num_units: width.
      activation: function, or Keras' name of one; default tanh.
      reuse: see `RNNCell`.
      name: see `RNNCell`.
      dtype: see `RNNCell`.
      trainable: see `RNNCell`.

    Source: TF1's ``BasicRNNCell``; Elman, "Finding structure in time" (1990).
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation = None,
        reuse: Reuse = None,
        name: str | None = None,
        dtype: DType | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(num_units, activation, name=name, dtype=dtype, reuse=reuse, trainable=trainable)

    def build(self, width: int) -> None:
        """Makes ``kernel`` and ``bias``.

        Args:
          width: width of the inputs.
        """
        self.add_variable("kernel", [width + self.num_units, self.num_units])
        self.add_variable("bias", [self.num_units], tf.zeros_initializer())

    def check_width(self, width: int | None) -> None:
        """See `RNNCell.check_width`."""
        check_kernel(self, self._weights["kernel"], self.num_units, width)

    def call(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """See `RNNCell.call`."""
        dtype = inputs.dtype
        total = tf.matmul(tf.concat([inputs, tf.cast(state, dtype)], 1), self.weight("kernel", dtype))
        output = self.activation(total + self.weight("bias", dtype))
        return output, output


class GRUCell(_OneVectorCell):
    """Gated recurrent unit; the reset gate acts before the matrix product.

        r, u = sigmoid([x, h] K_g + b_g),  h' = u * h + (1 - u) * act([x, r * h] K_c + b_c)

    The bias of the gates starts at 1. Keras' default GRU, cuDNN and PyTorch reset after the product: another function.

    Args:
      num_units: width.
      activation: function, or Keras' name of one; default tanh.
      reuse: see `RNNCell`.
      kernel_initializer: of both kernels; default the scope's.
      bias_initializer: of both biases; default 1 for the gates and 0 for the candidate.
      name: see `RNNCell`.
      dtype: see `RNNCell`.
      trainable: see `RNNCell`.

    Source: Cho et al., arXiv:1406.1078, equations 5 to 8; TF1's ``GRUCell``.
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation = None,
        reuse: Reuse = None,
        kernel_initializer: Initializer = None,
        bias_initializer: Initializer = None,
        name: str | None = None,
        dtype: DType | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(num_units, activation, name=name, dtype=dtype, reuse=reuse, trainable=trainable)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    def build(self, width: int) -> None:
        """Makes kernel and bias of ``gates`` and of ``candidate``.

        Args:
          width: width of the inputs.
        """
        rows, units = width + self.num_units, self.num_units
        ones, zeros = (self._bias_initializer or tf.compat.v1.constant_initializer(v) for v in (1.0, 0.0))
        self.add_variable("gates/kernel", [rows, 2 * units], self._kernel_initializer)
        self.add_variable("gates/bias", [2 * units], ones)
        self.add_variable("candidate/kernel", [rows, units], self._kernel_initializer)
        self.add_variable("candidate/bias", [units], zeros)

    def check_width(self, width: int | None) -> None:
        """See `RNNCell.check_width`."""
        check_kernel(self, self._weights["gates/kernel"], self.num_units, width)

    def call(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """See `RNNCell.call`."""
        dtype = inputs.dtype
        h = tf.cast(state, dtype)
        gates = tf.matmul(tf.concat([inputs, h], 1), self.weight("gates/kernel", dtype))
        r, u = tf.split(tf.sigmoid(gates + self.weight("gates/bias", dtype)), 2, axis=1)
        candidate = tf.matmul(tf.concat([inputs, r * h], 1), self.weight("candidate/kernel", dtype))
        candidate = self.activation(candidate + self.weight("candidate/bias", dtype))
        output = u * h + (1 - u) * candidate
        return output, output
