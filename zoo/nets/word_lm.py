"""The word language model of the PTB tutorial: an embedding, layers of LSTM, a softmax over the vocabulary.

W. Zaremba, I. Sutskever and O. Vinyals, "Recurrent neural network regularization", arXiv:1409.2329, section 4.1.

                             small       medium      large
    embedding  V x H     2,000,000    6,500,000  15,000,000
    2 LSTM     8H^2+4H     641,600    6,765,200  36,012,000
    softmax    H x V + V 2,010,000    6,510,000  15,010,000
    total                4,651,600   19,775,200  66,022,000
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from zoo import layers, rnn
from zoo.data.text import continued_batches
from zoo.registry import register_net
from zoo.rnn.checks import check_keys, check_positive, check_units
from zoo.scoping import Model, NetSpec, dense_tensor, get_variable, variable_scope


@dataclass(frozen=True)
class Recipe:
    """How a size is built and trained.

    Args:
        hidden: Width of embedding and cells.
        steps: Words through which gradients go back.
        keep_prob: Of dropout after the embedding and after each layer.
        init_scale: Weights start uniform in +-init_scale; the biases of the cells at 0.
        clip_norm: Largest global norm of the gradient of the loss, which is summed over the steps.
        flat_epochs: Epochs at the full rate.
        epochs: Epochs in all.
        decay: Factor of the rate in each epoch after the flat ones.
        learning_rate: Of plain gradient descent.
        batch: Rows.
        num_layers: Cells on top of each other.
    """

    hidden: int
    steps: int
    keep_prob: float
    init_scale: float
    clip_norm: float
    flat_epochs: int
    epochs: int
    decay: float
    learning_rate: float = 1.0
    batch: int = 20
    num_layers: int = 2

    def schedule(self, steps_per_epoch: int) -> Callable[[Any], tf.Tensor]:
        """Returns the learning rate as a function of the step: ``rate * decay^max(epoch + 1 - flat_epochs, 0)``."""

        def rate(step: Any) -> tf.Tensor:
            epoch = tf.cast(tf.cast(step, tf.int64) // steps_per_epoch, tf.float32)
            return self.learning_rate * self.decay ** tf.maximum(epoch + 1.0 - self.flat_epochs, 0.0)

        return rate


RECIPES: Final[Mapping[str, Recipe]] = {
    "small": Recipe(200, 20, 1.0, 0.1, 5.0, 4, 13, 0.5),
    "medium": Recipe(650, 35, 0.5, 0.05, 5.0, 6, 39, 0.8),
    "large": Recipe(1500, 35, 0.35, 0.04, 10.0, 14, 55, 1 / 1.15),
}


def _specs(options: Mapping[str, Any]) -> Any:
    tokens = tf.TensorSpec([None, None], tf.int32)
    return {"tokens": tokens, "first": tf.TensorSpec([None], tf.bool)} if options.get("carry") else tokens


def summed_cross_entropy(labels: Any, logits: Any) -> tf.Tensor:
    """The tutorial's loss: cross-entropy summed over the steps of a row.

    Its clip norms and its rate of 1.0 belong to this sum, not to a mean over the steps.

    Args:
        labels: Next words int [N, T].
        logits: [N, T, vocab_size].

    Returns:
        [N], float32 or wider. Perplexity is ``exp(mean / T)``.
    """
    labels = tf.cast(labels, tf.int32)  # Keras' compile hands labels over as floats
    return tf.reduce_sum(rnn.softmax_cross_entropy(labels, logits), axis=1)


@register_net(
    NetSpec(
        name="word_lm",
        paper="Zaremba, Sutskever, Vinyals: Recurrent neural network regularization, arXiv:1409.2329, 2014",
        input_size=(None,),
        num_classes=10_000,
        published_params={"trainable": 4_651_600, "total": 4_651_600},
        variants=(
            ({"size": "medium"}, {"trainable": 19_775_200, "total": 19_775_200}),
            ({"size": "large"}, {"trainable": 66_022_000, "total": 66_022_000}),
        ),
        inputs=_specs,
        task="model words",
        data="text",
        loss=summed_cross_entropy,
        metric="perplexity",
        dropout="keep_prob",
        heads=(),  # the words belong to the embedding as much as to the output layer
    )
)
def word_lm(
    inputs: Any,
    size: str = "small",
    *,
    is_training: bool | tf.Tensor = False,
    vocab_size: int = 10_000,
    hidden: int | None = None,
    num_layers: int | None = None,
    keep_prob: float | None = None,
    init_scale: float | None = None,
    forget_bias: float = 0.0,
    carry: int | None = None,
    cell_name: str = "basic_lstm_cell",
    scope: str = "Model",
) -> tuple[Any, dict[str, tf.Tensor]]:
    """Next-word logits.

    Args:
        inputs: Word numbers int [N, T], read from a state of zeros; or a pair of them and a state (a tuple of (c, h) a
            layer, each [N, hidden]); or, with `carry`, a dict of ``tokens`` [N, T] and ``first`` (bool [N]: this row
            starts a text), read from the state the last batch ended in.
        size: "small", "medium" or "large"; sets whatever of the following is None.
        is_training: True turns dropout on.
        vocab_size: Number of words.
        hidden: Width of embedding and cells.
        num_layers: Number of cells.
        keep_prob: Of dropout after the embedding and after each layer; never on the recurrent state.
        init_scale: Weights start uniform in +-init_scale.
        forget_bias: Of the cells; the tutorial has 0.
        carry: Rows of the carried state: the global batch. The state is then part of the model, one for training and
            one for evaluation, and each replica owns its rows.
        cell_name: Scope of a cell's variables; the tutorial's block cells have "lstm_cell".
        scope: Root scope.

    Returns:
        Logits [N, T, vocab_size]; for a pair, (logits, new state). End points ``embedding``, ``outputs``, ``logits``.

    Raises:
        ValueError: An unknown size, a width or number that is not positive, inputs that are not integers [N, T] or
            lack a part, or rows that do not fit `carry`.

    Source: section 4.1 of the paper; the PTB tutorial of TensorFlow 1.
    """
    if size not in RECIPES:
        raise ValueError(f"word_lm: size is one of {', '.join(RECIPES)}; got {size!r}")
    recipe = RECIPES[size]
    hidden = recipe.hidden if hidden is None else check_units(hidden, "word_lm: hidden")
    num_layers = recipe.num_layers if num_layers is None else check_units(num_layers, "word_lm: num_layers")
    keep = recipe.keep_prob if keep_prob is None else keep_prob
    scale = recipe.init_scale if init_scale is None else init_scale
    check_positive(scale, "word_lm: init_scale")
    check_units(vocab_size, "word_lm: vocab_size")
    if carry is not None:
        check_units(carry, "word_lm: carry")
    tokens, state, first = _parts(inputs, carry)
    with variable_scope(scope, initializer=layers.random_uniform_initializer(-scale, scale)):
        net = rnn.embedding(tokens, vocab_size, hidden)
        # N x T x H
        ends = {"embedding": net}
        net = layers.dropout(net, keep, is_training=is_training)
        cell = rnn.MultiRNNCell(
            [
                rnn.DropoutWrapper(
                    rnn.BasicLSTMCell(hidden, forget_bias, name=cell_name),
                    output_keep_prob=keep,
                    is_training=is_training,
                )
                for _ in range(num_layers)
            ]
        )
        if first is not None:
            carried = rnn.CarriedState(cell.state_size, carry, is_training)
            state = carried.read(first)
        net, new_state = rnn.dynamic_rnn(cell, net, initial_state=state, scope="RNN")
        # N x T x H
        ends["outputs"] = net
        flat = tf.reshape(net, [-1, hidden])
        flat = tf.matmul(flat, tf.cast(get_variable("softmax_w", [hidden, vocab_size]), flat.dtype))
        flat += tf.cast(get_variable("softmax_b", [vocab_size]), flat.dtype)
        logits = ends["logits"] = tf.reshape(flat, tf.concat([tf.shape(tokens), [vocab_size]], 0))
        # N x T x V
        logits.set_shape([*tokens.shape, vocab_size])
    if first is not None:
        return carried.written(logits, new_state), ends
    return (logits if state is None else (logits, new_state)), ends


def _parts(inputs: Any, carry: int | None) -> tuple[Any, Any, Any]:
    """Word numbers, state or None, starts of texts or None."""
    state = first = None
    if isinstance(inputs, Mapping):
        check_keys(inputs, ("tokens", "first"), "word_lm")
        if carry is None:
            raise ValueError("word_lm: inputs with 'first' need the option carry: the rows of the global batch")
        inputs, first = inputs["tokens"], inputs["first"]
    elif isinstance(inputs, tuple | list):
        if len(inputs) != 2:
            raise ValueError(
                f"word_lm: inputs are word numbers, or a pair of them and a state; got {len(inputs)} parts"
            )
        inputs, state = inputs
    tokens = dense_tensor(inputs, "word_lm")
    if tokens.shape.rank not in (2, None):
        raise ValueError(f"word_lm: word numbers are [rows, steps]; got shape {tokens.shape}: add the missing axis")
    return tokens, state, first


def perplexity(model: Model, numbers: np.ndarray, batch: int = 20, steps: int = 20, *, carry: bool = True) -> float:
    """Measures a model on a text.

    Args:
        model: A built `word_lm`.
        numbers: int [words].
        batch: Rows; the tutorial tests with 1.
        steps: Words a call; the tutorial tests with 1.
        carry: False starts every call from a state of zeros.

    Returns:
        ``exp`` of the mean cross-entropy of the words predicted.

    Raises:
        ValueError: The text is shorter than one batch, or has words that the model lacks.
        FloatingPointError: The cross-entropy is not finite.
    """
    _check_words(model, numbers)
    tokens, labels = continued_batches(numbers, batch, steps)

    @tf.function(reduce_retracing=True, autograph=False)
    def step(tokens: Any, labels: Any, state: Any) -> tuple[Any, Any]:
        logits, new_state = model((tokens, state), training=False)
        return tf.reduce_sum(summed_cross_entropy(labels, logits)), new_state

    zeros = state = zero_state(model, batch)
    total = 0.0
    for words, following in zip(tokens, labels, strict=True):
        cost, state = step(tf.constant(words), tf.constant(following), state)
        total += float(cost)
        state = state if carry else zeros
    if not np.isfinite(total):
        raise FloatingPointError(
            "the cross-entropy is not finite: the weights hold NaN or Inf, train with a lower rate"
        )
    with np.errstate(over="ignore"):  # inf, for a model that has gone far astray
        return float(np.exp(total / labels.size))


def zero_state(model: Model, batch: int) -> tuple[tuple[tf.Tensor, tf.Tensor], ...]:
    """Returns the state a text starts from: a tuple of (c, h) a layer, zeros [batch, hidden]."""
    kernels = [name for name in model.variable_names if name.endswith("/kernel")]
    widths = [int(model.variable(name).shape[1]) // 4 for name in kernels]
    return tuple(rnn.LSTMStateTuple(tf.zeros([batch, width]), tf.zeros([batch, width])) for width in widths)


def generate(
    model: Model, prompt: np.ndarray, count: int, *, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> np.ndarray:
    """Draws the next words, one after the other.

    Args:
        model: A built `word_lm`.
        prompt: int [words], at least one.
        count: How many words to draw.
        temperature: Divides the logits; 0 takes the likeliest word.
        top_k: Draw among so many likeliest words only.
        seed: The same seed gives the same words.

    Returns:
        int32 [count].

    Raises:
        ValueError: An empty prompt, words that the model lacks, or a negative temperature, count or top_k.
    """
    if len(prompt) == 0 or count < 1:
        raise ValueError(f"generate needs a prompt and a count of at least 1, got {len(prompt)} words and {count}")
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature must not be negative and top_k at least 1, got {temperature} and {top_k}")
    _check_words(model, prompt)
    generator = np.random.default_rng(seed)
    step = tf.function(
        lambda tokens, state: model((tokens, state), training=False), reduce_retracing=True, autograph=False
    )
    logits, state = step(tf.constant(prompt, tf.int32)[None], zero_state(model, 1))
    drawn: list[int] = []
    while True:
        drawn.append(_draw(logits[0, -1].numpy().astype(np.float64), temperature, top_k, generator))
        if len(drawn) == count:
            return np.array(drawn, np.int32)
        logits, state = step(tf.constant([[drawn[-1]]], tf.int32), state)


def vocabulary_size(model: Model) -> int:
    """Returns how many words a built `word_lm` knows."""
    return int(model.variable(next(name for name in model.variable_names if name.endswith("softmax_b"))).shape[0])


def _check_words(model: Model, numbers: Any) -> None:
    numbers, size = np.asarray(numbers), vocabulary_size(model)
    wrong = numbers[(numbers < 0) | (numbers >= size)]
    if wrong.size:
        raise ValueError(
            f"the model knows the words 0..{size - 1}, got {', '.join(map(str, wrong[:5]))}: encode the text with the "
            "vocabulary that it was trained with"
        )


def _draw(logits: np.ndarray, temperature: float, top_k: int | None, generator: np.random.Generator) -> int:
    if temperature == 0:
        return int(np.argmax(logits))
    if top_k is not None and top_k < len(logits):
        logits = np.where(logits < np.partition(logits, -top_k)[-top_k], -np.inf, logits)
    weights = np.exp((logits - logits.max()) / temperature)
    return int(generator.choice(len(logits), p=weights / weights.sum()))
