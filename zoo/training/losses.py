"""What a batch costs: one value an example, with smoothing, class weights and auxiliary outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from zoo.scoping.losses import wants

SOFTMAX = "softmax_cross_entropy"


def softmax_cross_entropy(labels: Any, logits: Any, label_smoothing: float = 0.0) -> tf.Tensor:
    """Cross-entropy of logits (Szegedy et al. 2015, section 7 for the smoothing: ``(1 - e) onehot + e / classes``).

    Args:
        labels: class numbers [...], or probabilities [..., classes]; a tensor, an array or a list.
        logits: [..., classes]; likewise.
        label_smoothing: e, 0 to below 1.

    Returns:
        [...], float32 or wider.

    Raises:
        ValueError: logits that are not floating point, or labels that are neither numbers nor of a shape that fits.
    """
    labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
    if not logits.dtype.is_floating:
        raise ValueError(f"logits are floating point, received {logits.dtype.name}; labels come first, then logits")
    if not (labels.dtype.is_integer or labels.dtype.is_floating):
        raise ValueError(
            f"labels are class numbers or probabilities, received {labels.dtype.name}; give each class a number"
        )
    if logits.dtype in (tf.float16, tf.bfloat16):
        logits = tf.cast(logits, tf.float32)
    if labels.dtype.is_integer and labels.shape.rank == logits.shape.rank and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    if not (labels.shape.is_compatible_with(logits.shape[:-1]) or labels.shape.is_compatible_with(logits.shape)):
        raise ValueError(
            f"labels of shape {labels.shape} do not fit logits of shape {logits.shape}: give class numbers "
            f"{logits.shape[:-1]} or probabilities {logits.shape}"
        )
    sparse = labels.shape.rank == logits.shape.rank - 1
    if sparse and not label_smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(labels, tf.int64), logits)
    classes = logits.shape[-1]
    target = (
        tf.one_hot(tf.cast(labels, tf.int64), classes, dtype=logits.dtype) if sparse else tf.cast(labels, logits.dtype)
    )
    if label_smoothing:
        target = target * (1.0 - label_smoothing) + label_smoothing / classes
    return tf.nn.softmax_cross_entropy_with_logits(target, logits)


class TaskLoss:
    """The loss of a batch, one value an example, without regularization.

    Args:
        loss: `"softmax_cross_entropy"` (on logits; class numbers or probabilities), a Keras name or object, or any
            function (labels, outputs) to [batch, ...] or a scalar mean; for several outputs a dict by output name.
        label_smoothing: for softmax_cross_entropy only.
        class_weights: class number to weight; every class must be named.
        aux_losses: output or end point to weight: the same loss on auxiliary logits (0.4 for Inception's AuxLogits).

    Raises:
        ValueError: smoothing or class weights that do not go with the loss, or out of range.
        TypeError: a loss that cannot be called.
    """

    def __init__(
        self,
        loss: Any = SOFTMAX,
        *,
        label_smoothing: float = 0.0,
        class_weights: Mapping[int, float] | None = None,
        aux_losses: Mapping[str, float] | None = None,
    ) -> None:
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), received {label_smoothing}")
        if label_smoothing and loss != SOFTMAX:
            raise ValueError(f"label_smoothing goes with loss='{SOFTMAX}'; set it on your own loss object instead")
        self.label_smoothing = label_smoothing
        self.class_weights = dict(class_weights) if class_weights else None
        self.aux_losses = dict(aux_losses or {})
        if isinstance(loss, Mapping):
            self._by_output: dict[str, Callable[..., Any]] | None = {
                key: self._resolve(one) for key, one in loss.items()
            }
            if self.class_weights or self.aux_losses:
                raise ValueError("class_weights and aux_losses need one loss, received a dict of losses")
        else:
            self._by_output, self._one = None, self._resolve(loss)

    def __call__(
        self, labels: Any, outputs: Any, weights: tf.Tensor | None, extra: Mapping[str, Any] | None = None
    ) -> tf.Tensor:
        """Returns the loss of every example, float [batch], times its sample weight if there are any.

        `extra` are the end points or named outputs for auxiliary losses in training; None in validation, where
        auxiliary losses and class weights are left out. Raises ValueError for an output that is not there, or a class
        without a weight.
        """
        if self._by_output is not None:
            missing = self._by_output.keys() - outputs.keys()
            if missing:
                raise ValueError(f"losses are given for {sorted(missing)}, but the outputs are {sorted(outputs)}")
            examples = tf.add_n(
                [self._examples(one, labels[key], outputs[key]) for key, one in self._by_output.items()]
            )
        else:
            main = self.main_output(outputs)
            examples = self._examples(self._one, labels, main)
            for name, weight in self.aux_losses.items() if extra is not None else ():
                if name not in (extra or {}):
                    raise ValueError(
                        f"auxiliary loss '{name}': the model gives {sorted(extra or {}) or 'no end points'}"
                    )
                examples += weight * self._examples(self._one, labels, (extra or {})[name])
            if self.class_weights is not None and extra is not None:
                examples *= self._weight_of_class(labels, int(main.shape[-1]), examples.dtype)
        if weights is not None:
            examples *= tf.cast(tf.reshape(weights, tf.shape(examples)), examples.dtype)
        return examples

    def main_output(self, outputs: Any) -> Any:
        """Returns the output that loss and metrics look at: the only one that is not auxiliary, or the first."""
        if isinstance(outputs, list | tuple):
            return outputs[0]
        if not isinstance(outputs, Mapping) or self._by_output is not None:
            return outputs
        left = [name for name in outputs if name not in self.aux_losses]
        if len(left) != 1:
            raise ValueError(
                f"the model has outputs {sorted(outputs)}; give a loss for each as a dict, or name the auxiliary ones"
            )
        return outputs[left[0]]

    @property
    def takes_class_numbers(self) -> bool:
        """Whether the labels may be class numbers: one loss, softmax_cross_entropy or Keras' sparse one."""
        if self._by_output is not None:
            return False
        if getattr(self._one, "zoo_name", None) == SOFTMAX:
            return True
        sparse = keras.losses.SparseCategoricalCrossentropy
        return isinstance(self._one, sparse) or self._one is keras.losses.sparse_categorical_crossentropy

    @property
    def from_logits(self) -> bool:
        """Whether the one loss takes logits."""
        return self._by_output is None and bool(wants(self._one)[1])

    def classifies(self, labels: Any) -> bool:
        """Whether accuracy means something: one loss, of classes, or a function of one's own on class numbers."""
        if self._by_output is not None:
            return False
        if getattr(self._one, "zoo_name", None) == SOFTMAX or wants(self._one)[1] is not None:
            return True
        named = self._one if hasattr(self._one, "__qualname__") else type(self._one)
        return not named.__module__.startswith("keras.") and getattr(labels, "dtype", tf.float32).is_integer

    def describe(self) -> dict[str, Any]:
        """Returns JSON values for a run's configuration."""
        losses = self._by_output or {"loss": self._one}
        return {
            "loss": {name: getattr(one, "zoo_name", None) or _name(one) for name, one in losses.items()},
            "label_smoothing": self.label_smoothing,
            "class_weights": {str(key): value for key, value in (self.class_weights or {}).items()},
            "aux_losses": self.aux_losses,
        }

    def _resolve(self, loss: Any) -> Callable[..., Any]:
        if loss == SOFTMAX:

            def smoothed(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
                return softmax_cross_entropy(labels, outputs, self.label_smoothing)

            smoothed.zoo_name = SOFTMAX  # type: ignore[attr-defined]
            return smoothed
        try:
            found = keras.losses.get(loss)
        except ValueError as error:
            raise ValueError(
                f"unknown loss '{loss}'; use '{SOFTMAX}', a Keras name or object, or a function"
            ) from error
        if not callable(found):
            raise TypeError(f"a loss must be a name, a Keras loss or a function, received {type(loss).__name__}")
        if isinstance(found, keras.losses.Loss):
            found = copy.copy(found)
            found.reduction = "none"
        return found

    @staticmethod
    def _examples(loss: Callable[..., Any], labels: Any, outputs: Any) -> tf.Tensor:
        values = tf.convert_to_tensor(loss(labels, outputs))
        if values.dtype in (tf.float16, tf.bfloat16):
            values = tf.cast(values, tf.float32)
        if values.shape.rank == 0:  # a mean over the batch: every example has that value
            return tf.fill([tf.shape(tf.nest.flatten(outputs)[0])[0]], values)
        return tf.reduce_mean(values, list(range(1, values.shape.rank))) if values.shape.rank > 1 else values

    def check_classes(self, classes: int | None) -> None:
        """Raises ValueError for class weights that do not name exactly so many classes; None is not known yet."""
        table = self.class_weights
        if table is None or classes is None:
            return
        unnamed = sorted(set(range(classes)) - table.keys())
        unknown = sorted(table.keys() - set(range(classes)), key=str)
        if unnamed or unknown:
            raise ValueError(
                f"class_weights must name all classes 0 to {classes - 1}; missing {unnamed}, unknown {unknown}"
            )

    def _weight_of_class(self, labels: tf.Tensor, classes: int, dtype: tf.DType) -> tf.Tensor:
        self.check_classes(classes)
        table = self.class_weights or {}
        values = tf.constant([float(table[number]) for number in range(classes)], dtype)
        if labels.shape.rank == 2 and labels.shape[-1] == classes and classes > 1:
            labels = tf.argmax(labels, -1)
        return tf.gather(values, tf.reshape(tf.cast(labels, tf.int64), [-1]))


def _name(loss: Any) -> Any:
    if isinstance(loss, keras.losses.Loss):
        try:
            return keras.saving.serialize_keras_object(loss)["config"] | {"class": type(loss).__name__}
        except (TypeError, ValueError, NotImplementedError):
            return type(loss).__qualname__
    return f"{loss.__module__}.{loss.__qualname__}" if hasattr(loss, "__qualname__") else type(loss).__qualname__
