"""Every registered network keeps every contract: counts, the four places, files, XLA, mixed precision, two devices."""

from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo


@dataclass(frozen=True)
class Descriptor:
    """A registered network in a small configuration, and a batch for it."""

    net: str
    options: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = (32, 32, 1)
    tolerance: float = 1e-4  # between compilers; deep networks in float32 differ a little more

    def build(self, **kwargs: Any) -> zoo.Model:
        return zoo.create(self.net, input_shape=self.shape, seed=1, **self.options, **kwargs)

    def batch(self, n: int = 4) -> np.ndarray:
        return np.random.default_rng(0).uniform(-1, 1, [n, *self.shape]).astype(np.float32)


DESCRIPTORS = [
    Descriptor("lenet5"),
    Descriptor("lenet5", {"variant": "original"}),
    Descriptor("lenet5", {"variant": "slim"}, (28, 28, 1)),
    Descriptor("inception_v3", {"num_classes": 4, "depth_multiplier": 0.1, "aux_logits": False}, (75, 75, 3)),
    Descriptor("densenet", {"num_classes": 4, "block_config": (2, 2), "growth_rate": 4}, (32, 32, 3)),
    Descriptor("densenet_cifar", {"num_classes": 4, "depth": 10, "growth_rate": 4}, (32, 32, 3)),
    Descriptor("cifarnet", {"num_classes": 4}, (24, 24, 3)),
    Descriptor("row_classifier", {"num_classes": 4, "hidden": 8}, (28, 28, 1)),
]
# Networks whose inputs are not images have contracts of their own in tests/nets.
NOT_IMAGES = {"word_lm", "sequence_tagger"}
# The same function as densenet, in the paper's sizes.
PRESETS = {f"densenet{depth}" for depth in (121, 161, 169, 201, 264)}


def known():
    names = set(zoo.list_nets())
    return [
        pytest.param(d, id=f"{d.net}-{'-'.join(map(str, d.options.values()))}") for d in DESCRIPTORS if d.net in names
    ]


every_net = pytest.mark.parametrize("d", known())
# What takes long for Inception-v3, and shows nothing of it that the others do not.
most_nets = pytest.mark.parametrize(
    "d", [pytest.param(*p.values, id=p.id, marks=pytest.mark.slow if "inception" in p.id else ()) for p in known()]
)


def outputs_of(model, x):
    first = model(x)
    return first[0] if isinstance(first, (tuple, list)) else first


def close(a, b, tolerance):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-6)


def test_every_registered_network_has_a_descriptor():
    assert set(zoo.list_nets()) - NOT_IMAGES - PRESETS <= {d.net for d in DESCRIPTORS}


LARGE = ("densenet161", "densenet169", "densenet201", "densenet264")  # of one function with the other presets


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in LARGE else ())
        for n in zoo.list_nets()
        if getattr(zoo, n).spec.published_params
    ],
)
def test_published_counts(name):
    """The default configuration; the other published ones are in tests/nets."""
    counts = getattr(zoo, name).spec.published_params
    model = zoo.create(name)
    trainable = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    assert {"trainable": trainable, "total": model.count_params()} | dict(counts) == {
        "trainable": trainable,
        "total": model.count_params(),
    }


@every_net
def test_eager_function_and_xla_agree(d):
    model, x = d.build(), d.batch()
    eager = outputs_of(model, x)
    close(outputs_of(tf.function(model), x), eager, d.tolerance)
    close(outputs_of(tf.function(model, jit_compile=True), x), eager, d.tolerance)


@most_nets
def test_the_same_weights_in_a_graph_give_the_same(d):
    model, x = d.build(), d.batch()
    weights = {name: model.variable(name).numpy() for name in model.variable_names}
    expected = outputs_of(model, x)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outputs, _ = getattr(zoo, d.net).network(tf.constant(x), is_training=False, **d.options)
        outputs = outputs[0] if isinstance(outputs, (tuple, list)) else outputs
        variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
        assert list(variables) == model.variable_names
        for name, variable in variables.items():
            variable.load(weights[name], session)
        close(session.run(outputs), expected, d.tolerance)


@every_net
def test_keras_file(d, tmp_path):
    model, x = d.build(), d.batch()
    model.save(tmp_path / "net.keras")
    np.testing.assert_array_equal(outputs_of(keras.models.load_model(tmp_path / "net.keras"), x), outputs_of(model, x))


@every_net
def test_export_equals_the_model(d, tmp_path):
    model, x = d.build(), d.batch()
    model.export(str(tmp_path / "net"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "net"))
    out = exported.serve(x)
    close(out[0] if isinstance(out, (tuple, list)) else out, outputs_of(model, x), d.tolerance)


@every_net
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(d, policy):
    model = d.build(dtype=policy)
    assert {w.dtype for w in model.weights if "float" in w.dtype} == {"float32"}
    out = outputs_of(model, d.batch())
    assert out.dtype == tf.float32
    close(out, outputs_of(d.build(), d.batch()), 0.2)


@every_net
def test_a_step_moves_every_trainable_variable(d):
    model, x = d.build(), d.batch()
    before = {n: model.variable(n).numpy() for n in model.variable_names}
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    assert all(g is not None for g in gradients)
    keras.optimizers.SGD(1.0).apply(gradients, model.trainable_variables)
    for weight, name in zip(model.weights, model.variable_names, strict=False):
        assert np.isfinite(weight.numpy()).all(), name
        if "moving" in name:
            assert not np.array_equal(model.variable(name).numpy(), before[name]), name


@every_net
def test_inference_is_pure_and_independent_of_the_batch(d):
    model, x = d.build(), d.batch()
    before = model.get_weights()
    whole = outputs_of(model, x)
    np.testing.assert_array_equal(whole, outputs_of(model, x))
    close(outputs_of(model, x[:1]), whole[:1], d.tolerance)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


@most_nets
def test_two_replicas_fit(d):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice())
    with strategy.scope():
        model = d.build()
        model.compile("sgd", "mse")
    y = np.zeros([4, *outputs_of(model, d.batch()).shape[1:]], np.float32)
    model.fit(d.batch(), y, batch_size=4, verbose=0)
    for weight in model.weights:
        first, second = (v.numpy() for v in weight.value.values)
        np.testing.assert_array_equal(first, second, err_msg=weight.path)
