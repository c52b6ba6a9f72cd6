"""`zoo.Model`: what a user of a Keras model expects of a scoped function."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import compiled, data, dense, tiny

import zoo

NAMES = [f"Tiny/{n}" for n in ("fc1/weights", "fc1/biases", "norm/mean", "fc2/weights", "fc2/biases")]


def test_names_and_look_ups():
    model = zoo.Model(tiny, input_shape=(3,))
    assert model.variable_names == NAMES
    assert model.scope_names == ["Tiny", "Tiny/fc1", "Tiny/norm", "Tiny/fc2"]
    assert model.variable("fc1/weights") is model.variable("Tiny/fc1/weights")
    assert model.variable("fc1/weights").value.name == "Tiny/fc1/weights:0"
    assert model.get_layer("fc1") is model.get_layer("Tiny/fc1")
    assert model.get_layer(index=1) is model.get_layer("fc1")
    assert model.count_params() == 3 * 8 + 8 + 8 + 8 * 4 + 4
    with pytest.raises(ValueError, match=r"no variable 'fc1/weight'.*fc1/weights"):
        model.variable("fc1/weight")
    with pytest.raises(ValueError, match="no variable scope 'fc9'"):
        model.get_layer("fc9")


def test_an_ambiguous_name_is_refused():
    def network(x, *, is_training=False):
        with zoo.variable_scope("a"):
            zoo.get_variable("w", [1])
            with zoo.variable_scope("a"):
                return x * zoo.get_variable("w", [1])

    model = zoo.Model(network, input_shape=(1,))
    assert model.variable_names == ["a/w", "a/a/w"]
    with pytest.raises(ValueError, match="more than one variable"):
        model.variable("a/w")


def test_options_reach_the_network_and_unknown_ones_are_refused():
    assert zoo.Model(tiny, units=7, input_shape=(3,)).variable("fc2/biases").shape == (7,)
    with pytest.raises(TypeError, match=r"no option 'unit'.*units"):
        zoo.Model(tiny, unit=7, input_shape=(3,))
    with pytest.raises(TypeError, match="A network is a function"):
        zoo.Model("tiny")


def test_fit_evaluate_predict():
    x, y = data()
    model = compiled(zoo.Model(tiny, seed=1))
    before = model.evaluate(x, y, verbose=0)[0] if model.built else None
    history = model.fit(x, y, epochs=20, verbose=0)
    assert before is None
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert model.predict(x, verbose=0).shape == (16, 4)
    np.testing.assert_allclose(model.predict(x, verbose=0), model(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"predict needs one input or more. Received: an array of shape \(0, 3\)"):
        model.predict(x[:0], verbose=0)


def test_shapes_of_input_and_output_are_those_of_a_keras_model():
    model = zoo.Model(tiny, input_shape=(3,))
    assert model.input_shape == (None, 3) and model.output_shape == (None, 4)
    assert model.feature_model("fc1").input_shape == model.input_shape
    with pytest.raises(ValueError, match="has no variables yet"):
        _ = zoo.Model(tiny).input_shape


def test_build_runs_nothing_and_needs_no_data():
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    assert not model.variable("norm/mean").numpy().any()  # training was traced, not run
    with pytest.raises(ValueError, match="no variables yet"):
        zoo.Model(tiny).variable_names  # noqa: B018


def test_structured_inputs():
    def network(inputs, *, is_training=False):
        return tf.cast(inputs["a"], tf.float32) * zoo.get_variable("w", [2]) + inputs["b"]

    model = zoo.Model(network, input_shape={"a": tf.TensorSpec([None, 2], tf.int32), "b": (2,)})
    assert model({"a": np.ones([5, 2], np.int32), "b": np.ones([5, 2], np.float32)}).shape == (5, 2)


def test_losses_count_each_regularized_variable_once_under_reuse():
    def network(x, *, is_training=False):
        with zoo.variable_scope("s", reuse=zoo.AUTO_REUSE):
            return dense(dense(x, 3, "fc"), 3, "fc")

    model = zoo.Model(network, input_shape=(3,))
    assert len(model.losses) == 1
    np.testing.assert_allclose(model.losses[0], 0.5 * np.sum(model.variable("s/fc/weights").numpy() ** 2), rtol=1e-6)


def test_two_calls_share():
    x, _ = data()
    model = zoo.Model(tiny)
    inputs = keras.Input([3]), keras.Input([3])
    siamese = keras.Model(inputs, model(inputs[0]) - model(inputs[1]))
    assert len(siamese.weights) == 5
    assert not np.any(siamese([x, x]))


def test_end_points_features_and_feature_model():
    x, _ = data()
    model = zoo.Model(tiny, input_shape=(3,))
    points = model.end_points(x)
    assert list(points) == ["fc1"]
    np.testing.assert_allclose(model.features(x, "fc1"), points["fc1"], rtol=1e-6)
    features = model.feature_model("fc1")
    np.testing.assert_allclose(features.predict(x, verbose=0), points["fc1"], rtol=1e-5, atol=1e-6)
    model.variable("fc1/weights").assign(np.zeros([3, 8]))
    assert not features.predict(x, verbose=0).any()
    with pytest.raises(ValueError, match="no end point 'fc9'"):
        model.features(x, "fc9")
    with pytest.raises(ValueError, match="no end point 'fc9'"):
        model.feature_model("fc9")


def test_inside_a_functional_model():
    x, y = data()
    inputs = keras.Input([3])
    whole = compiled(keras.Model(inputs, keras.layers.Dense(4)(zoo.Model(tiny)(inputs))))
    assert len(whole.trainable_weights) == 6
    whole.fit(x, y, verbose=0)


def test_collections_on_a_model():
    def network(x, *, is_training=False):
        zoo.get_variable("w", [3], collections=["mine"])
        zoo.add_to_collection("activations", x)
        return x

    model = zoo.Model(network, input_shape=(3,))
    x, _ = data()
    assert [v.name for v in model.get_collection("mine")] == ["w:0"]
    assert model.get_collection("activations") == []
    np.testing.assert_array_equal(model.get_collection("activations", x)[0], x)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    x, y = data()
    model = compiled(zoo.Model(tiny, dtype=policy))
    model.fit(x, y, verbose=0)
    assert {w.dtype for w in model.weights} == {"float32"}
    assert model(x).dtype == tf.float32
    assert model.end_points(x)["fc1"].dtype == policy.removeprefix("mixed_")


def test_float64():
    x, _ = data()
    model = zoo.Model(tiny, dtype="float64")
    assert model(x.astype(np.float64)).dtype == tf.float64
    assert {w.dtype for w in model.weights} == {"float64"}


def test_xla_gives_the_same():
    x, y = data()
    model = zoo.Model(tiny, seed=1)
    np.testing.assert_allclose(tf.function(model, jit_compile=True)(x), model(x), rtol=1e-5, atol=1e-6)
    compiled(model, jit_compile=True).fit(x, y, verbose=0)


def test_a_new_variable_after_the_build_is_refused():
    def network(x, *, is_training=False):
        return x if is_training else x * zoo.get_variable("late", [3])

    model = zoo.Model(network)
    with pytest.raises(Exception, match=r"late is new.*same variables in training and in inference"):
        model(data()[0])


def test_foreign_code_runs_inside():
    import tf_slim

    x, y = data()

    def tf1(x, *, is_training=False):
        with tf.compat.v1.variable_scope("a"):
            w = tf.compat.v1.get_variable("w", [3, 4])
        return tf.matmul(x, w)

    def slim(x, *, is_training=False):
        x = tf_slim.conv2d(tf.reshape(x, [-1, 1, 3, 1]), 4, [1, 3], scope="conv")
        return tf_slim.fully_connected(tf_slim.flatten(x), 4, activation_fn=None, scope="fc")

    for network, names in ((tf1, ["a/w"]), (slim, ["conv/weights", "conv/biases", "fc/weights", "fc/biases"])):
        for policy in ("float32", "mixed_bfloat16"):
            model = compiled(zoo.Model(network, dtype=policy, seed=1))
            losses = model.fit(x, y, epochs=10, verbose=0).history["loss"]
            assert {w.dtype for w in model.weights} == {"float32"}
            assert model.variable_names == names
            assert losses[-1] < losses[0]


def test_seeds():
    first, again, other = (zoo.Model(tiny, input_shape=(3,), seed=s).get_weights() for s in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    keras.utils.set_random_seed(5)
    a = zoo.Model(tiny, input_shape=(3,)).get_weights()
    keras.utils.set_random_seed(5)
    b = zoo.Model(tiny, input_shape=(3,)).get_weights()
    assert np.array_equal(a[0], b[0])


def test_random_seed_is_new_at_each_run_and_reproducible():
    def network(x, *, is_training=False):
        a, b = zoo.scoping.random_seed(), zoo.scoping.random_seed()
        return x, {"a": tf.identity(a), "b": tf.identity(b), "fixed": zoo.scoping.random_seed(7)}

    def draw(model, n=3):
        runs = [model.end_points(np.ones([1, 1], np.float32), training=True) for _ in range(n)]
        return [[tuple(r[k].numpy()) for k in ("a", "b", "fixed")] for r in runs]

    first = draw(zoo.Model(network, input_shape=(1,), seed=3))
    flat = [s for run in first for s in run]
    assert len(set(flat)) == 9
    assert draw(zoo.Model(network, input_shape=(1,), seed=3)) == first
    other = draw(zoo.Model(network, input_shape=(1,), seed=4))
    assert other[0][0] != first[0][0]
    assert [run[2] for run in other] == [run[2] for run in first]


def test_summary_is_nested_by_scope():
    lines = []
    model = zoo.Model(tiny, input_shape=(3,))
    model.freeze("fc2")
    model.summary(line_length=120, print_fn=lines.append)
    text = "\n".join(lines)
    assert "tiny: 76 parameters" in text
    row = {r.split("│")[1].rstrip(): r for r in text.splitlines() if r.startswith("│")}
    assert "  fc1" in {k[1:] for k in row}
    assert "(None, 8)" in row[next(k for k in row if k.strip() == "fc1")]
    assert row[next(k for k in row if k.strip() == "fc2")].split("│")[-2].strip() == "no"
    assert "Trainable: 32. Not trainable: 44." in text


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_foreign_weight_decay_reaches_the_losses(policy):
    import tf_slim

    def network(x, *, is_training=False):
        with tf_slim.arg_scope([tf_slim.fully_connected], weights_regularizer=tf_slim.l2_regularizer(0.5)):
            x = tf_slim.fully_connected(x, 4, scope="fc1")
        return tf_slim.fully_connected(x, 4, scope="fc2")

    model = zoo.Model(network, input_shape=(3,), dtype=policy)
    assert len(model.losses) == 1
    np.testing.assert_allclose(model.losses[0], 0.25 * np.sum(model.variable("fc1/weights").numpy() ** 2), rtol=1e-6)
    with zoo.variable_store() as store:
        network(tf.ones([2, 3]))
        assert len(zoo.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)) == 1
    assert len(store.variables) == 4
