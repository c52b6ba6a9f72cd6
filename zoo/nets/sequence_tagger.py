"""Recurrent networks that label: every step of a sequence from both sides, or a picture read row by row.

M. Schuster and K. Paliwal, "Bidirectional recurrent neural networks", IEEE Transactions on Signal Processing 45, 1997;
A. Graves and J. Schmidhuber, "Framewise phoneme classification with bidirectional LSTM", Neural Networks 18, 2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import tensorflow as tf

from zoo import layers, rnn
from zoo.data.preprocessing import Preprocessing
from zoo.registry import register_net
from zoo.rnn.checks import check_keys, check_units, dim
from zoo.scoping import NetSpec, ScopeError, dense_tensor, variable_scope

CELLS: Final = {"lstm": rnn.BasicLSTMCell, "gru": rnn.GRUCell, "rnn": rnn.BasicRNNCell}
MERGES: Final = ("concat", "sum")


def _specs(options: Mapping[str, Any]) -> Any:
    width = options.get("width", 8)
    ids = options.get("vocab_size") is not None
    sequence = tf.TensorSpec([None, None], tf.int32) if ids else tf.TensorSpec([None, None, width])
    return {"sequence": sequence, "length": tf.TensorSpec([None], tf.int32)}


@register_net(
    NetSpec(
        name="sequence_tagger",
        paper="Graves, Schmidhuber: Framewise phoneme classification with bidirectional LSTM, 2005",
        input_size=(None, 8),
        num_classes=10,
        published_params={"trainable": 38_666, "total": 38_666},
        inputs=_specs,
        task="tag",
        data="sequences",
        dropout="keep_prob",
    )
)
def sequence_tagger(
    inputs: Any,
    num_classes: int = 10,
    *,
    is_training: bool | tf.Tensor = False,
    width: int = 8,
    vocab_size: int | None = None,
    hidden: int = 64,
    num_layers: int = 1,
    cell: str = "lstm",
    bidirectional: bool = True,
    merge: str = "concat",
    keep_prob: float = 1.0,
    scope: str = "SequenceTagger",
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Logits for every step of a sequence.

    Args:
        inputs: Sequences [N, T, width] (or word numbers int [N, T] with `vocab_size`), all of length T; or a dict of
            ``sequence`` and ``length`` (int [N], 0..T).
        num_classes: Number of labels.
        is_training: True turns dropout on.
        width: Features a step, or width of the embedding.
        vocab_size: Number of words; None takes features.
        hidden: Units a direction.
        num_layers: Layers; each reads the merged outputs of the one below.
        cell: "lstm", "gru" or "rnn".
        bidirectional: False reads forward only, so that a label cannot depend on what comes later.
        merge: "concat" puts both directions side by side, "sum" adds them.
        keep_prob: Of dropout on each layer's inputs and before the labels.
        scope: Root scope.

    Returns:
        Logits [N, T, num_classes], and end points ``layer1``, ... and ``logits``. Past a sequence's end the layers give
        0 and the logits are the bias.

    Raises:
        ValueError: An unknown cell or merge, a width or number that is not positive, or inputs of another width or
            without one of the two parts.
    """
    if cell not in CELLS:
        raise ValueError(f"sequence_tagger: cell is one of {', '.join(CELLS)}; got {cell!r}")
    check_units(num_classes, "sequence_tagger: num_classes")
    if merge not in MERGES:
        raise ValueError(f"sequence_tagger: merge is one of {', '.join(MERGES)}; got {merge!r}")
    for name, value in (("width", width), ("hidden", hidden), ("num_layers", num_layers)):
        check_units(value, f"sequence_tagger: {name}")
    if vocab_size is not None:
        check_units(vocab_size, "sequence_tagger: vocab_size")
    lengths = None
    if isinstance(inputs, Mapping):
        check_keys(inputs, ("sequence", "length"), "sequence_tagger")
        inputs, lengths = inputs["sequence"], inputs["length"]
    net = dense_tensor(inputs, "sequence_tagger")
    if net.shape.rank not in (3 if vocab_size is None else 2, None):
        wanted = "[rows, steps, width]" if vocab_size is None else "word numbers [rows, steps]"
        raise ValueError(f"sequence_tagger: sequences are {wanted}; got shape {net.shape}: add or drop an axis")
    if vocab_size is None and not net.dtype.is_floating:
        raise ValueError(
            f"sequence_tagger: features are floating point; got {net.dtype.name}: cast them, or give the option "
            "vocab_size for word numbers"
        )
    ends: dict[str, tf.Tensor] = {}
    with variable_scope(scope):
        if vocab_size is not None:
            net = rnn.embedding(net, vocab_size, width)
        elif dim(net, -1) != width:
            raise ValueError(f"sequence_tagger: the option width is {width}, but the inputs have shape {net.shape}")
        # N x T x width
        for number in range(1, num_layers + 1):
            net = layers.dropout(net, keep_prob, is_training=is_training)
            with variable_scope(f"layer{number}"):
                net = _both_ways(net, lengths, CELLS[cell], hidden, bidirectional, merge)
            ends[f"layer{number}"] = net
            # N x T x 2 hidden (concat) or N x T x hidden
        net = layers.dropout(net, keep_prob, is_training=is_training)
        flat = tf.reshape(net, [-1, net.shape[-1]])
        flat = layers.fully_connected(flat, num_classes, activation_fn=None, scope="logits")
        logits = tf.reshape(flat, tf.concat([tf.shape(net)[:2], [num_classes]], 0))
        logits.set_shape([*net.shape[:2], num_classes])
        # N x T x num_classes
    ends["logits"] = logits
    return logits, ends


def _both_ways(net: Any, lengths: Any, cell: Any, hidden: int, bidirectional: bool, merge: str) -> tf.Tensor:
    if not bidirectional:
        return rnn.dynamic_rnn(cell(hidden), net, lengths)[0]
    (forward, backward), _ = rnn.bidirectional_dynamic_rnn(cell(hidden), cell(hidden), net, lengths)
    return tf.concat([forward, backward], 2) if merge == "concat" else forward + backward


@register_net(
    NetSpec(
        name="row_classifier",
        paper="Le, Jaitly, Hinton: A simple way to initialize recurrent networks, arXiv:1504.00941, 2015",
        input_size=(28, 28, 1),
        num_classes=10,
        published_params={"trainable": 81_674, "total": 81_674},
        preprocessing=Preprocessing((28, 28), "crop_or_pad", mean=(0.0,), std=(1.0,), channels=1),
        dropout="keep_prob",
    )
)
def row_classifier(
    images: tf.Tensor,
    num_classes: int = 10,
    *,
    is_training: bool | tf.Tensor = False,
    hidden: int = 128,
    cell: str = "lstm",
    keep_prob: float = 1.0,
    scope: str = "RowClassifier",
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Reads a picture from top to bottom, one row a step, and names it after the last.

    Args:
        images: [N, height, width, channels] floats in 0..1. The width and the channels decide the weights' shape; a
            model is made for 28 x 28 x 1 unless `input_shape` says otherwise.
        num_classes: Number of classes.
        is_training: True turns dropout on.
        hidden: Units of the cell.
        cell: "lstm", "gru" or "rnn".
        keep_prob: Of dropout before the classes.
        scope: Root scope.

    Returns:
        Logits [N, num_classes], and end points ``rows``, ``last`` and ``logits``.

    Raises:
        ValueError: An unknown cell, images without static height, width and channels, or of another width than the
            model was made for.
    """
    if cell not in CELLS:
        raise ValueError(f"row_classifier: cell is one of {', '.join(CELLS)}; got {cell!r}")
    check_units(num_classes, "row_classifier: num_classes")
    images = dense_tensor(images, "row_classifier")
    if images.shape.rank != 4 or None in images.shape.as_list()[1:]:
        raise ValueError(f"row_classifier: images are [N, height, width, channels]; got {images.shape}")
    if not images.dtype.is_floating:
        raise ValueError(
            f"row_classifier: images are floating point in 0..1; got {images.dtype.name}: convert them with "
            "tf.image.convert_image_dtype(images, tf.float32)"
        )
    check_units(hidden, "row_classifier: hidden")
    height, width, channels = images.shape.as_list()[1:]
    with variable_scope(scope):
        net = tf.reshape(images, [-1, height, width * channels])
        # N x 28 rows x 28
        try:
            net, _ = rnn.dynamic_rnn(CELLS[cell](hidden), net)
        except ScopeError as error:
            raise ValueError(
                f"row_classifier: the weights belong to rows of one width, and pictures of shape {images.shape} have "
                f"another ({error}). Resize or pad them to the model's input_shape, or make a model for them: "
                f"row_classifier(input_shape={(height, width, channels)})"
            ) from error
        # N x 28 x 128
        ends = {"rows": net, "last": net[:, -1]}
        net = layers.dropout(ends["last"], keep_prob, is_training=is_training)
        # N x 128
        ends["logits"] = layers.fully_connected(net, num_classes, activation_fn=None, scope="logits")
    return ends["logits"], ends
