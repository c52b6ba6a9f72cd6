"""LeNet-5: published counts, the paper's formulas, Keras as the oracle, and bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import lenet5
from zoo.data import digits
from zoo.nets.lenet5 import C3_TABLE, _partial_conv

PUBLISHED = {
    "dense": {"conv1": 156, "conv2": 2_416, "conv3": 48_120, "fc4": 10_164, "logits": 850},
    "original": {"C1": 156, "S2": 12, "C3": 1_516, "S4": 32, "C5": 48_120, "F6": 10_164, "RBF": 840},
    "slim": {"conv1": 832, "conv2": 51_264, "fc3": 3_212_288, "fc4": 10_250},
}


def images(count=2, size=32):
    return np.random.default_rng(0).random((count, size, size, 1), "float32")


def close(a, b, tolerance=1e-5):
    a, b = np.asarray(a), np.asarray(b)
    return np.abs(a - b).max() <= tolerance * np.abs(b).max()


def keras_twin(model, size, layers):
    """A keras.Sequential with the model's weights, kernel and bias by kernel and bias."""
    twin = keras.Sequential([keras.Input((size, size, 1)), *layers])
    twin.set_weights([np.asarray(model.variable(name)) for name in model.variable_names])
    return twin


@pytest.mark.parametrize("variant", PUBLISHED)
def test_published_parameters_layer_by_layer(variant):
    model = lenet5(variant=variant)
    counts = {}
    for name in model.variable_names:
        scope = name.split("/")[-2]
        counts[scope] = counts.get(scope, 0) + int(np.prod(model.variable(name).shape))
    assert counts == PUBLISHED[variant]
    options = {} if variant == "dense" else {"variant": variant}
    published = {"dense": lenet5.spec.published_params, **{o["variant"]: p for o, p in lenet5.spec.variants}}[variant]
    assert sum(int(np.prod(v.shape)) for v in model.trainable_variables) == published["trainable"]
    assert model.count_params() == published["total"]
    assert model.options == {"variant": variant}
    assert lenet5.spec.input_shape(options) == ((28, 28, 1) if variant == "slim" else (32, 32, 1))


def test_connections_of_the_paper():
    model = lenet5(variant="original")
    ends = {name: value.shape[1:] for name, value in model.end_points(images(1)).items()}
    positions = {name: int(np.prod(shape[:-1])) for name, shape in ends.items()}
    trained = {"C1": 156, "C3": 1_516, "C5": 48_120, "F6": 10_164}
    connections = {name: count * positions[name] for name, count in trained.items()}
    connections |= {name: int(np.prod(ends[name])) * 5 for name in ("S2", "S4")}  # four inputs and a bias a unit
    connections["RBF"] = int(np.prod(model.variable("RBF/weights").shape))
    assert connections == {
        "C1": 122_304,
        "S2": 5_880,
        "C3": 151_600,
        "S4": 2_000,
        "C5": 48_120,
        "F6": 10_164,
        "RBF": 840,
    }
    assert sum(connections.values()) == 340_908


def test_end_points_have_the_sizes_of_the_paper():
    ends = {name: tuple(value.shape[1:]) for name, value in lenet5().end_points(images()).items()}
    assert ends == {
        "conv1": (28, 28, 6),
        "pool1": (14, 14, 6),
        "conv2": (10, 10, 16),
        "pool2": (5, 5, 16),
        "conv3": (1, 1, 120),
        "fc4": (84,),
        "Logits": (10,),
        "Predictions": (10,),
    }


@pytest.mark.parametrize(
    ("activation", "pooling"), [("relu", "max"), ("tanh", "average"), ("scaled_tanh", "max")], ids=str
)
def test_dense_equals_keras(activation, pooling):
    model = lenet5(num_classes=7, activation=activation, pooling=pooling)
    act = (lambda x: 1.7159 * tf.tanh(2 / 3 * x)) if activation == "scaled_tanh" else activation
    pool = keras.layers.MaxPool2D if pooling == "max" else keras.layers.AveragePooling2D
    conv = keras.layers.Conv2D
    twin = keras_twin(
        model,
        32,
        [
            *(conv(6, 5, activation=act), pool(2), conv(16, 5, activation=act), pool(2)),
            *(conv(120, 5, activation=act), keras.layers.Flatten()),
            *(keras.layers.Dense(84, activation=act), keras.layers.Dense(7)),
        ],
    )
    assert close(model(images()), twin(images()))
    ends = model.end_points(images())
    assert close(ends["Predictions"], keras.ops.softmax(twin(images())))


def test_slim_equals_keras_and_has_slims_names():
    model = lenet5(variant="slim")
    assert model.variable_names == [
        f"LeNet/{scope}/{leaf}" for scope in ("conv1", "conv2", "fc3", "fc4") for leaf in ("weights", "biases")
    ]
    conv, pool = keras.layers.Conv2D, keras.layers.MaxPool2D
    twin = keras_twin(
        model,
        28,
        [
            *(conv(32, 5, padding="same", activation="relu"), pool()),
            *(conv(64, 5, padding="same", activation="relu"), pool(), keras.layers.Flatten()),
            *(keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(10)),
        ],
    )
    assert close(model(images(size=28)), twin(images(size=28)))
    assert not np.array_equal(model(images(size=28), training=True), model(images(size=28), training=True))


def test_partial_connection_table():
    assert len(C3_TABLE) == 16
    assert sum(map(len, C3_TABLE)) == 60
    assert len(set(C3_TABLE)) == 16
    assert np.array_equal(np.bincount(np.concatenate(C3_TABLE)), [10] * 6)
    maps = np.random.default_rng(1).normal(size=(1, 14, 14, 6)).astype("float32")
    with zoo.variable_store():
        before = np.asarray(_partial_conv(tf.constant(maps), C3_TABLE, "C3"))
        for source in range(6):
            changed = maps.copy()
            changed[..., source] += 1
            with zoo.variable_scope("", reuse=True):
                after = np.asarray(_partial_conv(tf.constant(changed), C3_TABLE, "C3"))
            moved = np.abs(after - before).max(axis=(0, 1, 2)) > 1e-6
            assert np.flatnonzero(moved).tolist() == [k for k, sources in enumerate(C3_TABLE) if source in sources]


def test_original_follows_the_papers_formulas():
    model = lenet5(variant="original")
    x = images()
    ends = {name: np.asarray(value) for name, value in model.end_points(x).items()}
    weights = {n.removeprefix("LeNet5/"): np.asarray(model.variable(n)) for n in model.variable_names}
    squash = lambda a: 1.7159 * np.tanh(2 / 3 * a)  # noqa: E731

    first = tf.nn.conv2d(x * 1.275 - 0.1, weights["C1/weights"], 1, "VALID") + weights["C1/biases"]
    assert close(ends["C1"], squash(first))
    sums = ends["C1"].reshape(2, 14, 2, 14, 2, 6).sum(axis=(2, 4))
    assert close(ends["S2"], squash(sums * weights["S2/weights"] + weights["S2/biases"]))
    kernels = iter(np.moveaxis(weights["C3/weights"], 2, 0))
    for target, sources in enumerate(C3_TABLE):
        kernel = np.stack([next(kernels) for _ in sources], -1)[..., np.newaxis]
        out = tf.nn.conv2d(ends["S2"][..., list(sources)], kernel, 1, "VALID") + weights["C3/biases"][target]
        assert close(ends["C3"][..., target], squash(out[..., 0]))
    prototypes = weights["RBF/weights"]
    assert prototypes.shape == (10, 84)
    assert set(np.unique(prototypes)) == {-1.0, 1.0}
    assert len(np.unique(prototypes, axis=0)) == 10
    distances = ((ends["F6"][:, np.newaxis] - prototypes) ** 2).sum(-1)
    assert close(ends["Logits"], -distances)
    assert np.abs(weights["C5/weights"]).max() <= 2.4 / 400
    assert "LeNet5/RBF/weights" not in {v.path for v in model.trainable_variables}


def test_original_learns():
    model = lenet5(variant="original", seed=1)
    examples = digits.load().train
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = model.fit(examples.images[:256], examples.labels[:256], batch_size=32, epochs=6, verbose=0)
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]


def test_small_images_get_a_border_and_integers_are_scaled():
    model = lenet5()
    small = images(size=28)
    bordered = np.pad(small, [(0, 0), (2, 2), (2, 2), (0, 0)])
    assert np.array_equal(model(small), model(bordered))
    whole = np.round(bordered * 255).astype("uint8")
    with pytest.warns(UserWarning, match="uint8 images are divided by 255"):
        logits = model(whole)
    assert close(logits, model(whole.astype("float32") / 255))


def test_dropout_acts_in_training_only():
    model, plain = lenet5(dropout_keep_prob=0.5, seed=3), lenet5(seed=3)
    for name in plain.variable_names:
        model.variable(name).assign(plain.variable(name))
    assert np.array_equal(model(images()), plain(images()))
    assert not np.array_equal(model(images(), training=True), model(images(), training=True))
    assert np.array_equal(plain(images(), training=True), plain(images()))


def test_weight_decay_is_slims():
    model = lenet5(weight_decay=0.01)
    kernels = [np.asarray(model.variable(n), "float64") for n in model.variable_names if n.endswith("weights")]
    expected = 0.01 * sum((kernel**2).sum() / 2 for kernel in kernels)
    assert len(model.losses) == 5
    assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-5)
    assert lenet5().losses == []


def test_without_classes_the_last_hidden_layer_comes_back():
    for variant, width in {"dense": 84, "original": 84, "slim": 1024}.items():
        model = lenet5(num_classes=None, variant=variant)
        assert model(images(size=28)).shape == (2, width)
        assert "Logits" not in model.end_points(images(size=28))


def test_the_same_function_in_a_graph():
    model = lenet5(num_classes=5)
    values = {name: np.asarray(model.variable(name)) for name in model.variable_names}
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 32, 32, 1])
        logits, ends = lenet5(x, num_classes=5)
        variables = tf.compat.v1.trainable_variables()
        assert [v.op.name for v in variables] == list(values)
        with tf.compat.v1.Session() as session:
            session.run([v.assign(values[v.op.name]) for v in variables])
            found = session.run({"logits": logits, **ends}, {x: images()})
    assert close(found["logits"], model(images()))
    assert close(found["conv2"], model.features(images(), "conv2"))
    assert close(tf.function(model)(images()), model(images()))


def test_networks_compose():
    def pair(inputs, *, is_training=False):
        with zoo.variable_scope("left"):
            left, _ = lenet5(inputs, num_classes=3, is_training=is_training)
        right, _ = lenet5(inputs, num_classes=3, is_training=is_training, scope="right")
        return left + right

    model = zoo.Model(pair, input_shape=(32, 32, 1))
    assert model.variable_names[0] == "left/LeNet5/conv1/weights"
    assert "right/logits/biases" in model.variable_names
    assert model(images()).shape == (2, 3)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.zeros((2, 32, 32)), {}, "images\\[..., None\\]"),
        (np.zeros((2, 32, 32, 3)), {}, "3 channels"),
        (np.zeros((2, 64, 64, 1)), {}, "got 64 x 64"),
        (np.zeros((2, 32, 32, 1)), {"variant": "slim"}, "got 32 x 32"),
        (np.zeros((2, 32, 32, 1)), {"variant": "sparse"}, "variant is one of dense, original, slim; got 'sparse'"),
        (np.zeros((2, 32, 32, 1)), {"variant": "original", "pooling": "max"}, "options of the dense variant"),
        (np.zeros((2, 32, 32, 1)), {"variant": "original", "num_classes": 11}, "10 digits; got num_classes=11"),
        (np.zeros((2, 32, 32, 1)), {"pooling": "median"}, "pooling is one of max, average; got 'median'"),
        (np.zeros((2, 32, 32, 1)), {"activation": "elo"}, "the activation .elo. is no name that Keras knows"),
        (np.zeros((2, 32, 32, 1)), {"num_classes": 0}, "num_classes is at least 1"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict | str) else str(value.shape),
)
def test_bad_input(x, options, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        lenet5(tf.constant(x, tf.float32), **options)


def test_a_range_that_is_not_0_to_1_is_warned_about_once(caplog):
    images = np.random.default_rng(0).uniform(0, 255, [4, 32, 32, 1]).astype(np.float32)
    model = zoo.lenet5(seed=1)
    with caplog.at_level("WARNING"):
        model(images / 255)
    assert not [r for r in caplog.records if r.name.startswith("zoo")]
    for use in (lambda m: m(images), lambda m: m.predict(images, verbose=0), lambda m: m.features(images, "conv2")):
        model = zoo.lenet5(seed=1)
        caplog.clear()
        with caplog.at_level("WARNING"):
            use(model)
            use(model)
        said = [r.message for r in caplog.records if r.name.startswith("zoo")]
        assert len(said) == 1
        assert "0..255" in said[0]


def test_wide_integers_hold_bytes():
    images = np.random.default_rng(0).integers(0, 256, [2, 32, 32, 1])
    model = zoo.lenet5(seed=1)
    with pytest.warns(UserWarning, match=r"int64 images are divided by 255\."):
        np.testing.assert_allclose(model(images), model((images / 255).astype(np.float32)), rtol=1e-5, atol=1e-6)


def test_weights_are_refused_under_another_activation():
    with pytest.raises(ValueError, match="made with activation=None"):
        zoo.lenet5(weights="digits", activation="tanh")
