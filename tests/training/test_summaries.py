"""What a run leaves for TensorBoard: scalars, what a step saw, the profile."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_trainer


def events(folder):
    """Tag to steps, and the kinds of event that carry no tag."""
    tags, others = {}, []
    files = sorted(map(str, folder.glob("events.out.tfevents.*")))
    for record in tf.data.TFRecordDataset(files):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            tags.setdefault(value.tag, []).append(event.step)
        if event.WhichOneof("what") in ("graph_def", "session_log"):
            others.append((event.WhichOneof("what"), event.step))
    return tags, others


def test_scalars_by_default_and_a_mark_at_a_resume(tmp_path):
    make_trainer().fit(make_data(), epochs=2, folder=tmp_path, progress="none", validation=make_data(8, 1))
    tags, others = events(tmp_path / "summaries")
    assert tags["loss"] == [5, 10]
    assert {
        "task_loss",
        "regularization_loss",
        "accuracy",
        "learning_rate",
        "val_loss",
        "configuration",
    } <= tags.keys()
    assert "_hparams_/session_start_info" in tags
    assert not [tag for tag in tags if tag.startswith("gradients")]
    assert not others
    make_trainer().fit(make_data(), epochs=3, folder=tmp_path, progress="none", validation=make_data(8, 1))
    tags, others = events(tmp_path / "summaries")
    assert tags["loss"] == [5, 10, 15]
    assert others == [("session_log", 11)]  # TensorBoard drops what a killed process wrote from there on


def test_all_summaries_show_what_the_step_saw(tmp_path):
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4, 4, 1)), layers.Conv2D(2, 3, name="conv"), layers.Flatten(), layers.Dense(3)]
    )
    images, labels = np.random.default_rng(0).random((24, 4, 4, 1), "float32"), np.arange(24) % 3
    trainer = make_trainer(model, steps_per_call=4)
    options = {"every": 3, "patterns": ["conv*"], "images": 2}
    plain = [np.array(v) for v in model.weights]
    trainer.fit((images, labels), epochs=2, folder=tmp_path, summaries="all", summary_options=options, progress="none")
    tags, others = events(tmp_path / "summaries")
    name = next(tag for tag in tags if tag.startswith("gradients/") and tag.endswith("kernel"))
    assert tags[name] == [1, 4]
    assert {
        f"{g}/{name.split('/', 1)[1]}" for g in ("variables", "variables_mean", "gradients_deviation")
    } <= tags.keys()
    assert not [tag for tag in tags if tag.startswith("gradients/") and "conv" not in tag]
    assert tags["inputs/main"] == [1, 4]
    assert "activations/main" in tags
    assert ("graph_def", 0) in others
    assert not np.array_equal(plain[0], model.weights[0])
    bad = {"every": 3, "patterns": ["cnov"]}
    with pytest.raises(ValueError, match="pattern 'cnov' matches none"):
        make_trainer().fit(make_data(), steps=3, folder=tmp_path / "b", summaries="all", summary_options=bad)
    with pytest.raises(ValueError, match="summaries must be one of"):
        make_trainer().fit(make_data(), steps=3, folder=tmp_path / "c", summaries="some")


def test_profile_leaves_a_trace(tmp_path):
    trainer = make_trainer(steps_per_call=4)
    trainer.fit(make_data(), steps=9, folder=tmp_path, profile=(3, 5), progress="none", summaries="none")
    assert list((tmp_path / "summaries").rglob("*.xplane.pb"))
    assert int(trainer.engine.step) == 9
    with pytest.raises(ValueError, match="profile must be"):
        make_trainer().fit(make_data(), steps=3, profile=(5, 3))
