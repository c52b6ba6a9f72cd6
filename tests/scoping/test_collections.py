"""TF1's own functions see the collections of the run: in models, functions and stores as in a graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import PLACES, run

import zoo
from zoo.parallel.builders import CallingTowers
from zoo.training import Trainer

V1 = tf.compat.v1
KEYS = V1.GraphKeys


def names(variables):
    return sorted(v.name.partition(":")[0] for v in variables)


def slim_names(**how):
    import zoo.slim as slim

    return names(slim.get_variables(**how))


def changed_in_place():
    V1.add_to_collection("c", 1)
    V1.add_to_collections(["c", "d"], 2)
    ref = V1.get_collection_ref("c")
    ref.append(3)
    ref.remove(1)
    return V1.get_collection("c"), V1.get_collection("d")


def cleared():
    V1.add_to_collection("c", 1)
    V1.get_default_graph().clear_collection("c")
    V1.get_default_graph().clear_collection(KEYS.TRAINABLE_VARIABLES)
    return V1.get_collection("c"), V1.trainable_variables()


def of_scope():
    with V1.variable_scope("net/b") as scope:
        return names(scope.trainable_variables()), names(scope.global_variables())


def losses_added():
    V1.losses.add_loss(tf.constant(2.0))
    V1.losses.mean_squared_error(tf.zeros([2]), tf.ones([2]))
    return [float_of(loss) for loss in V1.losses.get_losses()], float_of(V1.losses.get_total_loss())


def slim_losses():
    import zoo.slim as slim

    slim.losses.add_loss(tf.constant(2.0))
    return [float_of(loss) for loss in slim.losses.get_losses()], float_of(slim.losses.get_total_loss())


def keys_in_use():
    V1.add_to_collection("c", 1)
    return "c" in V1.get_default_graph().get_all_collection_keys()


QUESTIONS = {
    "trainable": lambda: names(V1.trainable_variables()),
    "global": lambda: names(V1.global_variables()),
    "local": lambda: names(V1.local_variables()),
    "model": lambda: names(V1.model_variables()),
    "by scope": lambda: names(V1.get_collection(KEYS.GLOBAL_VARIABLES, scope="net/b")),
    "own collection": lambda: names(V1.get_collection("mine")),
    "scope object": of_scope,
    "changed": changed_in_place,
    "cleared": cleared,
    "keys": keys_in_use,
    "regularization": lambda: [float_of(loss) for loss in V1.losses.get_regularization_losses()],
    "sum of regularization": lambda: float_of(V1.losses.get_regularization_loss()),
    "losses": losses_added,
    "slim.losses": slim_losses,
    "slim.get_variables": lambda: slim_names(scope="net/b"),
    "slim.get_variables, suffix": lambda: slim_names(suffix="w"),
}


def float_of(loss):
    """What a loss is worth, where that is known."""
    value = tf.get_static_value(tf.convert_to_tensor(loss))  # of a lazy one as TF1 keeps them, too
    return loss.dtype.name if value is None else float(value)


def variables():
    """Makes variables by TF1's own function."""
    with V1.variable_scope("net", reuse=V1.AUTO_REUSE):
        ones = V1.ones_initializer()
        V1.get_variable("w", [2], initializer=ones, regularizer=lambda v: tf.reduce_sum(v) * 0.5)
        V1.get_variable("fixed", [2], trainable=False, collections=[KEYS.GLOBAL_VARIABLES, KEYS.MODEL_VARIABLES])
        V1.get_variable("local", [2], collections=[KEYS.LOCAL_VARIABLES], trainable=False)
        with V1.variable_scope("b"):
            return V1.get_variable("w", [2], initializer=ones, collections=["mine", KEYS.GLOBAL_VARIABLES])


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_place_answers_as_a_graph(question):
    def network(x):
        variables()
        answers.append(QUESTIONS[question]())
        return x

    def kinds(answer):  # whether a number is known while a function is traced is TensorFlow's affair
        return tf.nest.map_structure(lambda a: "number" if isinstance(a, float) or a == "float32" else a, answer)

    found = {}
    for place in PLACES:
        answers = []
        run(place, network)
        found[place] = answers
    expected = kinds(found["graph"][0])
    assert expected != []
    for place, answers in found.items():
        assert [kinds(answer) for answer in answers] == [expected] * len(answers), place


def test_regularization_losses_have_their_values():
    def network(x, *, is_training=False):
        variables()
        return x + tf.add_n(V1.get_collection(KEYS.REGULARIZATION_LOSSES)) + V1.losses.get_regularization_loss()

    np.testing.assert_array_equal(zoo.Model(network)(np.zeros([1, 1], np.float32)), [[2]])
    with zoo.variable_store():
        np.testing.assert_array_equal(network(np.zeros([1, 1], np.float32)), [[2]])


def summed(x, *, is_training=False):
    """Adds to a collection, and its output is all that is in there."""
    with V1.variable_scope("s", reuse=V1.AUTO_REUSE):
        V1.get_variable("w", [1])
    V1.add_to_collection("sums", tf.reduce_sum(x))
    V1.losses.add_loss(tf.reduce_sum(x))
    return x[:, :1] + tf.add_n(V1.get_collection("sums")) + tf.add_n(V1.losses.get_losses())


def test_equal_calls_give_equal_answers():
    x = tf.ones([3, 4])
    model, store = zoo.Model(summed), zoo.variable_store()

    def stored(x):
        with store:
            return summed(x)

    def nested(x, *, is_training=False):
        V1.add_to_collection("sums", 100.0)
        return inner(x)

    inner = zoo.Model(summed, input_shape=(4,))
    traced, traced_store = tf.function(model), tf.function(stored)
    model(x)
    for call in (model, traced, stored, traced_store, model.end_points, model.predict, zoo.Model(nested)):
        answers = [call(x) for _ in range(4)]
        if call != model.end_points:
            assert [np.asarray(a).tolist() for a in answers] == [[[25.0]] * 3] * 4
    assert V1.get_collection("sums") == V1.get_collection(KEYS.LOSSES) == []


def test_nothing_of_a_run_is_left_after_an_error():
    def network(x, *, is_training=False):
        V1.add_to_collection("c", x)
        raise KeyError("stop")

    with pytest.raises(KeyError), zoo.variable_store():
        network(1)
    assert V1.get_collection("c") == []
    V1.add_to_collection("outer", 1)
    with zoo.variable_store():
        assert V1.get_collection("outer") == []
    assert V1.get_collection("outer") == [1]
    V1.get_default_graph().clear_collection("outer")
    assert "outer" not in V1.get_default_graph().get_all_collection_keys()


def decayed(x, *, is_training=False):
    """Weight decay as in TensorFlow's CIFAR-10 guide."""
    w = V1.get_variable("w", [1], initializer=V1.ones_initializer())
    V1.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(w), 0.5, name="weight_loss"))
    V1.add_to_collection(KEYS.REGULARIZATION_LOSSES, 3.0 * tf.reduce_sum(w))
    V1.get_variable("v", [1], initializer=V1.ones_initializer(), regularizer=lambda v: 7.0 * tf.reduce_sum(v))
    V1.losses.get_regularization_losses()  # which asks for that of v, and adds nothing
    return x * w


def test_losses_in_collections_are_the_models():
    x = np.zeros([4, 1], np.float32)
    model = zoo.Model(decayed, input_shape=(1,))
    for _ in range(2):
        model(x, training=True)
        assert sorted(float(loss) for loss in model.losses) == [0.25, 3.0, 7.0]
    model.outputs_and_end_points(x, True)
    model.outputs_and_end_points(x, True)
    assert sorted(float(loss) for loss in model.losses) == [0.25, 3.0, 7.0]
    outer = keras.Sequential([keras.Input((1,)), model])
    outer(x)
    assert sorted(float(loss) for loss in outer.losses) == [0.25, 3.0, 7.0]
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(x, x, verbose=0, batch_size=4)
    np.testing.assert_allclose(model.variable("w"), [1 - 0.1 * (0.5 + 3)], rtol=1e-6)
    np.testing.assert_allclose(model.variable("v"), [1 - 0.1 * 7], rtol=1e-6)


def test_the_trainer_trains_on_losses_in_collections():
    x = np.zeros([4, 1], np.float32)
    model = zoo.Model(decayed, input_shape=(1,))
    trainer = Trainer(model, optimizer=keras.optimizers.SGD(0.1), loss="mse", metrics=[], global_batch=4)
    trainer.fit((x, x), steps=1)
    np.testing.assert_allclose(model.variable("w"), [1 - 0.1 * (0.5 + 3)], rtol=1e-6)
    found = trainer.evaluate((x, x))["regularization_loss"]  # of what is known outside a batch
    np.testing.assert_allclose(found, 7 * (1 - 0.1 * 7), rtol=1e-6)


def test_update_ops_of_foreign_code_are_seen_and_run():
    def network(x, *, is_training=False):
        mean = V1.get_variable("mean", [1], trainable=False, initializer=V1.zeros_initializer())
        if is_training:
            V1.add_to_collection(KEYS.UPDATE_OPS, V1.assign(mean, [5.0]))
        with tf.control_dependencies([u for u in V1.get_collection(KEYS.UPDATE_OPS) if not hasattr(u, "numpy")]):
            return tf.identity(x) + float(len(V1.get_collection(KEYS.UPDATE_OPS)))

    for compiled in (False, True):
        model = zoo.Model(network, input_shape=(1,))
        call = tf.function(model) if compiled else model
        assert [float(call(tf.zeros([1, 1]), training=True)[0, 0]) for _ in range(2)] == [1, 1]
        np.testing.assert_array_equal(model.variable("mean"), [5])


def test_towers_refuse_what_they_cannot_train():
    model = zoo.Model(decayed, input_shape=(1,))
    model.towers = CallingTowers(["CPU:0", "CPU:1"])
    x = np.zeros([4, 1], np.float32)
    model(x)
    with pytest.raises(ValueError, match="puts losses into TF1's collections"):
        model(x, training=True)
