"""``zoo plan``: what fits, and what it refuses."""

import json

import pytest

from zoo.devices import parse_size


def test_sizes_have_a_unit():
    sizes = {"24GiB": 24 * 2**30, "24 GB": 24 * 10**9, " 800mib ": 800 * 2**20, "1.5GiB": 3 * 2**29, "2 tb": 2 * 10**12}
    assert {text: parse_size(text, "--gpu") for text in sizes} == sizes
    for wrong in ("0", "24", "0GiB", "-1GiB", "GiB", "many", "nanGiB", "infGB", "24 GiBB", "1e30TiB", "", "24Gib2"):
        with pytest.raises(ValueError, match="--gpu takes a size above 0 with its unit, such as 24GiB or 24GB; got"):
            parse_size(wrong, "--gpu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lenet5", "--gpu", "0"], "--gpu takes a size above 0"),
        (["lenet5", "--gpu", "1GiB"], "--gpu 1GiB is no more than --reserve 1GiB"),
        (["lenet5", "--gpu", "4GiB", "--reserve", "x"], "--reserve takes a size above 0"),
        (["lenet5", "--gpu", "4GiB", "--batch", "0"], "--batch"),
        (["lenet5", "--gpu", "4GiB", "--memory", "store"], "--memory: lenet5 has no memory levels"),
        (["lenet5", "--gpu", "4GiB", "--precision", "float8"], "'float8' is none of"),
        (["lenet6", "--gpu", "4GiB"], "lenet5"),
        (["densenet121", "--gpu", "4GiB", "--memory", "store", "-o", "memory=store"], "not both"),
        (["word_lm", "--gpu", "4GiB"], "word_lm cannot be planned"),
    ],
)
def test_refusals(words, message, zoo_command):
    said = zoo_command("plan", *words)
    assert said.code == 2
    assert message in said.err.replace("\n", " ")


def test_a_plan_in_words_and_in_json(zoo_command):
    said = zoo_command("plan", "lenet5", "--gpu", "2GiB", "--batch", "64", "--optimizer", "adam")
    assert not said.code
    assert "the cheapest that fits batch 64: the network in float32" in said.out
    told = json.loads(zoo_command("plan", "lenet5", "--gpu", "1100MiB", "--batch", "100000", "--json").out)
    (row,) = told["plans"]
    assert not row["fits"] and 0 < row["largest_batch"] < 100_000 and row["reserve"] == 2**30
    parts = ("weights", "slots", "gradients", "kept", "moment", "allocator", "reserve")
    assert sum(row[part] for part in parts) == row["total"] > told["gpu"]
    assert zoo_command("plan", "lenet5", "--gpu", "1100MiB", "--batch", "100000").code == 1
