"""Trunks: what they offer, what their hash notices, and what happens without the weights."""

import json

import numpy as np
import pytest

import zoo
from zoo.registry import get_net
from zoo.transfer import load_trunk
from zoo.transfer.trunk import EMBEDDED, digest_of
from zoo.weights import bundled
from zoo.weights.published import FetchError


@pytest.fixture(scope="module")
def lenet():
    return load_trunk("lenet5", "none")


def test_a_trunk_offers_pooled_end_points_of_its_later_half(lenet):
    assert lenet.bottleneck in lenet.offered() and set(lenet.offered()) <= set(lenet.end_points)
    assert lenet.preprocessing.channels == 1 and lenet.size == (32, 32, 1) and lenet.source == "untrained"


@pytest.mark.parametrize(
    ("net", "options"),
    [("densenet", {"block_config": (2, 2), "growth_rate": 4}), ("densenet_cifar", {"depth": 10, "growth_rate": 4})],
)
def test_other_networks_offer_their_later_maps(net, options):
    trunk = load_trunk(net, "none", size=32, options=options)
    assert trunk.bottleneck == "final_block" == trunk.offered()[-1] and len(trunk.offered()) >= 3
    assert not any("logits" in name for name in trunk.model.variable_names)


@pytest.mark.parametrize("net", [name for name in zoo.list_nets() if get_net(name).spec.headless])
def test_a_trunk_has_no_head(net, monkeypatch):
    built = {}

    def build(name, **options):
        built.update(options)
        raise FetchError("enough seen")

    monkeypatch.setattr("zoo.transfer.trunk.create", build)
    with pytest.raises(FetchError, match="enough"):
        load_trunk(net, "none")
    assert not built["num_classes"] and not built.get("aux_logits")
    with pytest.raises(FetchError, match="enough"):
        load_trunk(net, "none", options={"num_classes": 3})
    assert built["num_classes"] == 3


def test_weights_that_come_with_zoo_fit_without_their_head():
    trunk, whole = load_trunk("lenet5", "digits"), zoo.lenet5(weights="digits")
    assert set(whole.variable_names) - set(trunk.model.variable_names) == {
        "LeNet5/logits/weights",
        "LeNet5/logits/biases",
    }
    np.testing.assert_array_equal(trunk.model.variable("fc4/weights"), whole.variable("fc4/weights"))


def test_a_network_without_maps_is_no_trunk():
    with pytest.raises(ValueError, match="row_classifier has no end point with a map"):
        load_trunk("row_classifier", "none")


def test_the_hash_notices_one_changed_number(lenet):
    before = digest_of(lenet.model)
    variable = lenet.model.variable("conv1/weights")
    kept = np.array(variable)
    changed = kept.copy()
    changed.flat[0] += 1e-6
    variable.assign(changed)
    assert digest_of(lenet.model) != before
    variable.assign(kept)
    assert digest_of(lenet.model) == before == lenet.digest


def test_the_default_without_a_network_names_both_ways_out(monkeypatch):
    def no_network(*_, **__):
        raise FetchError("no route to host")

    monkeypatch.setattr("zoo.transfer.trunk.create", no_network)
    with pytest.raises(
        ValueError, match=r"no route to host.*`zoo weights fetch`.*inception_v3.keras.*--weights embedded"
    ):
        load_trunk("inception_v3", "imagenet")


def test_networks_that_take_no_pictures_and_unknown_ones():
    with pytest.raises(ValueError, match="does not take pictures"):
        load_trunk("word_lm", "none")
    with pytest.raises(ValueError, match="no network"):
        load_trunk("inception_v9", "none")
    with pytest.raises(ValueError, match="embedded weights are an Inception-v3"):
        load_trunk("lenet5", "embedded")


@pytest.mark.skipif(not (bundled.folder() / f"{EMBEDDED}.safetensors").is_file(), reason="no embedded weights yet")
def test_the_embedded_trunk_is_small_and_its_file_is_checked(monkeypatch, tmp_path):
    trunk = load_trunk(weights="embedded")
    assert trunk.model.count_params() == 1_382_156 and trunk.size == (128, 128, 3)
    assert "embedded" in trunk.source
    assert trunk.offered() == zoo.inception_v3.spec.worth_reading and set(trunk.offered()) < set(trunk.end_points)
    assert trunk.bottleneck == trunk.offered()[-1] == zoo.inception_v3.spec.last_map
    for suffix in (".safetensors", ".json"):
        (tmp_path / f"{EMBEDDED}{suffix}").write_bytes((bundled.folder() / f"{EMBEDDED}{suffix}").read_bytes())
    card = json.loads((tmp_path / f"{EMBEDDED}.json").read_text())
    card["sha256"] = "0" * 64
    (tmp_path / f"{EMBEDDED}.json").write_text(json.dumps(card))
    monkeypatch.setattr(bundled, "folder", lambda: tmp_path)
    with pytest.raises(ValueError, match="changed or damaged"):
        load_trunk(weights="embedded")
