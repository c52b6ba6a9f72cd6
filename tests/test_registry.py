"""The registry: from names and options to models, and errors that name what was meant."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.registry import Net, get_net, index, made_index, register_net
from zoo.scoping import NetSpec


def tiny(inputs, width=2, *, is_training=False, scope="Tiny", offset=0.0):
    """Sums and scales: a network with one variable."""
    with zoo.variable_scope(scope):
        weights = zoo.get_variable("weights", [inputs.shape[-1], width])
    return tf.matmul(inputs, weights) + offset, {"out": inputs}


@pytest.fixture
def net(monkeypatch):
    monkeypatch.setattr("zoo.registry._NETS", {})
    return register_net(NetSpec(name="tiny-net", paper="none", input_size=(3,), num_classes=2))(tiny)


def test_a_net_builds_a_model_or_applies_the_function(net):
    assert isinstance(net, Net)
    assert net.network is tiny
    assert net.spec.builder is net
    for model in (net(), net(2), net(np.int64(2)), net(width=2), zoo.create("tiny-net")):
        assert isinstance(model, zoo.Model)
        assert model.variable_names == ["Tiny/weights"]
        assert model.variable("weights").shape == (3, 2)
        assert model.name == "tiny-net"
    assert net(5, name="mine", input_shape=(4,)).variable("weights").shape == (4, 5)
    with zoo.variable_store():
        output, ends = net(np.ones((1, 3), "float32"), 4, offset=1.0)
    assert output.shape == (1, 4)
    assert list(ends) == ["out"]


def test_builder_options_reach_the_model(net):
    first, again, other = net(seed=1), net(seed=1), net(seed=2)
    assert np.array_equal(first.variable("weights"), again.variable("weights"))
    assert not np.array_equal(first.variable("weights"), other.variable("weights"))
    assert net(dtype="mixed_bfloat16").compute_dtype == "bfloat16"


def test_the_input_may_depend_on_the_options(monkeypatch):
    monkeypatch.setattr("zoo.registry._NETS", {})
    inputs = lambda options: (options.get("width", 2) * 10,)  # noqa: E731
    spec = NetSpec(name="wide", paper="none", input_size=(20,), num_classes=None, inputs=inputs)
    assert register_net(spec)(tiny)(width=3).variable("weights").shape == (30, 3)


def test_unknown_options_name_the_nearest(net):
    with pytest.raises(ValueError, match="tiny-net has no option 'widht'; did you mean 'width'"):
        net(widht=3)
    with pytest.raises(ValueError, match="options are dtype, input_shape, name, offset, scope, seed, weights, width"):
        net(zzzzzz=3)
    with pytest.raises(TypeError, match="twice"):
        net(3, width=3)


def test_a_symbolic_keras_input_is_told_to_use_the_model(net):
    import keras

    inputs = keras.Input((3,))
    with pytest.raises(TypeError, match=r"write zoo.tiny-net\(...\)\(inputs\)"):
        net(inputs)
    assert keras.Model(inputs, net()(inputs)).output_shape == (None, 2)


def test_list_and_get(net, monkeypatch):
    for name in ("tiny100", "tiny9", "other"):
        register_net(NetSpec(name=name, paper="none", input_size=(3,), num_classes=2))(tiny)
    monkeypatch.setattr("zoo.registry.index", dict)
    assert zoo.list_nets("tiny*") == ["tiny9", "tiny100", "tiny-net"]
    assert zoo.list_nets("nothing*") == []
    assert get_net("tiny9").spec.name == "tiny9"
    with pytest.raises(ValueError, match="There is no network 'tiny-nett'; did you mean 'tiny-net'"):
        zoo.create("tiny-nett")
    with pytest.raises(ValueError, match="there are other, tiny-net, tiny100, tiny9"):
        zoo.create("qqqqqq")


def test_a_name_belongs_to_one_function(net):
    def other(inputs, *, is_training=False):
        return inputs

    register_net(NetSpec(name="tiny-net", paper="none", input_size=(3,), num_classes=2))(tiny)
    with pytest.raises(ValueError, match=r"'tiny-net' is .*tiny already"):
        register_net(NetSpec(name="tiny-net", paper="none", input_size=(3,), num_classes=2))(other)


def test_the_index_says_what_is_registered():
    assert index() == made_index()  # `make index` writes it anew


def test_making_one_network_imports_its_module_only():
    text = "import sys, zoo; zoo.create('lenet5'); print([m for m in sys.modules if m.startswith('zoo.nets.')])"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout.strip().endswith("['zoo.nets.lenet5']")


def test_lenet5_is_listed_and_public():
    assert "lenet5" in zoo.list_nets("le*")
    assert zoo.lenet5 is get_net("lenet5")
    assert zoo.lenet5.__doc__ == zoo.lenet5.network.__doc__


@pytest.mark.parametrize("name", zoo.list_nets())
def test_options_of_keras_applications_are_answered(name):
    net = get_net(name)
    headless = net.spec.headless
    said = ", ".join(f"{key}={value!r}" for key, value in headless.items()) if headless else "has a classifier always"
    for option, answer in {
        "include_top": said,
        "classes": "write num_classes" if "num_classes" in net.options() else "no option 'classes'",
        "pooling": r"model\.bottleneck",
        "input_tensor": rf"zoo\.{name}\(\.\.\.\)\(inputs\)",
        "classifier_activation": "networks return logits",
    }.items():
        if option not in net.options():
            with pytest.raises(ValueError, match=f"{name} has no option '{option}'.*{answer}|no option 'classes'"):
                net(**{option: False})
