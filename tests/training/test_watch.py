"""What a run shows and writes: summaries, profile, lines, the bar; the range test; the memory estimate."""

import io
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console
from training.small import make_data, make_model, make_trainer, weights

from zoo.training import estimate_inference, estimate_memory, find_learning_rate
from zoo.training.memory import peak_bytes
from zoo.training.monitor import Monitor
from zoo.training.watch import Watch, duration


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


def test_sound_is_heard(tmp_path):
    model = keras.Sequential([keras.Input((50,)), keras.layers.Dense(3)])
    sound = np.random.default_rng(0).uniform(-1, 1, (8, 50)).astype("float32"), np.arange(8) % 3
    options = {"audio_rate": 8000, "every": 1}
    make_trainer(model).fit(sound, steps=1, folder=tmp_path, summaries="all", summary_options=options, progress="none")
    assert "inputs/main" in events(tmp_path / "summaries")[0]


def test_profile_leaves_a_trace(tmp_path):
    trainer = make_trainer(steps_per_call=4)
    trainer.fit(make_data(), steps=9, folder=tmp_path, profile=(3, 5), progress="none", summaries="none")
    assert list((tmp_path / "summaries").rglob("*.xplane.pb"))
    assert int(trainer.engine.step) == 9
    with pytest.raises(ValueError, match="profile must be"):
        make_trainer().fit(make_data(), steps=3, profile=(5, 3))


def test_lines_and_bar():
    text = io.StringIO()
    console = Console(file=text, width=200)
    with Watch(0, 10, console=console, seconds=0) as watch:
        watch.step(4, {"step": 4, "kind": "train", "loss": 0.5, "val_accuracy": 0.25, "task_loss": 1.0})
        watch.say("[hello]")
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("step 4 of 10: loss 0.5 val accuracy 0.25, 0 s left")
    assert lines[1] == "[hello]"
    text = io.StringIO()
    with Watch(0, 10, console=Console(file=text, width=200, force_terminal=True)) as watch:
        watch.step(10, {"loss": 0.5})
    assert "10/10" in text.getvalue()
    with pytest.raises(ValueError, match="progress must be"):
        Watch(0, 1, show="much")
    assert [duration(s) for s in (5, 720, 11100)] == ["5 s", "12 min", "3 h 05 min"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_bar_stays_whole_however_much_is_measured(width):
    text = io.StringIO()
    measured = dict.fromkeys(("loss", "accuracy", "top5", "learning_rate", "val_loss", "val_accuracy"), 0.123456)
    with Watch(0, 1350, show="bar", console=Console(file=text, width=width, force_terminal=True)) as watch:
        watch.step(675, {"kind": "train", **measured, "examples_per_second": 1234.5})
        with watch.console.capture() as seen:
            watch.console.print(watch._bar.get_renderable())
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in seen.get().splitlines()]
    bar = next(line for line in lines if "675/1350" in line)
    assert bar.count("━") + bar.count("╸") >= 10
    for name in measured:
        assert f"{name.replace('_', ' ')} 0.1235" in " ".join(" ".join(lines).split())


def test_monitor():
    monitor = Monitor("val_accuracy", patience=2, min_delta=0.1)
    assert not monitor.smaller_is_better
    found = [
        monitor.update(step, {"val_accuracy": value}) for step, value in enumerate((0.5, 0.55, 0.7, float("nan"), 0.7))
    ]
    assert found == [True, False, True, False, False]
    assert (monitor.best, monitor.best_step, monitor.exhausted) == (0.7, 2, True)
    other = Monitor("val_loss", patience=2)
    other.restore(monitor.state())
    assert other.state() == monitor.state()
    with pytest.raises(ValueError, match="'val_loss' is not measured; measured are val_mse"):
        Monitor().update(1, {"val_mse": 1.0})


def test_range_test_finds_a_rate_and_puts_everything_back(tmp_path):
    trainer = make_trainer(make_model(dropout=0.1), optimizer="momentum", averages=0.9, global_batch=50)
    data = make_data(200)
    trainer.fit(data, epochs=1, progress="none")
    before, step = weights(trainer.model), int(trainer.engine.step)
    seeds = [np.array(v) for v in trainer.model.variables]
    found = find_learning_rate(trainer, data, lowest=1e-4, highest=100.0, steps=60)
    assert found.rates[0] == pytest.approx(1e-4)
    assert 1e-3 < found.suggestion < 10
    for one, other in zip(
        before + seeds, weights(trainer.model) + [np.array(v) for v in trainer.model.variables], strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert int(trainer.engine.step) == step
    assert found.plot(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert len(found.write(tmp_path / "a.csv").read_text().splitlines()) == len(found.rates) + 1
    with pytest.raises(ValueError, match="must rise"):
        find_learning_rate(trainer, data, lowest=1.0, highest=0.1)


def test_memory_of_a_chain_is_counted_by_life():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1000])  # a given input is not counted
        a = tf.sin(x)  # 4,000 bytes
        b = tf.reshape(a, [10, 100])  # the same buffer
        c = tf.matmul(b, tf.compat.v1.placeholder(tf.float32, [100, 200]))  # 8,000 more
        d = tf.nn.relu(c)  # written over c
        tf.reduce_sum(d)  # 4 more, a is gone
    assert 12_000 <= peak_bytes(graph) <= 12_100


def test_memory_estimate_grows_with_the_batch():
    trainer = make_trainer(optimizer="adam", averages=0.9, global_batch=None)

    def spec(batch):
        return tf.TensorSpec((batch, 6)), tf.TensorSpec((batch,), tf.int64)

    engine = trainer.build(spec(8))
    small, large = estimate_memory(engine, spec(1000)), estimate_memory(engine, spec(2000))
    count = 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert count <= small.weights <= count + 16  # the dropout's seed
    assert small.averages == count
    assert 2 * count <= small.optimizer <= 2 * count + 16
    assert 1.9 < large.step / small.step < 2.1
    # At least the inputs, the hidden layer and its gradient, the logits and theirs are alive at once.
    assert small.step >= 4 * 1000 * (6 + 8 + 3)
    assert estimate_inference(trainer.model, spec(1000)[0]) < small.step
    with pytest.raises(ValueError, match="the batch size must be in the spec"):
        estimate_memory(engine, spec(None))
