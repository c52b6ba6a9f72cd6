"""LeNet-5, the convolutional network that read cheques: the textbooks' form, the paper's own, and TF-Slim's.

Y. LeCun, L. Bottou, Y. Bengio and P. Haffner, "Gradient-based learning applied to document recognition",
Proceedings of the IEEE 86(11), 1998, section II.B.

    layer    output     dense            original                     connections (original)
    C1       28x28x6    156              156                          122,304
    S2       14x14x6    -                12    trainable sub-sampling   5,880
    C3       10x10x16   2,416            1,516 60 of 96 map pairs     151,600
    S4       5x5x16     -                32                             2,000
    C5       120        48,120           48,120                        48,120
    F6       84         10,164           10,164                        10,164
    output   10         850              -     840 fixed prototypes       840
    total               61,706           60,000                       340,908
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from zoo import layers
from zoo.data.arrays import white
from zoo.data.preprocessing import Preprocessing
from zoo.registry import register_net
from zoo.scoping import NetSpec, arg_scope, dense_tensor, get_variable, variable_scope
from zoo.scoping.keras_names import activation as activation_of

Output = tuple[tf.Tensor, dict[str, tf.Tensor]]

# The maps of S2 (0 to 5) that each of the 16 maps of C3 sees: table I of the paper.
C3_TABLE = (
    *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (0, 4, 5), (0, 1, 5)),  # three neighbours
    *((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (0, 3, 4, 5), (0, 1, 4, 5), (0, 1, 2, 5)),  # four neighbours
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5)),  # two and two
    (0, 1, 2, 3, 4, 5),
)

# What F6 should look like for each digit: pictures of 7 x 12, +1 for ink and -1 for paper (section II.B; own drawing).
DIGITS = """
..###.. ...#... .#####. .#####. .....#. ####### ..####. ####### .#####. .#####.
.#...#. ..##... #.....# #.....# ....##. #...... .#..... ......# #.....# #.....#
#.....# .#.#... ......# ......# ...#.#. #...... #...... ......# #.....# #.....#
#.....# ...#... ......# ......# ..#..#. #...... #...... .....#. #.....# #.....#
#.....# ...#... .....#. ......# .#...#. #.####. #...... .....#. #.....# #.....#
#.....# ...#... ....#.. ..####. #....#. ##....# #.####. ....#.. .#####. #....##
#.....# ...#... ...#... ......# ####### ......# ##....# ....#.. #.....# .####.#
#.....# ...#... ..#.... ......# .....#. ......# #.....# ...#... #.....# ......#
#.....# ...#... .#..... ......# .....#. ......# #.....# ...#... #.....# ......#
#.....# ...#... #...... ......# .....#. ......# #.....# ..#.... #.....# ......#
.#...#. ...#... #...... #.....# .....#. #.....# #.....# ..#.... #.....# .....#.
..###.. .#####. ####### .#####. .....#. .#####. .#####. ..#.... .#####. .####..
"""


def _squash(x: tf.Tensor) -> tf.Tensor:
    """The paper's scaled tanh (its equation 6 and appendix A): f(1) = 1 and f(-1) = -1."""
    return 1.7159 * tf.tanh(x * (2 / 3))


_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "scaled_tanh": _squash,
}
_POOLINGS = {"max": layers.max_pool2d, "average": layers.avg_pool2d}


@register_net(
    NetSpec(
        name="lenet5",
        paper="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998",
        input_size=(32, 32, 1),
        num_classes=10,
        published_params={"trainable": 61_706, "total": 61_706},
        gmacs=0.00041652,
        preprocessing=Preprocessing((32, 32), "crop_or_pad", mean=(0.0,), std=(1.0,), channels=1),
        variants=(
            ({"variant": "original"}, {"trainable": 60_000, "total": 60_840}),
            ({"variant": "slim"}, {"trainable": 3_274_634, "total": 3_274_634}),
        ),
        inputs=lambda options: (28, 28, 1) if options.get("variant") == "slim" else (32, 32, 1),
        computing=("activation", "pooling", "variant"),
        heads=lambda options: {"original": ("RBF",), "slim": ("fc4",)}.get(options.get("variant", ""), ("logits",)),
        headless={"num_classes": None},
        dropout="dropout_keep_prob",
        elsewhere={"slim": "lenet"},
    )
)
def lenet5(
    images: tf.Tensor,
    num_classes: int | None = 10,
    *,
    is_training: bool | tf.Tensor = False,
    variant: str = "dense",
    activation: str | None = None,
    pooling: str | None = None,
    dropout_keep_prob: float | None = None,
    weight_decay: float = 0.0,
    scope: str | None = None,
) -> Output:
    """LeNet-5 on images of one channel, ink 1 on paper 0.

    Args:
        images: [N, 32, 32, 1] floats in 0..1; integers are divided by their type's largest value
            (by 255 those wider than that of a picture), with a warning.
            28 x 28 images get a border of 2. The slim variant takes [N, 28, 28, 1].
        num_classes: Number of classes; None leaves the output layer out. The original variant has prototypes for
            the ten digits, so at most 10.
        is_training: True turns dropout on.
        variant: "dense" (C3 sees all maps of S2, ReLU, max pooling, a linear output: 61,706 parameters), "original"
            (as in the paper: sparse C3, trainable sub-sampling, scaled tanh, radial basis output: 60,000) or "slim"
            (TF-Slim's wider network: 3,274,634).
        activation: For the dense variant: "relu" (default), "scaled_tanh" (the paper's), or any that Keras has a name
            for ("tanh", "gelu", ...).
        pooling: For the dense variant: "max" (default) or "average".
        dropout_keep_prob: Probability of keeping a unit before the output layer; 1 by default, 0.5 for slim.
        weight_decay: Scale of the L2 loss on every kernel.
        scope: Variable scope; "LeNet5" by default, "LeNet" for slim.

    Returns:
        Logits [N, num_classes] (the last hidden layer when num_classes is None) and the end points: each layer's
        output by scope name, "Logits" and "Predictions". The original variant's logits are the negative squared
        distances to the prototypes, so that cross-entropy on them is the paper's equation 9 without rejection.

    Raises:
        ValueError: Images of another rank, size or channel count, or an option outside the ones named.
    """
    if variant not in _VARIANTS:
        raise ValueError(f"lenet5: variant is one of {', '.join(_VARIANTS)}; got {variant!r}.")
    if variant != "dense" and (activation or pooling):
        raise ValueError(f"lenet5: activation and pooling are options of the dense variant; {variant!r} fixes both.")
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"lenet5: num_classes is at least 1, or None for no output layer; got {num_classes}.")
    network, default_scope, size, default_keep_prob = _VARIANTS[variant]
    keep_prob = default_keep_prob if dropout_keep_prob is None else dropout_keep_prob
    regularizer = layers.l2_regularizer(weight_decay) if weight_decay else None
    choices = {"activation": activation or "relu", "pooling": pooling or "max"} if variant == "dense" else {}

    with (
        variable_scope(scope or default_scope),
        arg_scope([layers.conv2d, layers.fully_connected], weights_regularizer=regularizer),
        arg_scope([layers.dropout], keep_prob=keep_prob, is_training=is_training),
    ):
        logits, end_points = network(_prepare(images, size), num_classes, **choices)
        if num_classes is not None:
            end_points["Logits"] = logits
            end_points["Predictions"] = layers.softmax(logits, scope="Predictions")
    return logits, end_points


def _dense(images: tf.Tensor, num_classes: int | None, *, activation: str, pooling: str) -> Output:
    activation_fn = _ACTIVATIONS.get(activation) or activation_of(activation, "lenet5")
    pool2d = _choose(_POOLINGS, "pooling", pooling)
    ends = {}
    with arg_scope([layers.conv2d, layers.fully_connected], activation_fn=activation_fn):
        # 32 x 32 x 1
        net = ends["conv1"] = layers.conv2d(images, 6, [5, 5], padding="VALID", scope="conv1")
        # 28 x 28 x 6
        net = ends["pool1"] = pool2d(net, [2, 2], scope="pool1")
        # 14 x 14 x 6
        net = ends["conv2"] = layers.conv2d(net, 16, [5, 5], padding="VALID", scope="conv2")
        # 10 x 10 x 16
        net = ends["pool2"] = pool2d(net, [2, 2], scope="pool2")
        # 5 x 5 x 16
        net = ends["conv3"] = layers.conv2d(net, 120, [5, 5], padding="VALID", scope="conv3")
        # 1 x 1 x 120
        net = ends["fc4"] = layers.fully_connected(layers.flatten(net), 84, scope="fc4")
        # 84
        net = layers.dropout(net, scope="dropout4")
    if num_classes is None:
        return net, ends
    return layers.fully_connected(net, num_classes, activation_fn=None, scope="logits"), ends


def _original(images: tf.Tensor, num_classes: int | None) -> Output:
    if num_classes is not None and num_classes > 10:
        raise ValueError(f"lenet5: the original variant has prototypes for 10 digits; got num_classes={num_classes}.")
    ends = {}
    # 32 x 32 x 1, paper at -0.1 and ink at 1.175: mean near 0, variance near 1
    net = images * 1.275 - 0.1
    with arg_scope([layers.conv2d, layers.fully_connected], activation_fn=_squash, weights_initializer=_fan_in):
        net = ends["C1"] = layers.conv2d(net, 6, [5, 5], padding="VALID", scope="C1")
        # 28 x 28 x 6
        net = ends["S2"] = _subsample(net, "S2")
        # 14 x 14 x 6
        net = ends["C3"] = _partial_conv(net, C3_TABLE, "C3")
        # 10 x 10 x 16
        net = ends["S4"] = _subsample(net, "S4")
        # 5 x 5 x 16
        net = ends["C5"] = layers.conv2d(net, 120, [5, 5], padding="VALID", scope="C5")
        # 1 x 1 x 120
        net = ends["F6"] = layers.fully_connected(layers.flatten(net), 84, scope="F6")
        # 84
        net = layers.dropout(net, scope="dropout")
    if num_classes is None:
        return net, ends
    return -_distances(net, num_classes, "RBF"), ends


def _slim(images: tf.Tensor, num_classes: int | None) -> Output:
    ends = {}
    with arg_scope(
        [layers.conv2d, layers.fully_connected], weights_initializer=layers.truncated_normal_initializer(stddev=0.1)
    ):
        # 28 x 28 x 1
        net = ends["conv1"] = layers.conv2d(images, 32, [5, 5], scope="conv1")
        # 28 x 28 x 32
        net = ends["pool1"] = layers.max_pool2d(net, [2, 2], scope="pool1")
        # 14 x 14 x 32
        net = ends["conv2"] = layers.conv2d(net, 64, [5, 5], scope="conv2")
        # 14 x 14 x 64
        net = ends["pool2"] = layers.max_pool2d(net, [2, 2], scope="pool2")
        # 7 x 7 x 64
        net = ends["Flatten"] = layers.flatten(net)
        # 3136
        net = ends["fc3"] = layers.fully_connected(net, 1024, scope="fc3")
        # 1024
        if num_classes is None:
            return net, ends
        net = ends["dropout3"] = layers.dropout(net, scope="dropout3")
        return layers.fully_connected(net, num_classes, activation_fn=None, scope="fc4"), ends


# Variant -> network, scope, size of the image, probability of keeping a unit.
_VARIANTS: dict[str, tuple[Callable[..., Output], str, int, float]] = {
    "dense": (_dense, "LeNet5", 32, 1.0),
    "original": (_original, "LeNet5", 32, 1.0),
    "slim": (_slim, "LeNet", 28, 0.5),
}


def _fan_in(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> tf.Tensor:
    """The paper's initial weights: uniform within 2.4 / fan-in."""
    limit = 2.4 / int(np.prod(shape[:-1]))
    return layers.random_uniform_initializer(-limit, limit)(shape, dtype)


def _subsample(maps: tf.Tensor, scope: str) -> tf.Tensor:
    """Sums each 2 x 2 square and gives it one trainable coefficient and bias a map; starts as the average."""
    with variable_scope(scope):
        channels = maps.shape[-1]
        weights = get_variable("weights", [channels], initializer=layers.constant_initializer(0.25))
        biases = get_variable("biases", [channels], initializer=layers.zeros_initializer())
        sums = 4 * tf.nn.avg_pool2d(maps, 2, 2, "VALID")
        return _squash(sums * tf.cast(weights, maps.dtype) + tf.cast(biases, maps.dtype))


def _partial_conv(maps: tf.Tensor, table: tuple[tuple[int, ...], ...], scope: str) -> tf.Tensor:
    """A 5 x 5 convolution whose output maps each see only the input maps that the table lists."""
    pairs = [(source, target) for target, sources in enumerate(table) for source in sources]
    fan_in = np.repeat([25 * len(sources) for sources in table], [len(sources) for sources in table])
    with variable_scope(scope):
        limit = (2.4 / fan_in).astype("float32")  # [pairs]

        def scaled(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> tf.Tensor:
            return layers.random_uniform_initializer(-1.0, 1.0)(shape, dtype) * limit

        weights = get_variable("weights", [5, 5, len(pairs)], initializer=scaled)
        biases = get_variable("biases", [len(table)], initializer=layers.zeros_initializer())
        by_pair = tf.transpose(tf.cast(weights, maps.dtype), [2, 0, 1])  # [pairs, 5, 5]
        kernel = tf.scatter_nd(pairs, by_pair, [maps.shape[-1], len(table), 5, 5])
        net = tf.nn.conv2d(maps, tf.transpose(kernel, [2, 3, 0, 1]), 1, "VALID")
        return _squash(net + tf.cast(biases, maps.dtype))


def _distances(features: tf.Tensor, num_classes: int, scope: str) -> tf.Tensor:
    """Squared Euclidean distances to the fixed pictures of the digits (equation 7 of the paper)."""
    rows = [line.split() for line in DIGITS.split("\n") if line]
    pictures = [[1.0 if dot == "#" else -1.0 for row in rows for dot in row[digit]] for digit in range(num_classes)]
    with variable_scope(scope):
        prototypes = get_variable(
            "weights", [num_classes, 84], initializer=layers.constant_initializer(pictures), trainable=False
        )
        differences = features[:, tf.newaxis, :] - tf.cast(prototypes, features.dtype)  # [N, classes, 84]
        return tf.reduce_sum(tf.square(differences), axis=-1)


def _prepare(images: tf.Tensor, size: int) -> tf.Tensor:
    """Checks the images, turns integers into 0..1, and gives 28 x 28 images their border for 32 x 32."""
    images = dense_tensor(images, "lenet5")
    shape = images.shape
    takes = f"images of [N, {size}, {size}, 1]" + (" or [N, 28, 28, 1]" if size == 32 else "")
    if shape.rank != 4:
        raise ValueError(f"lenet5: takes {takes}; got shape {shape}. Add the missing axis with images[..., None].")
    shape = shape.as_list()  # plain numbers, also under tf.compat.v1.disable_v2_behavior()
    if shape[3] != 1:
        raise ValueError(f"lenet5: takes {takes}; got {shape[3]} channels. Convert the pictures to grey first.")
    if tuple(shape[1:3]) not in {(size, size), (28, 28)}:
        raise ValueError(f"lenet5: takes {takes}; got {shape[1]} x {shape[2]}. Resize the pictures first.")
    if images.dtype.is_integer:
        largest = white(images.dtype.as_numpy_dtype)
        warnings.warn(f"lenet5: {images.dtype.name} images are divided by {largest}.", stacklevel=3)
        images = tf.cast(images, tf.float32) / largest
    if shape[1] != size:
        images = tf.pad(images, [[0, 0], [2, 2], [2, 2], [0, 0]])
    return images


def _choose(table: dict[str, Any], option: str, name: str) -> Any:
    if name not in table:
        raise ValueError(f"lenet5: {option} is one of {', '.join(table)}; got {name!r}.")
    return table[name]
