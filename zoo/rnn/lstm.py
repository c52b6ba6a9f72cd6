"""The LSTM cells, with TF1's gate order (i, j, f, o), names, and a forget bias that is added at run time."""

from __future__ import annotations

import numbers
from collections import namedtuple
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.rnn import cudnn, fused
from zoo.rnn.cells import RNNCell, activation_function
from zoo.rnn.checks import DType, Reuse, State, Tensor, check_kernel, check_positive, check_units
from zoo.scoping.keras_names import Activation, Initializer


class LSTMStateTuple(namedtuple("LSTMStateTuple", ("c", "h"))):
    """State of an LSTM: cell `c` and output `h`, in this order (Keras keeps ``[h, c]``)."""

    __slots__ = ()

    @property
    def dtype(self) -> tf.DType:
        """The common dtype of both parts; TypeError when they differ or are no tensors."""
        c, h = self
        if not (hasattr(c, "dtype") and hasattr(h, "dtype")):
            raise TypeError(f"c and h must be tensors, got {c!r} and {h!r}: a cell's zero_state makes both")
        if c.dtype != h.dtype:
            raise TypeError(f"c and h must have one dtype, got {c.dtype.name} and {h.dtype.name}: cast one of them")
        return c.dtype


class LSTMCell(RNNCell):
    """LSTM with TF1's options: peepholes, projection, clipping; TF1's shards are a scope's partitioner here.

        i, j, f, o = [x, h] K + b
        c' = sigmoid(f + forget_bias + w_f c) c + sigmoid(i + w_i c) act(j)
        h' = sigmoid(o + w_o c') act(c') P

    Args:
      num_units: width of `c`.
      use_peepholes: the `w` vectors above.
      cell_clip: clips `c'` to [-cell_clip, cell_clip] before the output.
      initializer: of the kernels and peepholes; default the scope's, else Glorot uniform.
      num_proj: width of `h` after the projection P; default none.
      proj_clip: clips the projected `h'`.
      forget_bias: added at run time, not stored in the bias.
      state_is_tuple: False keeps ``[c, h]`` side by side in one tensor.
      activation: function, or Keras' name of one; default tanh.
      reuse: see `RNNCell`.
      name: see `RNNCell`.
      dtype: see `RNNCell`.
      trainable: see `RNNCell`.

    Raises:
      ValueError: a width or a clip is not positive, or the forget bias is no number.

    Source: Sak et al., arXiv:1402.1128; TF1's ``LSTMCell``.
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Initializer = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        *,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation = None,
        reuse: Reuse = None,
        name: str | None = None,
        dtype: DType | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, dtype=dtype, reuse=reuse, trainable=trainable)
        check_positive(cell_clip, "cell_clip")
        check_positive(proj_clip, "proj_clip")
        if not tf.is_tensor(forget_bias) and not (isinstance(forget_bias, numbers.Real) and np.isfinite(forget_bias)):
            raise ValueError(f"forget_bias must be a finite number, got {forget_bias!r}")
        self.num_units = check_units(num_units)
        self.num_proj = None if num_proj is None else check_units(num_proj, "num_proj")
        self.use_peepholes, self.cell_clip, self.proj_clip = use_peepholes, cell_clip, proj_clip
        self.forget_bias, self.state_is_tuple = forget_bias, state_is_tuple
        self.activation = activation_function(activation, type(self).__name__)
        self._initializer = initializer

    @property
    def state_size(self) -> Any:
        """``LSTMStateTuple(c, h)``, or the sum of both widths with ``state_is_tuple=False``."""
        size = LSTMStateTuple(self.num_units, self.output_size)
        return size if self.state_is_tuple else sum(size)

    @property
    def output_size(self) -> int:
        """Width of `h`."""
        return self.num_proj or self.num_units

    def build(self, width: int) -> None:
        """Makes ``kernel``, ``bias``, and what the options need.

        Args:
          width: width of the inputs.
        """
        units = self.num_units
        self.add_variable("kernel", [width + self.output_size, 4 * units], self._initializer)
        self.add_variable("bias", [4 * units], tf.zeros_initializer())
        if self.use_peepholes:
            for gate in ("f", "i", "o"):
                self.add_variable(f"w_{gate}_diag", [units], self._initializer)
        if self.num_proj:
            self.add_variable("projection/kernel", [units, self.num_proj], self._initializer)

    def check_width(self, width: int | None) -> None:
        """See `RNNCell.check_width`."""
        check_kernel(self, self._weights["kernel"], self.output_size, width)

    def call(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """See `RNNCell.call`."""
        dtype = inputs.dtype
        c, h = self._parts(state)
        c, h = tf.cast(c, dtype), tf.cast(h, dtype)
        gates = tf.matmul(tf.concat([inputs, h], 1), self.weight("kernel", dtype)) + self.weight("bias", dtype)
        i, j, f, o = tf.split(gates, 4, axis=1)
        f += tf.cast(self.forget_bias, dtype)
        if self.use_peepholes:
            i += self.weight("w_i_diag", dtype) * c
            f += self.weight("w_f_diag", dtype) * c
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * self.activation(j)
        if self.cell_clip is not None:
            c = tf.clip_by_value(c, -self.cell_clip, self.cell_clip)
        if self.use_peepholes:
            o += self.weight("w_o_diag", dtype) * c
        h = tf.sigmoid(o) * self.activation(c)
        if self.num_proj:
            h = tf.matmul(h, self.weight("projection/kernel", dtype))
            if self.proj_clip is not None:
                h = tf.clip_by_value(h, -self.proj_clip, self.proj_clip)
        return h, self._whole(c, h)

    def _parts(self, state: State) -> tuple[Tensor, Tensor]:
        return tuple(state) if self.state_is_tuple else tuple(tf.split(state, [self.num_units, self.output_size], 1))

    def _whole(self, c: Tensor, h: Tensor) -> State:
        return LSTMStateTuple(c, h) if self.state_is_tuple else tf.concat([c, h], 1)

    @property
    def has_fast_path(self) -> bool:
        """Whether `sequence` runs the fused kernels: tanh, no peepholes, projection or clipping."""
        plain = not (self.use_peepholes or self.num_proj or self.cell_clip is not None)
        return plain and self.activation in (tf.tanh, tf.nn.tanh)

    def sequence(self, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        """See `RNNCell.sequence`; one matrix product for all inputs, and cuDNN on a GPU."""
        if not (self.has_fast_path and inputs.dtype.is_floating):
            return super().sequence(inputs, state, mask)
        dtype = inputs.dtype
        c, h = self._parts(state)
        layer = cudnn.lstm if cudnn.available(dtype) else fused.lstm
        outputs, c, h = layer(
            inputs, self.weight("kernel", dtype), self.weight("bias", dtype),
            tf.cast(c, dtype), tf.cast(h, dtype), self.forget_bias, mask,
        )  # fmt: skip
        return outputs, self._whole(c, h)


class BasicLSTMCell(LSTMCell):
    """The LSTM without options: ``c' = sigmoid(f + forget_bias) c + sigmoid(i) act(j)``, ``h' = sigmoid(o) act(c')``.

    Args:
      num_units: width of `c` and `h`.
      forget_bias: added at run time, not stored in the bias.
      state_is_tuple: False keeps ``[c, h]`` side by side in one tensor.
      activation: function, or Keras' name of one; default tanh.
      reuse: see `RNNCell`.
      name: see `RNNCell`.
      dtype: see `RNNCell`.
      trainable: see `RNNCell`.

    Source: Zaremba et al., arXiv:1409.2329; TF1's ``BasicLSTMCell``.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation = None,
        reuse: Reuse = None,
        name: str | None = None,
        dtype: DType | None = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(
            num_units,
            forget_bias=forget_bias,
            state_is_tuple=state_is_tuple,
            activation=activation,
            reuse=reuse,
            name=name,
            dtype=dtype,
            trainable=trainable,
        )
