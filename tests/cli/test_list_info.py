"""``zoo list`` and ``zoo info``: what they print for people and for programs, and what they refuse."""

import json

import zoo


def test_list_for_people(zoo_command):
    said = zoo_command("list", "lenet*")
    assert said.code == 0
    assert "lenet5" in said.out
    assert "61,706" in said.out
    assert "32 x 32 x 1" in said.out
    assert "digits" in said.out


def test_list_for_programs(zoo_command):
    rows = json.loads(zoo_command("list", "--json").out)
    assert [row["name"] for row in rows] == zoo.list_nets()
    lenet = next(row for row in rows if row["name"] == "lenet5")
    assert lenet["published_params"] == {"trainable": 61_706, "total": 61_706}
    assert lenet["weights"] == ["digits"]


def test_list_tells_every_networks_total(zoo_command):
    for line in zoo_command("list").out.splitlines()[3:]:
        words = line.split()
        if words:
            assert f"{zoo.registry.get_net(words[0]).spec.published_params['total']:,}" in words
    specs = [zoo.registry.get_net(name).spec for name in zoo.list_nets()]
    assert all(set(spec.published_params) == {"trainable", "total"} for spec in specs)  # which test_contracts counts


def test_list_without_a_match(zoo_command):
    said = zoo_command("list", "vgg*")
    assert said.code == 2
    assert "no network matches 'vgg*'" in said.err


def test_info_for_people(zoo_command):
    said = zoo_command("info", "lenet5")
    rows = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "LeNet5/conv1 weights 5 x 5 x 1 x 6, biases 6 156 117,600 28 x 28 x 6" in rows
    assert "LeNet5/pool1 14 x 14 x 6" in rows
    assert "total 61,706 416,520" in rows


def test_info_for_programs(zoo_command):
    about = json.loads(zoo_command("info", "lenet5", "--json", "-o", "variant=original").out)
    assert about["name"] == "lenet5"
    assert (about["trainable_params"], about["total_params"]) == (60_000, 60_840)
    assert about["gmacs"] == 0.00041568
    assert about["input_size"] == [32, 32, 1]
    assert about["variables"][0] == {"name": "LeNet5/C1/weights", "shape": [5, 5, 1, 6], "trainable": True}
    assert about["variables"][-1]["trainable"] is False


def test_info_counts_a_step_of_a_sequence(zoo_command):
    about = json.loads(zoo_command("info", "word_lm", "--json").out)
    assert (about["total_params"], about["per_step"], about["input_size"]) == (4_651_600, True, [None])
    assert about["gmacs"] == (2 * 8 * 200 * 200 + 200 * 10_000) / 1e9
    tagger = json.loads(zoo_command("info", "sequence_tagger", "--json").out)
    assert tagger["gmacs"] == (2 * (8 + 64) * 4 * 64 + 128 * 10) / 1e9
    assert tagger["input_size"] == {"sequence": [None, 8], "length": []}
    said = zoo_command("info", "word_lm", "-o", "carry=1")
    assert "MACs and outputs are those of one step" in said.out
    assert "word_lm reads sequences of any length" in zoo_command("info", "word_lm", "--batch", 20).err
    assert json.loads(zoo_command("info", "lenet5", "--json").out)["per_step"] is False


def test_the_published_figures_are_what_info_counts(zoo_command):
    for name in ("lenet5",):
        about = json.loads(zoo_command("info", name, "--json").out)
        spec = zoo.registry.get_net(name).spec
        assert about["gmacs"] == spec.gmacs
        assert about["total_params"] == spec.published_params["total"]


def test_info_refuses(zoo_command):
    said = zoo_command("info", "lenet")
    assert (said.code, said.out) == (2, "")
    assert "There is no network 'lenet'; did you mean 'lenet5'" in said.err
    assert "no option 'varient'; did you mean 'variant'" in zoo_command("info", "lenet5", "-o", "varient=slim").err
    assert "--option takes NAME=VALUE" in zoo_command("info", "lenet5", "-o", "variant").err
    assert zoo_command("info").code == 2
    assert zoo_command("inform", "lenet5").code == 2


def test_info_estimates_memory(zoo_command):
    about = json.loads(zoo_command("info", "lenet5", "--batch", 64, "--json").out)["memory"]
    assert about["weights"] >= 4 * 61_706
    assert about["optimizer"] >= 4 * 61_706  # momentum
    # The first convolution's output alone, and its gradient at the same time.
    assert about["training"] > 64 * 28 * 28 * 6 * 4 * 2
    assert about["inference"] < about["training"]
    double = json.loads(zoo_command("info", "lenet5", "--batch", 128, "--json").out)["memory"]
    assert 1.9 < double["activations_gradients"] / about["activations_gradients"] < 2.1
    said = zoo_command("info", "lenet5", "--batch", 64)
    assert "memory at batch 64" in said.out
    assert zoo_command("info", "lenet5", "--batch", 0).code == 2
