"""A model's end points: one as a layer of a functional Keras model, and the pooled features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from zoo._compat import FuncGraph

if TYPE_CHECKING:
    from zoo.scoping.model import Model


def one_for_none(inputs: Any) -> tf.Tensor | None:
    """One black picture [1, H, W, C] to compute in place of an empty batch, of which only the output's shape is wanted.

    oneDNN's convolution returns an empty batch with the channels of its input, which fails in the next layer. None for
    all inputs that are no concrete ones of [0, H, W, C].
    """
    shape = tuple(getattr(inputs, "shape", ()))
    if len(shape) != 4 or shape[0] != 0 or None in shape or not tf.executing_eagerly():
        return None
    return tf.zeros([1, *shape[1:]], tf.as_dtype(inputs.dtype))


@keras.saving.register_keras_serializable(package="zoo")
class Features(keras.layers.Layer):
    """Gives one end point of a model, whose weights it shares.

    Args:
      model: A built `zoo.Model`.
      end_point: Name of the end point.
      **kwargs: Keras' layer arguments.
    """

    def __init__(self, model: Model, end_point: str, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.model = model
        self.end_point = end_point
        self.built = True

    def call(self, inputs: Any) -> Any:
        """Returns the end point of `inputs`, computing nothing that it does not need when in a graph."""
        return self.model.features(inputs, self.end_point)

    def compute_output_spec(self, inputs: Any) -> Any:
        """The shape and type of the end point."""
        graph = FuncGraph("zoo_features")
        with graph.as_default():
            fed = tf.nest.map_structure(lambda t: tf.compat.v1.placeholder(t.dtype, t.shape), inputs)
            out = self.model.features(fed, self.end_point)
        return tf.nest.map_structure(lambda t: keras.KerasTensor(t.shape.as_list(), dtype=t.dtype.name), out)

    def get_config(self) -> dict[str, Any]:
        """The model and the end point's name."""
        return {
            **super().get_config(),
            "model": keras.saving.serialize_keras_object(self.model),
            "end_point": self.end_point,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Features:
        """Makes the layer with its model."""
        return cls(keras.saving.deserialize_keras_object(config.pop("model")), **config)
