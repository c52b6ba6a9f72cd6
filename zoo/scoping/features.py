"""A model's end points: one as a layer of a functional Keras model, and the pooled features."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from zoo.scoping.model import Model

logger = logging.getLogger(__name__)
# End points that hold a network's pooled features, before dropout.
POOLED = ("global_pool", "AvgPool_1a")


class BottleneckMixin:
    """The pooled features of a model, from which a new classifier is trained; and a look at the range of its inputs."""

    def check_once(self: Any, inputs: Any) -> None:
        """Warns, the first time that the model meets values, of float pictures in another range than it expects."""
        expected = None if self.book.range_checked else self.card.get("input_range")
        if expected is None or isinstance(inputs, (dict, list, tuple)) or not hasattr(inputs, "dtype"):
            return
        if (
            not tf.as_dtype(inputs.dtype).is_floating
            or tf.is_symbolic_tensor(inputs)
            or isinstance(inputs, keras.KerasTensor)
        ):
            return
        self.book.range_checked = True
        check_range(inputs[:32], *expected)

    def fit(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `fit`; warns once of arrays in another range than the model expects."""
        self.check_once(x)
        return keras.Model.fit(self, x, *args, **kwargs)

    def evaluate(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `evaluate`; warns once of arrays in another range than the model expects."""
        self.check_once(x)
        return keras.Model.evaluate(self, x, *args, **kwargs)

    def predict(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' `predict`; warns once of arrays in another range than the model expects."""
        self.check_once(x)
        return keras.Model.predict(self, x, *args, **kwargs)

    def outputs_and_end_points(self: Any, inputs: Any, training: bool = False) -> tuple[Any, dict[str, Any]]:
        """Runs the network once and returns both parts of its result; what a call keeps of them is the first.

        Args:
          inputs: A batch of network inputs, of a built model.
          training: Whether dropout and batch norm act as in training; also a bool tensor.

        Returns:
          The outputs as from a call, and the end points: name -> tensor.
        """
        outputs, end_points, _ = self._run(inputs, training)
        return outputs, end_points

    def bottleneck(self: Any, inputs: Any) -> tf.Tensor:
        """Returns the pooled features, before dropout; warns about inputs in another range than the weights expect.

        Args:
          inputs: A batch of network inputs.

        Returns:
          [N, C]: 2048 numbers an image for Inception-v3.

        Raises:
          ValueError: The network has no pooled end point.
        """
        self.book.range_checked = True  # here, each time
        inputs = self._ready(inputs)
        name = next((name for name in POOLED if name in self.book.end_point_specs), None)
        if name is None:
            raise ValueError(
                f"{self.name!r} has no pooled features: none of its end points is called {' or '.join(POOLED)}. "
                "Take another with features(inputs, name)."
            )
        if "input_range" in self.card:
            check_range(inputs, *self.card["input_range"])
        return tf.reduce_mean(self.features(inputs, name), [1, 2])


def check_range(inputs: Any, low: float, high: float) -> bool:
    """Says whether concrete network inputs lie in the range that the weights expect; logs a warning if not.

    Args:
      inputs: Values; symbolic tensors and empty ones pass unchecked.
      low: Lowest value of a prepared picture.
      high: Highest value.

    Returns:
      True when nothing looks wrong.
    """
    if tf.is_symbolic_tensor(inputs) or not np.size(inputs):
        return True
    values = np.asarray(inputs)
    least, most = float(values.min()), float(values.max())
    slack = 0.05 * (high - low)
    if least < low - slack or most > high + slack:
        guess = "they look like unscaled 0..255 pixels" if most > 16 else "they were scaled some other way"
    elif low < 0 <= least < 0.05 and most <= 1 and most - least > 0.2:
        guess = "no value is negative, as if they had been scaled to 0..1"
    else:
        return True
    logger.warning(
        "Inputs span %.3g to %.3g, but these weights expect %.3g to %.3g: %s. Prepare uint8 pictures with the "
        "preprocessing in the model's card.",
        *(least, most, low, high, guess),
    )
    return False


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
        graph = tf.__internal__.FuncGraph("zoo_features")
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
