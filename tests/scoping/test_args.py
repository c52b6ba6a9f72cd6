"""arg_scope: inheritance, re-entry, explicit arguments, errors at entry, threads."""

import functools
import threading

import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping
from zoo.scoping.args import (
    add_arg_scope,
    arg_scope,
    arg_scope_func_key,
    arg_scoped_arguments,
    current_arg_scope,
    has_arg_scope,
)


@add_arg_scope
def dense(x, num_outputs, activation=None, *, bias=True):
    """Doc."""
    outputs = [x, num_outputs]
    outputs += [activation, bias]
    return tuple(outputs)


@add_arg_scope
def anything(*args, **kwargs):
    return args, kwargs


def test_scope_sets_defaults_and_ends():
    with arg_scope([dense], activation="relu", bias=False):
        assert dense(1, 2) == (1, 2, "relu", False)
    assert dense(1, 2) == (1, 2, None, True)


def test_explicit_argument_wins_by_keyword_and_by_position():
    with arg_scope([dense], num_outputs=20, activation="relu"):
        assert dense("x") == ("x", 20, "relu", True)
        assert dense("x", 30) == ("x", 30, "relu", True)
        assert dense("x", 30, "tanh") == ("x", 30, "tanh", True)
        assert dense("x", num_outputs=30, activation=None) == ("x", 30, None, True)


def test_inner_scope_overrides_argument_by_argument():
    with arg_scope([dense, anything], activation="relu"), arg_scope([dense], bias=False):
        assert dense(1, 2) == (1, 2, "relu", False)
        assert anything(1) == ((1,), {"activation": "relu"})
        with arg_scope((dense,), activation="tanh"):
            assert dense(1, 2) == (1, 2, "tanh", False)
        assert dense(1, 2) == (1, 2, "relu", False)


def test_dictionary_replaces_the_scope_and_empty_one_clears_it():
    with arg_scope([dense], activation="relu") as stored:
        assert stored == {arg_scope_func_key(dense): {"activation": "relu"}} == current_arg_scope()
    with arg_scope([dense, anything], bias=False):
        with arg_scope(stored) as again:
            assert again == stored
            assert dense(1, 2) == (1, 2, "relu", True)
            assert anything() == ((), {})
        with arg_scope({}) as empty:
            assert empty == {}
            assert dense(1, 2) == (1, 2, None, True)
        with arg_scope([]) as same:
            assert same == current_arg_scope()
            assert len(same) == 2
    assert current_arg_scope() == {}


def test_changing_a_yielded_scope_changes_nothing_active():
    with arg_scope([dense], bias=False) as stored:
        stored.clear()
        current_arg_scope().clear()
        assert dense(1, 2) == (1, 2, None, False)


def test_scope_made_within_a_scope_inherits():
    with arg_scope([dense], bias=False), arg_scope([dense], activation="relu") as stored:
        pass
    with arg_scope(stored):
        assert dense(1, 2) == (1, 2, "relu", False)


@pytest.mark.parametrize(
    ("error", "pattern", "ops", "arguments"),
    [
        (TypeError, "list or tuple of functions.*got function.*in a list", dense, {}),
        (TypeError, "got int", 3, {}),
        (TypeError, "dense has no argument 'activaton'.*activation", [dense], {"activaton": 1}),
        (ValueError, "decorated with @add_arg_scope.*decorate it", [len], {}),
        (ValueError, "activation cannot be given with it", {}, {"activation": 1}),
        (TypeError, "one dictionary of arguments per function, got int", {"conv": 1}, {}),
    ],
)
def test_mistakes_are_refused_at_entry(error, pattern, ops, arguments):
    with pytest.raises(error, match=pattern):
        arg_scope(ops, **arguments)


def test_a_refused_or_failing_scope_leaves_nothing_behind():
    with pytest.raises(TypeError), arg_scope([dense], bias=False), arg_scope([dense], nothing=1):
        pass
    with pytest.raises(RuntimeError, match="inside"), arg_scope([dense], bias=False):
        raise RuntimeError("inside")
    assert current_arg_scope() == {}


def test_partial_alias_takes_the_scope_of_its_function():
    relu = functools.partial(dense, activation="relu")
    with arg_scope([dense], activation="tanh", bias=False):
        assert relu(1, 2) == (1, 2, "relu", False)
    with arg_scope([relu], bias=False):
        assert dense(1, 2) == (1, 2, None, False)
    assert has_arg_scope(relu)
    assert not has_arg_scope(len)


def test_shared_entry_skips_the_names_a_function_lacks():
    @functools.partial(add_arg_scope, shares=dense)
    def narrow(x, activation=None):
        return x, activation

    with arg_scope([dense], activation="relu", bias=False):
        assert narrow(1) == (1, "relu")
    with arg_scope([narrow], activation="tanh"):
        assert dense(1, 2) == (1, 2, "tanh", True)
    with pytest.raises(TypeError, match="no argument 'bias'"):
        arg_scope([narrow], bias=False)


def test_introspection_reads_the_signature():
    assert arg_scoped_arguments(dense) == ("activation", "bias")
    assert dense.__doc__ == "Doc."
    assert dense.__name__ == "dense"
    with pytest.raises(ValueError, match="decorate it"):
        arg_scoped_arguments(len)
    with pytest.raises(ValueError, match="decorate it"):
        arg_scope_func_key(len)


def test_functions_with_the_same_name_have_scopes_of_their_own():
    first, second = (add_arg_scope(lambda a=0, k=k: (k, a)) for k in range(2))
    with arg_scope([first], a=5):
        assert first() == (0, 5)
        assert second() == (1, 0)


def test_works_as_a_decorator_and_nests_in_itself():
    scope = arg_scope([dense], bias=False)

    @scope
    def network(depth=0):
        return network(depth - 1) if depth else dense(1, 2)

    assert network(3) == (1, 2, None, False)
    assert dense(1, 2) == (1, 2, None, True)


def test_threads_do_not_see_each_other():
    seen, entered, leave = {}, threading.Barrier(2), threading.Barrier(2)

    def work(name):
        with arg_scope([dense], activation=name):
            entered.wait()
            seen[name] = dense(1, 2)[2]
            leave.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    with arg_scope([dense], bias=False):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == {"a": "a", "b": "b"}


def test_a_model_keeps_the_scope_it_was_made_in_and_ignores_its_callers():
    def network(x, is_training=False):
        return layers.fully_connected(x, 4, scope="fc")

    with arg_scope([layers.fully_connected], biases_initializer=None):
        model = scoping.Model(network, input_shape=(3,))
    assert model.variable_names == ["fc/weights"]
    x = tf.ones([2, 3])
    with arg_scope([layers.fully_connected], activation_fn=None):
        assert np.all(model(x) == np.maximum(x @ model.variable("fc/weights").value, 0))
    with pytest.raises(ValueError, match="Open the arg_scope inside the network"):
        model.get_config()
