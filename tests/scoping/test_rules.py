"""TF1's rules of `get_variable` and `variable_scope`, the same in a model, a `tf.function`, a store and a graph."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from scoping.places import PLACES, run

import zoo
from zoo import scoping

ones = tf.compat.v1.ones_initializer()
zeros = tf.compat.v1.zeros_initializer()
every_place = pytest.mark.parametrize("place", PLACES)


def name_of(variable):
    return variable.name.removesuffix(":0")


@every_place
def test_a_second_get_without_reuse_is_refused(place):
    def network(x):
        with zoo.variable_scope("layer"):
            zoo.get_variable("w", [3])
            return x * zoo.get_variable("w", [3])

    with pytest.raises(ValueError, match=r"layer/w already exists"):
        run(place, network)


def test_the_refusal_names_both_places_and_the_cure():
    def network(x, *, is_training=False):
        zoo.get_variable("w", [3])
        return x * zoo.get_variable("w", [3])

    with pytest.raises(zoo.scoping.ScopeError) as caught:
        zoo.Model(network, input_shape=(3,))
    text = str(caught.value)
    assert text.count("test_rules.py:") == 2
    assert "AUTO_REUSE" in text


@every_place
def test_reuse_shares_and_auto_reuse_makes_or_shares(place):
    def network(x):
        with zoo.variable_scope("s"):
            a = zoo.get_variable("w", [3])
        with zoo.variable_scope("s", reuse=True):
            b = zoo.get_variable("w", [3])
        with zoo.variable_scope("t", reuse=zoo.AUTO_REUSE):
            c = zoo.get_variable("w", [3])
            d = zoo.get_variable("w", [3])
        assert a is b
        assert c is d
        assert a is not c
        return x

    run(place, network)


@every_place
def test_a_missing_name_under_reuse_is_refused(place):
    def network(x):
        with zoo.variable_scope("s", reuse=True):
            return x * zoo.get_variable("w", [3])

    with pytest.raises(ValueError, match=r"s/w does not exist"):
        run(place, network)


@every_place
@pytest.mark.parametrize(("shape", "dtype", "what"), [([4], None, "shape"), ([3], tf.float64, "dtype")])
def test_sharing_checks_shape_and_dtype(place, shape, dtype, what):
    def network(x):
        with zoo.variable_scope("s"):
            zoo.get_variable("w", [3])
        with zoo.variable_scope("s", reuse=True):
            return zoo.get_variable("w", shape, dtype)

    with pytest.raises(ValueError, match=f"specified {what}"):
        run(place, network)


@every_place
def test_reuse_true_is_inherited_and_false_cannot_undo_it(place):
    def network(x):
        with zoo.variable_scope("a"), zoo.variable_scope("b"):
            first = zoo.get_variable("w", [3])
        with zoo.variable_scope("a", reuse=True), zoo.variable_scope("b", reuse=False):
            assert zoo.get_variable("w", [3]) is first
        return x

    run(place, network)


@every_place
def test_explicit_auto_reuse_wins_under_true(place):
    def network(x):
        with zoo.variable_scope("a", reuse=True), zoo.variable_scope("b", reuse=zoo.AUTO_REUSE):
            return x * zoo.get_variable("new", [3], initializer=ones)

    np.testing.assert_array_equal(run(place, network), np.ones([2, 3]))


@every_place
def test_true_under_auto_reuse_is_true(place):
    def network(x):
        with zoo.variable_scope("a", reuse=zoo.AUTO_REUSE), zoo.variable_scope("b", reuse=True):
            return x * zoo.get_variable("new", [3])

    with pytest.raises(ValueError, match="does not exist"):
        run(place, network)


@every_place
def test_reuse_must_be_one_of_four(place):
    def network(x):
        with zoo.variable_scope("a", reuse="yes"):
            return x

    with pytest.raises(ValueError, match="reuse"):
        run(place, network)


@every_place
def test_reuse_variables_switches_the_scope(place):
    def network(x):
        with zoo.variable_scope("s") as scope:
            first = zoo.get_variable("w", [3])
            scope.reuse_variables()
            assert zoo.get_variable("w", [3]) is first
            with zoo.variable_scope("inner"), pytest.raises(ValueError, match="does not exist"):
                zoo.get_variable("w", [3])
        return x

    run(place, network)


@every_place
def test_reuse_variables_at_the_root_is_permanent(place):
    def network(x):
        first = zoo.get_variable("w", [3])
        zoo.get_variable_scope().reuse_variables()
        assert zoo.get_variable("w", [3]) is first
        return x

    run(place, network)


@every_place
def test_names_nest_and_a_scope_object_jumps(place):
    def network(x):
        with zoo.variable_scope("a") as a, zoo.variable_scope("b"):
            assert name_of(zoo.get_variable("w", [3])) == "a/b/w"
            with zoo.variable_scope(a) as again:
                assert again.name == "a"
                assert name_of(zoo.get_variable("v", [3])) == "a/v"
            with zoo.variable_scope(a, reuse=True):
                assert name_of(zoo.get_variable("v", [3])) == "a/v"
        return x

    run(place, network)


@every_place
def test_a_scope_object_brings_its_own_settings(place):
    def network(x):
        with zoo.variable_scope("a", initializer=tf.compat.v1.constant_initializer(4.0)) as a:
            pass
        with zoo.variable_scope("b", initializer=tf.compat.v1.constant_initializer(7.0)), zoo.variable_scope(a):
            return zoo.get_variable("w", [3]) + 0.0

    np.testing.assert_array_equal(run(place, network), [4, 4, 4])


@every_place
def test_default_names_count_per_scope_and_start_again_when_reopened(place):
    names = []

    def network(x):
        names.clear()

        def layers():
            for _ in range(3):
                with zoo.variable_scope(None, "conv"):
                    names.append(name_of(zoo.get_variable("w", [1])))

        with zoo.variable_scope("net"):
            layers()
        with zoo.variable_scope("net", reuse=True):
            layers()
        with zoo.variable_scope("net2"):
            layers()
        return x

    run(place, network)
    assert names[:6] == ["net/conv/w", "net/conv_1/w", "net/conv_2/w"] * 2
    assert names[6:] == ["net2/conv/w", "net2/conv_1/w", "net2/conv_2/w"]


@every_place
def test_a_string_scope_counts_for_default_names(place):
    def network(x):
        with zoo.variable_scope("conv"):
            pass
        with zoo.variable_scope(None, "conv") as scope:
            assert scope.name == "conv_1"
        return x

    run(place, network)


def test_default_name_counters_start_again_at_every_call():
    def network(x, *, is_training=False):
        with zoo.variable_scope(None, "conv"):
            return x * zoo.get_variable("w", [3])

    with tf.compat.v1.variable_scope(None, "conv"):  # a scope opened outside does not count
        model = zoo.Model(network, input_shape=(3,))
    model(np.ones([1, 3], np.float32))
    model(np.ones([1, 3], np.float32))
    assert model.variable_names == ["conv/w"]


@every_place
def test_default_name_and_no_name_errors(place):
    def reuse(x):
        with zoo.variable_scope(None, "conv", reuse=True):
            return x

    def nothing(x):
        with zoo.variable_scope(None):
            return x

    with pytest.raises(ValueError, match="reuse=True cannot be used without a name_or_scope"):
        run(place, reuse)
    with pytest.raises((TypeError, ValueError), match="default_name is None"):
        run(place, nothing)


@every_place
def test_initializer_regularizer_and_dtype_are_inherited_and_overridden(place):
    def network(x):
        twos = tf.compat.v1.constant_initializer(2.0)
        with zoo.variable_scope("a", initializer=twos, dtype=tf.float64), zoo.variable_scope("b"):
            w = zoo.get_variable("w", [3])
            v = zoo.get_variable("v", [3], tf.float32, initializer=ones)
        assert w.dtype.base_dtype == tf.float64
        return [w + 0.0, v + 0.0]

    w, v = run(place, network)
    np.testing.assert_array_equal(w, [2, 2, 2])
    np.testing.assert_array_equal(v, [1, 1, 1])


def test_constraint_is_not_inherited():
    def network(x, *, is_training=False):
        with zoo.variable_scope("a", constraint=tf.nn.relu):
            zoo.get_variable("own", [3])
            with zoo.variable_scope("b"):
                return x * zoo.get_variable("inner", [3])

    model = zoo.Model(network, input_shape=(3,))
    assert model.variable("a/own").constraint is not None
    assert model.variable("a/b/inner").constraint is None


@every_place
def test_custom_getters_nest_inner_first(place):
    calls = []

    def getter(tag):
        def get(true_getter, name, *args, **kwargs):
            calls.append((tag, name))
            return true_getter(name, *args, **kwargs) * 2.0

        return get

    def network(x):
        calls.clear()
        with (
            zoo.variable_scope("a", custom_getter=getter("outer")),
            zoo.variable_scope("b", custom_getter=getter("inner")),
        ):
            return zoo.get_variable("w", [3], initializer=ones)

    np.testing.assert_array_equal(run(place, network), [4, 4, 4])
    assert calls == [("inner", "a/b/w"), ("outer", "a/b/w")]


@every_place
def test_constant_and_tensor_initializers(place):
    def network(x):
        a = zoo.get_variable("a", initializer=[1.0, 2.0])
        b = zoo.get_variable("b", initializer=tf.fill([2], 3.0))
        c = zoo.get_variable("c", initializer=lambda: np.float32(5.0))
        return [a + 0.0, b + 0.0, c + 0.0]

    a, b, c = run(place, network)
    np.testing.assert_array_equal([*a, *b, c], [1, 2, 3, 3, 5])


@every_place
def test_an_initial_value_may_be_another_variables(place):
    """`initialized_value` and its modern form."""

    def network(x):
        a = zoo.get_variable("a", [3])
        b = zoo.get_variable("b", initializer=a.initial_value if place == "graph" else lambda: a.read_value())
        return [a + 0.0, b + 0.0]

    if place == "graph":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            a = zoo.get_variable("a", [3], use_resource=False)
            b = zoo.get_variable("b", initializer=a.initialized_value() * 2.0)
            session.run(a.initializer)
            session.run(b.initializer)
            first, second = session.run([a, b])
            np.testing.assert_array_equal(second, first * 2)
        return
    first, second = run(place, network)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("place", ["model", "function", "store"])
def test_a_computed_initial_value_is_lifted(place):
    def network(x):
        a = zoo.get_variable("a", [3])
        b = zoo.get_variable("b", initializer=a * 2.0 + 1.0)
        return [a + 0.0, b + 0.0]

    first, second = run(place, network)
    np.testing.assert_allclose(second, first * 2 + 1)


def test_an_initial_value_from_the_input_is_refused():
    def network(x, *, is_training=False):
        return zoo.get_variable("a", initializer=tf.reduce_mean(x, 0))

    with pytest.raises(ValueError, match="depends on the network's input"):
        zoo.Model(network, input_shape=(3,))


@every_place
def test_a_constant_initializer_forbids_a_shape(place):
    with pytest.raises(ValueError, match="If initializer is a constant, do not specify shape"):
        run(place, lambda x: zoo.get_variable("a", [2], initializer=[1.0, 2.0]))


@every_place
def test_initializer_type_must_match_the_dtype(place):
    with pytest.raises(ValueError, match="explicit dtype"):
        run(place, lambda x: zoo.get_variable("a", dtype=tf.float64, initializer=tf.constant([1.0, 2.0])))


@every_place
def test_a_shape_is_needed_without_a_constant(place):
    with pytest.raises(ValueError, match="shape"):
        run(place, lambda x: zoo.get_variable("a"))
    with pytest.raises(ValueError, match="shape"):
        run(place, lambda x: zoo.get_variable("a", [None, 3]))


@every_place
def test_default_initializers_by_type(place):
    def network(x):
        a = zoo.get_variable("a", [1000, 2])
        b = zoo.get_variable("b", [3], tf.int32)
        c = zoo.get_variable("c", [3], tf.bool)
        return [a + 0.0, b + 0, tf.identity(c)]

    a, b, c = run(place, network)
    limit = np.sqrt(6 / 1002)
    assert 0.9 * limit < np.abs(a).max() <= limit
    assert not b.any()
    assert not c.any()
    with pytest.raises(ValueError, match="initializer for variable"):
        run(place, lambda x: zoo.get_variable("a", [3], tf.complex64))


@every_place
def test_trainable_false(place):
    def network(x):
        assert zoo.get_variable("frozen", [3], trainable=False).trainable is False
        assert zoo.get_variable("free", [3]).trainable is True
        return x

    run(place, network)


@every_place
def test_the_empty_scope_reaches_any_variable_by_its_full_name(place):
    def network(x):
        with zoo.variable_scope("foo"), zoo.variable_scope("bar"):
            v = zoo.get_variable("v", [3])
        with zoo.variable_scope("", reuse=True):
            assert zoo.get_variable("foo/bar/v", [3]) is v
        return x

    run(place, network)


@every_place
def test_collections(place):
    keys = tf.compat.v1.GraphKeys

    def network(x):
        w = zoo.get_variable("w", [3])
        fixed = zoo.get_variable("fixed", [3], trainable=False)
        local = zoo.get_variable("local", [3], collections=[keys.LOCAL_VARIABLES], trainable=False, initializer=ones)
        mine = zoo.get_variable("mine", [3], collections=["mine", keys.GLOBAL_VARIABLES])
        zoo.add_to_collection("seen", x)
        assert [v is w or v is mine for v in zoo.get_collection(keys.TRAINABLE_VARIABLES)] == [True] * 2
        assert [v is w or v is fixed or v is mine for v in zoo.get_collection(keys.GLOBAL_VARIABLES)] == [True] * 3
        assert zoo.get_collection(keys.LOCAL_VARIABLES)[0] is local
        assert zoo.get_collection("mine")[0] is mine
        assert len(zoo.get_collection("seen")) == 1
        return local + 0.0

    np.testing.assert_array_equal(run(place, network), [1, 1, 1])


@every_place
def test_assign_add_under_control_dependencies_is_read_after_it(place):
    def network(x):
        v = zoo.get_variable("v", [], initializer=zeros, trainable=False)
        with tf.control_dependencies([v.assign_add(1.0)]):
            return v.read_value()

    assert run(place, network) == 1.0


@every_place
def test_device_blocks_place_what_is_inside(place):
    def network(x):
        with tf.device("/CPU:1"):
            v = zoo.get_variable("v", [3], initializer=ones)
            y = x * v
        assert "CPU:1" in v.device
        if not tf.executing_eagerly():
            assert "CPU:1" in y.device
        return y

    run(place, network)


@pytest.mark.parametrize("place", ["graph", "function"])
def test_scopes_must_close_in_order(place):
    def network(x):
        outer = zoo.variable_scope("a")
        inner = zoo.variable_scope("b")
        outer.__enter__()
        inner.__enter__()
        try:
            with pytest.raises(RuntimeError, match="Improper nesting"):
                outer.__exit__(None, None, None)
        finally:
            inner.__exit__(None, None, None)
            outer.__exit__(None, None, None)
        return x

    run(place, network)


@pytest.mark.parametrize(
    "call",
    [
        lambda: zoo.get_variable("w", [3]),
        lambda: zoo.variable_scope("s"),
        lambda: zoo.add_to_collection("c", 1),
        lambda: zoo.get_collection("c"),
        lambda: tf.function(lambda: zoo.get_variable("w", [3]))(),
    ],
)
def test_outside_everything_an_error_says_what_to_wrap(call):
    with pytest.raises(RuntimeError, match=r"zoo\.Model\(network\).*variable_store.*tf\.Graph"):
        call()


def test_op_names_are_unique_while_variable_names_are_shared():
    with tf.Graph().as_default():
        with zoo.variable_scope("tower") as scope:
            assert tf.identity(1.0, "x").name == "tower/x:0"
        with zoo.variable_scope("tower", reuse=zoo.AUTO_REUSE):
            assert tf.identity(1.0, "x").name == "tower_1/x:0"
            assert zoo.get_variable("w", [1]).name == "tower/w:0"
        with tf.name_scope(scope.original_name_scope):
            assert tf.identity(1.0, "y").name == "tower/y:0"
        with zoo.variable_scope("quiet", auxiliary_name_scope=False):
            assert tf.identity(1.0, "z").name == "z:0"
            assert zoo.get_variable("w", [1]).name == "quiet/w:0"


def test_partitioners_split_in_a_graph():
    partitioner = tf.compat.v1.fixed_size_partitioner(2)
    with tf.Graph().as_default():
        with zoo.variable_scope("s", partitioner=partitioner):
            w = zoo.get_variable("w", [4, 2])
            zoo.get_variable("scalar", [])
        assert [v.name for v in w] == ["s/w/part_0:0", "s/w/part_1:0"]
        other = zoo.variable_scope("s", partitioner=tf.compat.v1.fixed_size_partitioner(4), reuse=True)
        with other, pytest.raises(ValueError, match="partitions"):
            zoo.get_variable("w", [4, 2])


@every_place
def test_the_image_filter_of_the_guide(place):
    """Two conv_relu scopes, applied to two images: four variables, shared."""
    made = set()

    def conv_relu(x, kernel_shape, bias_shape):
        weights = zoo.get_variable("weights", kernel_shape, initializer=tf.compat.v1.random_normal_initializer())
        biases = zoo.get_variable("biases", bias_shape, initializer=tf.compat.v1.constant_initializer(0.0))
        made.update((name_of(weights), name_of(biases)))
        return tf.nn.relu(tf.nn.conv2d(x, weights, [1, 1, 1, 1], "SAME") + biases)

    def my_image_filter(images):
        with zoo.variable_scope("conv1"):
            relu1 = conv_relu(images, [5, 5, 32, 32], [32])
        with zoo.variable_scope("conv2"):
            return conv_relu(relu1, [5, 5, 32, 32], [32])

    def twice(images):
        with zoo.variable_scope("image_filters") as scope:
            result1 = my_image_filter(images)
            with pytest.raises(ValueError, match="image_filters/conv1/weights already exists"):
                my_image_filter(images)
            scope.reuse_variables()
            return [result1, my_image_filter(images)]

    a, b = run(place, twice, np.random.default_rng(0).normal(size=[1, 8, 8, 32]).astype(np.float32))
    np.testing.assert_array_equal(a, b)
    assert made == {f"image_filters/conv{i}/{v}" for i in (1, 2) for v in ("weights", "biases")}


@every_place
def test_variables_passed_explicitly(place):
    def layer(x, weights):
        return x * weights

    def network(x):
        w = zoo.get_variable("w", [3], initializer=ones)
        return layer(layer(x, w), w)

    np.testing.assert_array_equal(run(place, network), np.ones([2, 3]))


def test_the_store_keeps_what_it_has_and_counts_regularization_once():
    store = zoo.variable_store(seed=3)

    def layer():
        return zoo.get_variable("w", [2], initializer=ones, regularizer=lambda w: tf.reduce_sum(w))

    with store:
        layer()
    with store, zoo.variable_scope("", reuse=True):
        assert zoo.get_variable("w", [2]) is store.variables["w"]
        layer()
        assert len(zoo.get_collection(tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES)) == 1
    with store, pytest.raises(ValueError, match="already exists"):
        layer()
    assert [v.name for v in store.trainable_variables] == ["w:0"]


def test_no_regularizer_disables_the_scopes():
    def network(x, *, is_training=False):
        with zoo.variable_scope("a", regularizer=lambda w: tf.reduce_sum(w)):
            zoo.get_variable("w", [2], initializer=ones)
            zoo.get_variable("v", [2], initializer=ones, regularizer=scoping.no_regularizer)
        return x

    model = zoo.Model(network, input_shape=(3,))
    assert float(tf.add_n(model.losses)) == 2.0


def test_a_name_asked_for_twice_in_a_later_run_only_has_both_places():
    def network(inputs, *, is_training=False):
        weights = zoo.get_variable("w", [3, 2])
        if not is_training:
            zoo.get_variable("w", [3, 2])
        return inputs @ weights

    first = network.__code__.co_firstlineno + 1
    model = zoo.Model(network, input_shape=(3,))  # is built with is_training=True
    here = re.escape(f"{Path(__file__).name}:")
    with pytest.raises(zoo.ScopeError, match=rf"made at .*{here}{first} and is asked for again at .*{here}{first + 2}"):
        model(tf.ones([1, 3]))
