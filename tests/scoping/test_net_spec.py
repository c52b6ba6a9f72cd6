"""What networks say about themselves: their models carry it, and each says what its head is and how to leave it out."""

import keras
import pytest
import tensorflow as tf

import zoo
from zoo.registry import get_net
from zoo.scoping import NetSpec, Parts, parts_of

SMALL = {
    "lenet5": [{}, {"variant": "original"}, {"variant": "slim"}],
    "cifarnet": [{}, {"scope": "C"}],
    "inception_v3": [{"depth_multiplier": 0.1, "min_depth": 4, "input_shape": (107, 107, 3)}],
    "densenet": [{"block_config": (2, 2), "growth_rate": 4, "input_shape": (32, 32, 3)}],
    "densenet_cifar": [{"depth": 10, "growth_rate": 4}],
    "row_classifier": [{"hidden": 4}],
    "sequence_tagger": [{"hidden": 4}],
}
CASES = [
    pytest.param(
        net,
        options,
        id="-".join([net, *map(str, options.values())]),
        marks=[pytest.mark.slow] * ("depth_multiplier" in options),
    )
    for net, every in SMALL.items()
    for options in every
]
PRESETS = {f"densenet{depth}" for depth in (121, 161, 169, 201, 264)}  # densenet in other sizes


def shapes(model):
    return {name: tuple(model.variable(name).shape) for name in model.variable_names}


def test_every_network_with_classes_is_here():
    assert set(zoo.list_nets()) == set(SMALL) | PRESETS | {"word_lm"}
    assert not zoo.word_lm.spec.heads  # its words are those of the embedding
    assert all(get_net(name).spec.headless == zoo.densenet.spec.headless for name in PRESETS)


@pytest.mark.parametrize(("net", "options"), CASES)
def test_the_heads_are_what_other_classes_change_and_what_is_left_out(net, options):
    five, six = (zoo.create(net, num_classes=n, **options) for n in (5, 6))
    parts = parts_of(five)
    changed = {name for name, shape in shapes(five).items() if shapes(six)[name] != shape}
    heads = {name for name in five.variable_names if parts.part_of(name) != "trunk"}
    assert changed and changed <= heads
    assert {name for name in changed if parts.part_of(name) == "aux"} == {n for n in changed if "AuxLogits" in n}
    if five.spec.headless is not None:
        without = zoo.create(net, **{**options, **five.spec.headless})
        assert shapes(without) == {name: shape for name, shape in shapes(five).items() if name not in heads}


@pytest.mark.parametrize(("net", "options"), CASES)
def test_what_it_names_is_in_the_model(net, options):
    model, spec = zoo.create(net, **options), get_net(net).spec
    maps = {name: s.shape for name, s in model.end_point_specs.items() if s.shape.rank == 4}
    assert {spec.last_map, *spec.worth_reading} - {""} <= maps.keys()
    pooled = next((name for name in spec.pooled if name in maps), None)
    assert pooled is None or maps[pooled][1:3] == [1, 1]
    assert set(spec.aux_weights) == {name for name in model.end_point_specs if name.startswith("Aux")}
    assert (spec.data == "pictures") == (spec.preprocessing is not None)


@pytest.mark.parametrize("net", sorted(set(SMALL) | PRESETS | {"word_lm"}))
def test_the_option_that_drops_is_named(net):
    found = [option for option in get_net(net).options() if "keep_prob" in option or "drop" in option]
    assert found == ([get_net(net).spec.dropout] if get_net(net).spec.dropout else [])


@pytest.mark.parametrize(
    ("net", "own"), [("densenet_cifar", {"dropout_rate": 0.25}), ("row_classifier", {"keep_prob": 0.75})]
)
def test_one_name_of_dropout_is_understood_by_all(net, own):
    spec = get_net(net).spec
    assert spec.own_options({"dropout_keep_prob": 0.75, "seed": 1}) == {**own, "seed": 1}
    assert zoo.create(net, dropout_keep_prob=0.75, **SMALL[net][0]).options.items() >= own.items()
    assert zoo.lenet5.spec.own_options({"dropout_keep_prob": 0.75}) == {"dropout_keep_prob": 0.75}
    with pytest.raises(ValueError, match="are one option"):
        zoo.create(net, dropout_keep_prob=0.75, **own)
    with pytest.raises(ValueError, match="cifarnet has no option 'dropout_keep_prob'"):
        zoo.cifarnet(dropout_keep_prob=0.75)


def test_a_published_form_differs_in_its_defaults_and_forges_nothing():
    for name in PRESETS:
        spec, options = get_net(name).spec, get_net(name).options()
        usual = get_net(spec.preset_of).options()
        assert list(options) == list(usual)
        assert {key for key in usual if options[key] != usual[key]} <= {"block_config", "growth_rate", "scope"}
        assert not hasattr(get_net(name).network, "__signature__")


def test_other_peoples_names_are_theirs():
    networks = [get_net(name).spec for name in zoo.list_nets()]
    assert all(hasattr(keras.applications, spec.elsewhere["keras"]) for spec in networks if "keras" in spec.elsewhere)
    assert {spec.name for spec in networks if "keras" in spec.elsewhere} > {"inception_v3", "densenet121"}
    models = pytest.importorskip("torchvision.models")
    assert all(hasattr(models, spec.elsewhere[key]) for spec in networks for key in spec.elsewhere if key[0] == "t")


def test_models_carry_it_through_every_copy(tmp_path):
    model = zoo.lenet5(num_classes=3, variant="slim")
    model.save(tmp_path / "m.keras")
    for copy in (model, zoo.load_model(tmp_path / "m.keras"), keras.models.clone_model(model), zoo.Model(zoo.lenet5)):
        assert copy.spec is zoo.lenet5.spec
    assert parts_of(model).heads == ("fc4",)


def test_a_function_that_says_nothing_has_the_usual_names():
    class Callable:
        __hash__ = None

        def __call__(self, x, *, is_training=False):
            return x * zoo.get_variable("w", [3])

    for network in (lambda x, *, is_training=False: x, Callable()):
        model = zoo.Model(network)
        assert model.spec is None
        assert parts_of(model) == Parts()
    assert Parts().part_of("InceptionV3/AuxLogits/Conv2d_2b_1x1/biases") == "aux"
    assert Parts().part_of("densenet121/logits/weights") == "head"
    assert Parts().part_of("InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/weights") == "trunk"


def test_inputs_follow_the_options():
    inputs = lambda options: (options.get("width", 2) * 10,)  # noqa: E731
    spec = NetSpec(name="wide", paper="none", input_size=(20,), num_classes=None, inputs=inputs)
    assert spec.input_shape({"width": 3}) == (30,)
    assert zoo.word_lm.spec.input_shape() == tf.TensorSpec([None, None], tf.int32)
