"""Fine-tuning: what trains, what stays frozen, and that it never silently ends worse than the head alone."""

import numpy as np
import pytest
from transfer.retrain_support import TINY, write_folder

from zoo.transfer import assemble, fit_head, load_trunk, retrain
from zoo.transfer.finetune import augment, compare, is_batch_norm, trained_names
from zoo.transfer.regression import temperature_of

SMALL = {"depth_multiplier": 0.1}
HOW = {"export": False, "bottleneck": "final", "finetune_from": "conv2", "epochs": 2, **TINY}


@pytest.fixture(scope="module")
def trunk():
    return load_trunk("inception_v3", "none", size=75, options=SMALL)


def test_row_48_unfreezing_goes_by_end_point_name(trunk):
    names = trunk.model.variable_names
    trained = trained_names(names, trunk, "Mixed_7a", train_batch_norm=False)
    assert all(name.startswith(("InceptionV3/Mixed_7", "Head/")) for name in trained)
    assert {"InceptionV3/Mixed_7a/Branch_0/Conv2d_0a_1x1/weights", "Head/weights", "Head/biases"} <= set(trained)
    assert not any(is_batch_norm(name) for name in trained)
    more = trained_names(names, trunk, "Mixed_7a", train_batch_norm=True)
    assert any(name.endswith("/beta") for name in more) and not any("moving" in name for name in more)
    everything = trained_names(names, trunk, "Conv2d_1a_3x3", train_batch_norm=False)
    assert len(everything) == 94 + 2  # the trunk's convolutions, and the head
    with pytest.raises(ValueError, match=r"--finetune-from is one of Conv2d_1a_3x3, .*Received: 'mixed8'"):
        trained_names(names, trunk, "mixed8", train_batch_norm=False)


def test_row_48_two_trunks_in_one_process_have_the_same_names(trunk):
    again = load_trunk("inception_v3", "none", size=75, options=SMALL, seed=1)
    assert again.model.variable_names == trunk.model.variable_names and again.digest != trunk.digest


def test_row_47_frozen_batch_norm_stays_as_it_was_and_training_answers_like_inference(trunk):
    features = {"Mixed_7c": np.random.default_rng(1).random((12, trunk.width("Mixed_7c")), np.float32)}
    head = fit_head(features, np.arange(12) % 3, ["a", "b", "c"])[0]
    model = assemble(trunk, head)
    shifted = np.random.default_rng(0).normal(3.0, 2.0, (4, *trunk.size)).astype(np.float32)
    names = [name for name in model.variable_names if "moving_" in name]
    before = [np.array(model.variable(name)) for name in names]
    in_training = np.asarray(model(shifted, training=True))
    for name, value in zip(names, before, strict=True):
        np.testing.assert_array_equal(np.array(model.variable(name)), value)
    np.testing.assert_allclose(in_training, np.asarray(model(shifted, training=False)), rtol=1e-3, atol=1e-3)


def test_row_51_a_run_keeps_the_better_model_and_says_so(finished, pictures, tmp_path):
    run = retrain(pictures, tmp_path / "run", cache=finished[1], **HOW)
    facts = run.facts["finetune"]
    assert [line["epoch"] for line in facts["history"]] == [1, 2]
    assert all(0 <= line[name] <= 1 for line in facts["history"] for name in ("accuracy", "validation_accuracy"))
    page = (tmp_path / "run" / "report.html").read_text()
    assert ">training</text>" in page and ">validation</text>" in page
    words = "the fine-tuned model is kept" if facts["kept"] else "the head on the original trunk is kept"
    assert words in facts["sentence"] and facts["sentence"] in page
    after, before = facts["after"], facts["before"]
    assert facts["gain"] == pytest.approx(before["loss"] - after["loss"])
    assert facts["kept"] == (after["accuracy"] >= before["accuracy"] and facts["gain"] > 2 * facts["error"])
    assert run.facts["validation_accuracy"] >= before["accuracy"]
    if not facts["kept"]:
        np.testing.assert_array_equal(np.asarray(run.model.variable("Head/weights")), run.head.weights)


def test_the_same_command_again_ends_in_the_same_weights(finished, pictures, tmp_path):
    first = retrain(pictures, tmp_path / "a", cache=finished[1], **HOW)
    second = retrain(pictures, tmp_path / "a", cache=finished[1], **HOW)  # goes on from its checkpoint: nothing to do
    assert first.facts["finetune"]["after"] == second.facts["finetune"]["after"]
    for name in first.model.variable_names:
        np.testing.assert_array_equal(np.asarray(first.model.variable(name)), np.asarray(second.model.variable(name)))


def test_it_needs_a_validation_part(finished, pictures, tmp_path):
    with pytest.raises(ValueError, match="needs validation pictures to be judged by"):
        retrain(write_folder(tmp_path / "few", per_class=2), tmp_path / "run", cache=finished[1], **HOW)


def logits_of(margins, labels):
    """Two classes; the right one leads by ``margins``."""
    table = np.zeros((len(labels), 2))
    table[np.arange(len(labels)), labels] = margins
    return table


def test_a_gain_within_the_noise_is_not_kept_and_all_figures_are_said():
    labels = np.arange(40) % 2
    generator = np.random.default_rng(0)
    before = generator.normal(1.0, 1.5, 40)
    clear = compare(logits_of(before, labels), logits_of(before + 1.0, labels), labels)
    assert clear["kept"] and clear["gain"] > 2 * clear["error"] and "the fine-tuned model is kept" in clear["sentence"]
    noise = compare(logits_of(before, labels), logits_of(before + generator.normal(0.02, 1.0, 40), labels), labels)
    assert not noise["kept"] and abs(noise["gain"]) < noise["error"]
    for part in ("before", "after"):
        for value in (f"{noise[part]['accuracy']:.1%}", f"{noise[part]['loss']:.3f}"):
            assert value in noise["sentence"]
    assert "40 pictures" in noise["sentence"] and f"standard error {noise['error']:.3f}" in noise["sentence"]
    p = 1 / (1 + np.exp(-before / temperature_of(logits_of(before, labels), labels)))
    assert noise["before"]["loss"] == pytest.approx(-np.log(p).mean())


@pytest.mark.parametrize(("mended", "kept"), [(2, False), (9, True)])
def test_a_gain_of_one_standard_error_is_not_enough(mended, kept):
    labels = np.zeros(40, int)
    before = np.concatenate([np.full(30, 1.0), np.full(10, -1.0)])
    after = np.concatenate([np.full(30 + mended, 1.0), np.full(10 - mended, -1.0)])
    found = compare(logits_of(before, labels), logits_of(after, labels), labels)
    assert found["gain"] > found["error"] and found["after"]["accuracy"] > found["before"]["accuracy"]
    assert found["kept"] is kept, found["gain"] / found["error"]


def test_a_lower_accuracy_is_not_kept_however_much_the_cross_entropy_gains():
    labels = np.zeros(40, int)
    before = np.concatenate([np.full(36, 0.1), np.full(4, -3.0)])
    after = np.concatenate([np.full(35, 3.0), np.full(5, -0.1)])
    found = compare(logits_of(before, labels), logits_of(after, labels), labels)
    assert found["gain"] > found["error"] and found["after"]["accuracy"] < found["before"]["accuracy"]
    assert not found["kept"]


def test_one_validation_picture_says_nothing():
    found = compare(logits_of([-1.0], [0]), logits_of([5.0], [0]), np.array([0]))
    assert not found["kept"] and found["error"] is None and "one picture has no standard error" in found["sentence"]


def test_augmentation_is_a_function_of_its_seed():
    image = np.random.default_rng(0).uniform(-1, 1, (20, 20, 3)).astype(np.float32)
    np.testing.assert_array_equal(augment(image, [1, 2]), augment(image, [1, 2]))
    assert np.abs(np.asarray(augment(image, [1, 2])) - np.asarray(augment(image, [1, 3]))).max() > 0.01
    assert augment(image, [1, 2]).shape == (20, 20, 3)


def test_row_49_numbers_that_explode_stop_with_step_rate_and_files(finished, pictures, tmp_path):
    settings = {**HOW, "finetune_rate": 1e30}
    with pytest.raises(ArithmeticError) as caught:
        retrain(pictures, tmp_path / "run", cache=finished[1], **settings)
    text = str(caught.value)
    assert "not finite at step" in text and "--finetune-rate is 1e+30; the files of that batch: " in text
    assert text.count(".png") == 8 and not (tmp_path / "run" / "run.json").exists()
    calm = retrain(pictures, tmp_path / "run", cache=finished[1], **HOW)  # the folder is not spoilt
    assert calm.facts["finetune"]["history"]
