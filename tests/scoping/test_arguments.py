"""Every argument of `get_variable`, in every place, against what TensorFlow's own does in a TF1 graph."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import PLACES, run, to_numpy

import zoo

v1 = tf.compat.v1
ones = v1.ones_initializer()


def doubled(getter, name, *args, **kwargs):
    return getter(name, *args, **kwargs) * 2.0


def narrow_getter(getter, name, shape=None, dtype=None, initializer=None, **_):
    return getter(name, shape=shape, dtype=dtype, initializer=initializer)


def needs_partition_info(shape, dtype, partition_info):
    assert partition_info is None
    return tf.ones(shape + [], dtype)  # TF1 gives a list


# argument -> the ways to give it
ARGUMENTS = {
    "shape": {"list": {"shape": [3]}, "TensorShape": {"shape": tf.TensorShape([3])}, "scalar": {"shape": []}},
    "dtype": {"int32": {"dtype": tf.int32}, "float64": {"dtype": "float64"}, "bool": {"dtype": tf.bool}},
    "initializer": {
        "class": {"initializer": v1.ones_initializer},
        "keras": {"initializer": keras.initializers.Constant(2.0)},
        "ints": {"shape": None, "initializer": [1, 2]},
        "float64": {"shape": None, "initializer": np.full([2], 0.5)},
        "bools": {"shape": None, "initializer": [True, False]},
        "string": {"shape": None, "initializer": "word"},
        "function": {"shape": None, "initializer": lambda: tf.constant([4, 5])},
        "partition_info": {"initializer": needs_partition_info},
    },
    "regularizer": {"sum": {"regularizer": tf.reduce_sum}, "none": {"regularizer": lambda _: None}},
    "trainable": {"no": {"trainable": False}, "yes": {"trainable": True}},
    "collections": {"own": {"collections": ["mine", v1.GraphKeys.GLOBAL_VARIABLES]}},
    "caching_device": {"cpu": {"caching_device": "/cpu:0"}},
    "partitioner": {"two": {"shape": [4, 2], "partitioner": v1.fixed_size_partitioner(2)}},
    "validate_shape": {"yes": {"validate_shape": True}},
    "use_resource": {"yes": {"use_resource": True}},
    "custom_getter": {"doubles": {"custom_getter": doubled}, "narrow": {"custom_getter": narrow_getter}},
    "constraint": {"relu": {"constraint": tf.nn.relu}},
    "synchronization": {"read": {"synchronization": tf.VariableSynchronization.ON_READ, "trainable": False}},
    "aggregation": {
        "v1": {"aggregation": v1.VariableAggregation.MEAN},
        "v2": {"aggregation": tf.VariableAggregation.SUM},
    },
}
CASES = [(argument, way) for argument, ways in ARGUMENTS.items() for way in ways]


def test_the_table_has_every_argument():
    assert set(ARGUMENTS) == set(inspect.signature(v1.get_variable).parameters) - {"name"}


def described(get_variable, given):
    """A network that returns the variable's value, and what is known of it."""
    notes = {}
    keys = v1.GraphKeys

    def network(x):
        with zoo.variable_scope("scope"):
            v = get_variable("v", **given)
        collection = zoo.get_collection if get_variable is not v1.get_variable else v1.get_collection
        notes["losses"] = len(collection(keys.REGULARIZATION_LOSSES))
        notes["trained"] = len(collection(keys.TRAINABLE_VARIABLES)) > 0
        notes["mine"] = len(collection("mine"))
        return tf.identity(v)

    return network, notes


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("argument", "way"), CASES, ids=["-".join(case) for case in CASES])
def test_an_argument_means_what_it_means_in_a_graph(argument, way, place):
    given = {"shape": [3], "initializer": None if argument in ("shape", "dtype") else ones, **ARGUMENTS[argument][way]}
    network, expected = described(v1.get_variable, given)
    want = run("graph", network)
    network, found = described(zoo.get_variable, given)
    got = run(place, network)
    assert got.dtype == want.dtype if hasattr(got, "dtype") else got == want
    assert np.shape(got) == np.shape(want)
    if given["initializer"] is not None or want.dtype in (np.int32, np.bool_):  # the default one draws floats
        np.testing.assert_array_equal(got, want)
    if place in ("model", "function"):  # a model's losses are its own
        expected["losses"] = found["losses"] = 0
    assert found == expected


@pytest.mark.parametrize("given", [{"caching_device": "/cpu:0"}, {"partitioner": v1.fixed_size_partitioner(2)}])
@pytest.mark.parametrize("place", PLACES)
def test_what_only_a_graph_has_is_taken_from_a_scope_too(place, given):
    def network(x):
        with zoo.variable_scope("scope", **given):
            return tf.identity(zoo.get_variable("v", [4, 2], initializer=ones))

    np.testing.assert_array_equal(run(place, network), np.ones([4, 2]))


def test_tensorflows_own_scope_says_what_to_open_instead():
    def network(x, *, is_training=False):
        with v1.variable_scope("scope", caching_device="/cpu:0"):
            return x * v1.get_variable("v", [3])

    with pytest.raises(zoo.ScopeError, match=r"caching_device.*zoo\.variable_scope"), zoo.variable_store():
        network(tf.ones([1, 3]))
    model = zoo.Model(network, input_shape=(3,))  # a trace takes it
    assert tf.function(model)(tf.ones([1, 3])).shape == (1, 3)


def test_a_partitioned_variable_is_one_in_a_model_as_in_a_checkpoint(tmp_path):
    def network(x, *, is_training=False):
        return x @ zoo.get_variable("w", [4, 2], partitioner=v1.fixed_size_partitioner(2))

    with tf.Graph().as_default(), v1.Session() as session:
        network(tf.ones([1, 4]))
        session.run(v1.global_variables_initializer())
        path = v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    model = zoo.Model(network, input_shape=(4,))
    assert [(name, shape) for name, shape in tf.train.list_variables(path)] == [("w", [4, 2])]
    assert model.variable_names == ["w"] and tuple(model.variable("w").shape) == (4, 2)


def test_a_regularizer_of_none_adds_no_loss():
    def network(x, *, is_training=False):
        zoo.get_variable("a", [3], regularizer=lambda v: None)
        return x * zoo.get_variable("b", [3], regularizer=tf.reduce_sum)

    assert len(zoo.Model(network, input_shape=(3,)).losses) == 1


def test_a_stores_losses_are_of_the_values_that_it_has_now():
    store = zoo.variable_store()

    def loss():
        with store, zoo.variable_scope("", reuse=zoo.AUTO_REUSE):
            zoo.get_variable("w", [2], initializer=ones, regularizer=tf.reduce_sum)
            return tf.add_n(zoo.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES))

    assert float(tf.function(loss)()) == 2.0 and float(loss()) == 2.0  # nothing of the trace is left over
    store.variables["w"].assign([3.0, 4.0])
    assert float(loss()) == 7.0 and float(tf.function(loss)()) == 7.0


@pytest.mark.parametrize("place", PLACES)
def test_the_global_step_is_got_or_made(place):
    def network(x):
        first = v1.train.get_or_create_global_step()
        with zoo.variable_scope("inside"):
            assert v1.train.get_or_create_global_step() is first
        assert first.dtype.base_dtype == tf.int64 and not first.trainable
        return tf.identity(first)

    assert run(place, network) == 0
    if place == "model":
        model = zoo.Model(lambda x, *, is_training=False: network(x), input_shape=(3,))
        assert model.variable_names == ["global_step"]
        assert model.variable("global_step").aggregation == "only_first_replica"
        assert model(np.ones([1, 3])) == 0 and tf.function(model)(np.ones([1, 3])) == 0


@pytest.mark.parametrize("scope", ["", "net"])
@pytest.mark.parametrize("place", PLACES)
def test_moving_averages_have_the_names_of_a_graph(place, scope):
    names = {}

    def network(x):
        with zoo.variable_scope(scope):
            w = zoo.get_variable("w", [3], initializer=ones)
            average = tf.train.ExponentialMovingAverage(0.5)
            with tf.control_dependencies([average.apply([w])]):
                names[place] = average.average(w).name
                return average.average(w).read_value()

    np.testing.assert_array_equal(run(place, network), np.ones(3))
    with tf.Graph().as_default():
        here, place = place, "graph"
        network(tf.ones([2, 3]))
    assert names[here] == names["graph"]


# ---- initial values that other variables give ------------------------------------------------------------------------

INITIAL = {  # name -> (initializer of b, what b is)
    "read": (lambda a: lambda: a.read_value(), lambda a: a),
    "product": (lambda a: a * 0.2, lambda a: a * np.float32(0.2)),
    "sum of two reads": (lambda a: lambda: a + a.read_value() * 2.0, lambda a: a + a * 2),
    "rows": (lambda a: lambda: tf.gather(a, [3, 1]), lambda a: a[[3, 1]]),
    "points": (lambda a: lambda: tf.gather_nd(a, [[3, 1]]), lambda a: a[[3], [1]]),
    "of a shape": (
        lambda a: lambda shape, dtype=None, partition_info=None: tf.cast(a.read_value(), dtype) + 1.0,
        lambda a: a + 1,
    ),
    "chosen": (lambda a: lambda: tf.cond(tf.constant(True), lambda: a * 2.0, lambda: a + 0.0), lambda a: a * 2),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", INITIAL)
def test_variables_may_start_from_others_in_one_run(kind, place):
    """In a graph the initializers of one run race; each read of a variable must not depend on who wins."""
    initializer, expected = INITIAL[kind]
    shape = [784, 20] if kind == "of a shape" else None

    def network(x):
        a = zoo.get_variable("a", [784, 20], initializer=v1.random_normal_initializer())
        b = zoo.get_variable("b", shape, initializer=initializer(a))
        return [a.read_value(), b.read_value()]

    for _ in range(4 if place == "graph" else 1):
        a, b = run(place, network)
        np.testing.assert_allclose(b, expected(a), rtol=1e-6)


def test_a_chain_of_initial_values_in_one_run_and_a_partitioned_one():
    with tf.Graph().as_default(), v1.Session() as session:
        parts = zoo.get_variable("parts", [300, 20], partitioner=v1.fixed_size_partitioner(3))
        chain = [zoo.get_variable("c0", initializer=tf.convert_to_tensor(parts) * 1.0)]
        for n in range(1, 11):
            chain.append(zoo.get_variable(f"c{n}", initializer=lambda: chain[-1].read_value()))
        session.run(v1.global_variables_initializer())
        first, *others = session.run([tf.convert_to_tensor(parts), *chain])
        assert all(np.array_equal(first, other) for other in others)


def test_a_trained_variable_gives_its_value_and_not_its_first_one():
    with tf.Graph().as_default(), v1.Session() as session:
        a = zoo.get_variable("a", [3], initializer=v1.random_normal_initializer())
        b = zoo.get_variable("b", initializer=a * 2.0)
        session.run(a.initializer)
        session.run(a.assign([1.0, 2.0, 3.0]))
        session.run(b.initializer)
        np.testing.assert_array_equal(to_numpy(session.run(b)), [2, 4, 6])
