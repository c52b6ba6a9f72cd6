"""``zoo retrain --demo``: real pictures without a network, the embedded trunk, and the whole pipeline."""

import json

import pytest
from typer.testing import CliRunner

from zoo.cli import app
from zoo.transfer.run import load_facts


# A quick run of the whole pipeline stands in test_pipeline; `make demo` is this one.
@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    root = tmp_path_factory.mktemp("demo")
    words = ["retrain", "--demo", "--out", str(root / "demo"), "--cache", str(root / "cache")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return root, done.output


@pytest.mark.slow
def test_it_says_what_it_used_and_ends_with_a_prediction(demo):
    root, said = demo
    one_line = said.replace("\n", " ")
    assert "embedded (inception_v3_x025)" in one_line and "report.html" in one_line
    assert f"$ zoo predict {root / 'demo'}" in one_line and "%" in said.split("$ zoo predict")[1]
    for name in ("report.html", "model.keras", "saved_model", "predictions.csv"):
        assert (root / "demo" / name).exists()


@pytest.mark.slow
def test_row_52_a_known_set_gives_a_known_accuracy(demo):
    facts = load_facts(demo[0] / "demo")
    assert facts["evaluation"]["count"] > 150
    assert facts["evaluation"]["accuracy"] == pytest.approx(0.97, abs=0.03)
    assert facts["facts"]["trunk"]["parameters"] == 1_382_156


def test_the_card_of_the_embedded_trunk_says_what_it_was_trained_on():
    from zoo.transfer.trunk import EMBEDDED
    from zoo.weights import bundled

    card = json.loads((bundled.folder() / f"{EMBEDDED}.json").read_text())
    assert card["data"]["like_held_out"] > 0 and card["data"]["training_pictures"] > 10_000
    assert card["accuracy"]["stamps"] > card["accuracy"]["stamps_raw_pixels"] + 0.05
    assert card["accuracy"]["stamps"] > card["accuracy"]["stamps_untrained"]
