"""SavedModels that take picture files or pixels and return class names: the preprocessing travels inside."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo._compat import tf_variable
from zoo.data.images import graph_bytes, same_in_graph
from zoo.files import replacing_folder


class PictureClassifier(tf.Module):
    """A model behind two signatures: ``serving_default`` takes encoded pictures, ``pixels`` takes uint8 arrays.

    Args:
        model: A built ``zoo.Model`` from prepared pictures to logits.
        classes: The labels, in the order of the logits.
        read: From a file's bytes (string scalar) to a prepared picture, in TensorFlow operations.
        prepare: From uint8 [H, W, 3] to a prepared picture, in TensorFlow operations.
    """

    def __init__(
        self,
        model: Any,
        classes: Sequence[str],
        read: Callable[[tf.Tensor], tf.Tensor],
        prepare: Callable[[tf.Tensor], tf.Tensor],
    ) -> None:
        super().__init__(name="picture_classifier")
        self._classify_prepared = model
        self._variables = [
            tf_variable(model.variable(name)) for name in model.variable_names
        ]  # what the SavedModel keeps
        shape = model.input_specs.shape[1:]

        def classify(prepared: tf.Tensor) -> dict[str, tf.Tensor]:
            probabilities = tf.nn.softmax(model(tf.ensure_shape(prepared, [None, *shape])))
            names = tf.constant([name.encode() for name in classes])
            every = tf.broadcast_to(names, tf.shape(probabilities))
            best = tf.gather(names, tf.argmax(probabilities, 1))
            return {"label": best, "probabilities": probabilities, "classes": every}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "image_bytes")])
        def from_bytes(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            return classify(tf.map_fn(read, image_bytes, fn_output_signature=tf.float32))

        @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8, "pixels")])
        def from_pixels(pixels: tf.Tensor) -> dict[str, tf.Tensor]:
            return classify(tf.map_fn(prepare, pixels, fn_output_signature=tf.float32))

        self.from_bytes, self.from_pixels = from_bytes, from_pixels


def export_pictures(
    model: Any,
    path: str | Path,
    *,
    classes: Sequence[str],
    read: Callable[[tf.Tensor], tf.Tensor],
    prepare: Callable[[tf.Tensor], tf.Tensor],
) -> None:
    """Writes a SavedModel that needs TensorFlow only, under a temporary name first.

    Args:
        model: A built ``zoo.Model`` from prepared pictures to logits.
        path: The SavedModel's folder; one that is there is replaced.
        classes: The labels, in the order of the logits.
        read: From a file's bytes (string scalar) to a prepared picture, in TensorFlow operations.
        prepare: From uint8 [H, W, 3] to a prepared picture, in TensorFlow operations.
    """
    module = PictureClassifier(model, classes, read, prepare)
    signatures = {"serving_default": module.from_bytes, "pixels": module.from_pixels}
    with replacing_folder(path) as temporary:
        tf.saved_model.save(module, str(temporary), signatures=signatures)
        (temporary / "labels.txt").write_text("".join(f"{name}\n" for name in classes), encoding="utf-8")


def compare_export(
    path: str | Path,
    files: Sequence[bytes],
    expected: np.ndarray,
    *,
    background: tuple[int, int, int] = (255, 255, 255),
    orient: bool = True,
) -> dict[str, Any]:
    """Runs a SavedModel of ``export_pictures`` on some files and compares it with known probabilities.

    Args:
        path: The SavedModel.
        files: Encoded pictures.
        expected: [N, K], what the training path gives for them.
        background: See ``zoo.data.images.decode``; for files that TensorFlow cannot decode alike, which are converted.
        orient: See there.

    Returns:
        ``pictures``, ``converted`` (files that had to be), ``largest_difference`` of a probability, ``same_label``.
    """
    classify = tf.saved_model.load(str(path)).signatures["serving_default"]
    ready = [graph_bytes(data, background=background, orient=orient) for data in files]
    found = np.concatenate([classify(tf.constant([data]))["probabilities"].numpy() for data in ready])
    return {
        "pictures": len(files),
        "converted": sum(not same_in_graph(data) for data in files),
        "largest_difference": float(np.abs(found - expected).max()),
        "same_label": int((found.argmax(1) == expected.argmax(1)).sum()),
    }
