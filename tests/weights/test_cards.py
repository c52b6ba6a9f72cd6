"""Cards: conventions of each family, plain values both ways, a page for people."""

import json

from zoo.data.preprocessing import PRESETS
from zoo.weights.cards import Card, convention


def test_conventions_of_the_families():
    keras, torch, slim = (convention(family, "inception_v3") for family in ("keras", "torchvision", "slim"))
    assert keras.batch_norm_epsilon == torch.batch_norm_epsilon == slim.batch_norm_epsilon == 0.001
    assert (keras.moving_variance, torch.moving_variance, slim.moving_variance) == ("biased", "unbiased", "unbiased")
    assert (keras.count_include_pad, torch.count_include_pad, slim.count_include_pad) == (False, True, False)
    assert convention("tfjs", "inception_v3").preprocessing == PRESETS["inception_keras"]
    assert convention("keras", "densenet201").batch_norm_epsilon == 1.001e-5
    assert convention("torchvision", "densenet201").batch_norm_epsilon == 1e-5
    slim = convention("slim", "densenet121")
    assert (slim.batch_norm_epsilon, slim.preprocessing) == (1.1e-5, PRESETS["imagenet_slim"])
    assert convention("keras", "lenet5").batch_norm_epsilon is None


def test_plain_values_both_ways_keep_what_they_do_not_know():
    card = convention("slim", "inception_v3")
    values = json.loads(json.dumps({**card.to_dict(), "recipe": "zoo train", "accuracy": {"top1": 78.0}}))
    again = Card.from_dict(values)
    assert again.preprocessing == card.preprocessing
    assert again.more == {"recipe": "zoo train"}
    assert again.to_dict() == values
    assert Card.from_dict({"preprocessing": "inception"}).preprocessing == PRESETS["inception"]


def test_a_page_for_people():
    page = Card(net="inception_v3", source="inception_v3.slim", licence="Apache-2.0").to_markdown()
    assert page.startswith("# inception_v3.slim\n")
    assert "| licence | Apache-2.0 |" in page
