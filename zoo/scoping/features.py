"""A model's end points: one as a layer of a functional Keras model, and the pooled features."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from zoo.scoping.freezing import find_name

if TYPE_CHECKING:
    from zoo.scoping.model import Model

logger = logging.getLogger(__name__)
# End points that hold a network's pooled features, before dropout.
POOLED = ("global_pool", "AvgPool_1a")
# The function from pixels to inputs of a model whose card has a preprocessing, as messages name it.
PREPARE = 'zoo.data.preprocessing.Preprocessing.from_dict(model.card["preprocessing"])'


class BottleneckMixin:
    """The pooled features of a model, from which a new classifier is trained; and a look at the range of its inputs."""

    def check_once(self: Any, inputs: Any, looks: bool = True) -> None:
        """Warns, the first time that the model meets values, of float pictures in another range than it expects.

        With `looks` also of pictures that look unlike the ones on which the weights' card says they were trained.
        """
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
        if check_range(inputs[:32], *expected) and looks and "pictures" in self.card:
            check_looks(inputs[:32], self.card["pictures"])

    def __call__(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' call, after a look at the inputs' range; no pictures give no outputs (see `one_for_none`)."""
        self.check_once(inputs)
        one = None if args or kwargs.get("training") else one_for_none(inputs)
        if one is None:
            return super().__call__(inputs, *args, **kwargs)  # type: ignore[misc]  # of keras.Model
        return tf.nest.map_structure(lambda y: y[:0], super().__call__(one, **kwargs))  # type: ignore[misc]

    def fit(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `fit`; warns once of arrays in another range than the model expects."""
        self.check_once(x, looks=False)  # trained on them, they will not be strange
        return keras.Model.fit(self, x, *args, **kwargs)

    def evaluate(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keras' `evaluate`; warns once of arrays in another range than the model expects."""
        self.check_once(x)
        return keras.Model.evaluate(self, x, *args, **kwargs)

    def predict(self: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras' `predict`; warns once of arrays in another range than the model expects; no pictures give no rows."""
        self.check_once(x)
        one = one_for_none(x)
        if one is not None:
            return tf.nest.map_structure(lambda y: y[:0], keras.Model.predict(self, one, *args, **kwargs))
        if getattr(x, "shape", (1,))[:1] == (0,):
            raise ValueError(f"predict needs one input or more. Received: an array of shape {tuple(x.shape)}.")
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

    def features(self: Any, inputs: Any, name: str) -> Any:
        """Returns one end point; in a graph nothing else is computed (eager calls run a compiled function).

        The first inputs that the model meets are checked against the range that the weights expect.
        """
        inputs = self._ready(inputs)
        key = find_name(name, self.book.end_point_specs, "end point")
        if not tf.executing_eagerly():
            return self._run(inputs, False)[1][key]
        if key not in self.book.functions:  # without AutoGraph: it would bury the network's own messages
            self.book.functions[key] = tf.function(lambda x: self._run(x, False)[1][key], autograph=False)
        one = one_for_none(inputs)
        if one is not None:
            return tf.nest.map_structure(lambda y: y[:0], self.book.functions[key](one))
        return self.book.functions[key](inputs)

    def feature_model(self: Any, name: str) -> keras.Model:
        """Returns a functional `keras.Model` from the inputs to one end point, sharing this model's weights."""
        self._need_built()
        find_name(name, self.book.end_point_specs, "end point")
        inputs = tf.nest.map_structure(
            lambda s: keras.KerasTensor(s.shape.as_list(), dtype=s.dtype.name), self.book.input_specs
        )
        inputs = tf.nest.map_structure(lambda t: keras.Input(batch_shape=t.shape, dtype=t.dtype), inputs)
        return keras.Model(inputs, Features(self, name)(inputs), name=f"{self.name}_features")

    def bottleneck(self: Any, inputs: Any) -> tf.Tensor:
        """Returns the pooled features, before dropout; warns about inputs in another range than the weights expect.

        Args:
          inputs: A batch of network inputs; an empty one gives [0, C].

        Returns:
          [N, C]: 2048 numbers an image for Inception-v3.

        Raises:
          ValueError: The network has no pooled end point.
        """
        if not tf.is_symbolic_tensor(inputs):
            self.book.range_checked = True  # here, each time
        inputs = self._ready(inputs)
        name = next((name for name in POOLED if name in self.book.end_point_specs), None)
        if name is None:
            raise ValueError(
                f"{self.name!r} has no pooled features: none of its end points is called {' or '.join(POOLED)}. "
                "Take another with features(inputs, name)."
            )
        if "input_range" in self.card and inputs.dtype.is_floating:
            check_range(inputs, *self.card["input_range"])
        return tf.reduce_mean(self.features(inputs, name), [1, 2])


def one_for_none(inputs: Any) -> tf.Tensor | None:
    """Returns one black picture to compute in place of an empty batch, of which only the output's shape is wanted.

    oneDNN's convolution returns an empty batch with the channels of its input, which fails in the next layer.

    Args:
      inputs: What a model is given.

    Returns:
      [1, H, W, C] for concrete inputs of [0, H, W, C]; None for all others.
    """
    shape = tuple(getattr(inputs, "shape", ()))
    if len(shape) != 4 or shape[0] != 0 or None in shape or not tf.executing_eagerly():
        return None
    return tf.zeros([1, *shape[1:]], tf.as_dtype(inputs.dtype))


def check_range(inputs: Any, low: float, high: float) -> bool:
    """Says whether concrete network inputs lie in the range that the weights expect; if not, the logger "zoo" warns.

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
    if not (np.isfinite(least) and np.isfinite(most)):
        bad = values[~np.isfinite(values.astype(np.float32))].astype(np.float32)
        logger.warning(
            "%d of %d input values are not finite (%d NaN, %d infinite), but these weights expect %.3g to %.3g: the "
            "outputs mean nothing, though they may be finite, as ReLU and max-pooling can swallow NaN.",
            *(bad.size, values.size, np.isnan(bad).sum(), np.isinf(bad).sum(), low, high),
        )
        return False
    if least < low - slack or most > high + slack:
        guess = "they look like unscaled 0..255 pixels" if most > 16 else "they were scaled some other way"
    elif low < 0 <= least < 0.05 and most <= 1 and most - least > 0.2:
        guess = "no value is negative, as if they had been scaled to 0..1"
    else:
        return True
    logger.warning(
        "Inputs span %.3g to %.3g, but these weights expect %.3g to %.3g: %s. Prepare uint8 pictures with the "
        "preprocessing in the model's card: %s(pictures).",
        *(least, most, low, high, guess, PREPARE),
    )
    return False


def looks_of(images: Any) -> dict[str, np.ndarray]:
    """Returns what pictures [N, H, W, C] look like, a number [N] each.

    ``brightness`` is the mean of a picture's values, ``contrast`` their deviation, and ``detail`` the mean difference
    of neighbours.
    """
    images = np.asarray(images, np.float32)
    down, right = (np.abs(np.diff(images, axis=axis)).mean((1, 2, 3)) for axis in (1, 2))
    return {"brightness": images.mean((1, 2, 3)), "contrast": images.std((1, 2, 3)), "detail": down + right}


def check_looks(inputs: Any, trained_on: Mapping[str, Any]) -> bool:
    """Says whether pictures look like those that weights were trained on; if not, the logger "zoo" warns.

    Args:
      inputs: [N, H, W, C], in the range that the weights expect.
      trained_on: A card's ``pictures``: ``what`` they are, and the least and the most of each of `looks_of`'s numbers.

    Returns:
      True when the middle picture of every number lies within them, or within a tenth of them beside.
    """
    if len(inputs.shape) != 4 or not np.size(inputs):
        return True
    strange = []
    for name, values in looks_of(inputs).items():
        low, high = trained_on[name]
        middle, slack = float(np.median(values)), 0.1 * (high - low)
        if not low - slack <= middle <= high + slack:
            strange.append(f"{name} {middle:.2g} (trained on {low:.2g} to {high:.2g})")
    if strange:
        logger.warning(
            "The inputs look unlike the pictures that these weights were trained on, %s: %s. What the model says of "
            "them may mean little; train it on pictures like these.",
            *(trained_on["what"], ", ".join(strange)),
        )
    return not strange


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
