"""A run: resume at the next step, logs, validation, early stopping, the best model, NaN, signals, changed settings."""

import dataclasses
import json
import logging
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf
from training.small import make_data, make_model, make_trainer, weights

import zoo
from zoo.data.stream import array_stream
from zoo.files import validated
from zoo.parallel import Towers
from zoo.training import (
    ConfigChangedError,
    InterruptedRunError,
    NonFiniteLossError,
    Trainer,
    read_checkpoint,
    write_checkpoint,
)
from zoo.training.loop import EarlyStopping
from zoo.training.losses import softmax_cross_entropy
from zoo.training.runfolder import MetricsLog
from zoo.training.state import RunState, restore_callbacks
from zoo.weights.tf1 import CheckpointNamesError


class CrashError(Exception):
    """Ends a run as a crash would."""


class StopAt(keras.callbacks.Callback):
    """Raises in the middle of an epoch."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise CrashError


def train(folder, *, seed=3, model=None, data=None, fit=None, **options):
    keras.utils.set_random_seed(seed)
    trainer = make_trainer(model or make_model(dropout=0.5), optimizer="momentum", **options)
    settings = {"epochs": 4, "folder": folder, "progress": "none", "checkpoint_steps": 2, "log_every": 3, **(fit or {})}
    return trainer, trainer.fit(data or make_data(), **settings)


def lines(folder):
    return [
        {k: v for k, v in line.items() if k != "examples_per_second"}
        for line in MetricsLog(folder / "metrics.jsonl").read()
    ]


def test_resume_goes_on_at_the_next_step_with_the_same_bits(tmp_path):
    data = make_data()
    fit = {"validation": data, "validate_every": 4}
    whole, history = train(tmp_path / "whole", fit=fit)
    for step, seed in ((7, 3), (4, 5), (1, 6)):  # only the first process draws the weights
        with pytest.raises(CrashError):
            train(tmp_path / "cut", seed=seed, fit={**fit, "callbacks": [StopAt(step)]})
    resumed, again = train(tmp_path / "cut", seed=99, fit=fit)
    assert (again.step, again.stopped) == (history.step, "complete") == (20, "complete")
    for one, other in zip(weights(whole.model), weights(resumed.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert [line["step"] for line in again.lines] == [line["step"] for line in history.lines]
    one, other = (read_checkpoint(tmp_path / name / "model.ckpt-20") for name in ("whole", "cut"))
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name], err_msg=name)
    same = ("step", "epoch", "batch", "monitor", "metric", "line_sums", "epoch_sums", "last", "config", "rate")
    assert {name: one.state[name] for name in same} == {name: other.state[name] for name in same}


def test_a_finished_run_can_be_made_longer(tmp_path, capsys):
    train(tmp_path)
    _, history = train(tmp_path, fit={"epochs": 6, "progress": "lines"})
    assert history.step == 30
    said = capsys.readouterr().err
    assert "holds this run at step 20, saved" in said
    assert "going on at step 21 (epoch 5, batch 1 of 5)" in said
    assert [line["step"] for line in lines(tmp_path)] == [3, 5, 6, 9, 10, 12, 15, 18, 20, 21, 24, 25, 27, 30]
    _, history = train(tmp_path, fit={"epochs": 6, "progress": "lines"})
    assert "it is complete" in capsys.readouterr().err


def test_a_changed_configuration_is_shown_and_refused(tmp_path, caplog):
    train(tmp_path)
    with pytest.raises(ConfigChangedError) as caught:
        train(tmp_path, learning_rate=0.2, clip_norm=1.0)
    assert caught.value.lines == ["clip_norm: null -> 1.0", "learning_rate: 0.1 -> 0.2"]
    with pytest.raises(ConfigChangedError, match=r"data\.examples: 40 -> 36"):
        train(tmp_path, data=make_data(36))
    with pytest.raises(ConfigChangedError, match=r"more\.note"):
        train(tmp_path, config={"note": "x"})
    with caplog.at_level(logging.WARNING, "zoo"):
        train(tmp_path, clip_norm=1.0, fit={"accept_changes": True, "epochs": 5})
    assert "changed: clip_norm: null -> 1.0" in caplog.text
    with pytest.raises(FileExistsError, match="holds a run at step 25"):
        train(tmp_path, fit={"resume": False})


def test_a_checkpoint_of_another_structure_is_refused_by_name(tmp_path):
    trainer, _ = train(tmp_path, fit={"epochs": 1})
    path = max(tmp_path.glob("model.ckpt-*"))
    saved = read_checkpoint(path)
    for field in dataclasses.fields(RunState):
        for state in ({**saved.state, field.name: "x"}, {k: v for k, v in saved.state.items() if k != field.name}):
            with pytest.raises(ValueError, match=rf"ckpt.*cannot be read: {field.name}"):
                validated(RunState, state, path)
    write_checkpoint(path, saved.arrays, saved.state | {"monitor": {"best": None}})
    for other in set(tmp_path.glob("model.ckpt-*")) - {path}:
        other.unlink()
    before, kept = weights(trainer.model), {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    with pytest.raises(ValueError, match=rf"{path.name} cannot be read: monitor.best_step: Field required"):
        train(tmp_path, model=trainer.model)
    assert all(np.array_equal(a, b) for a, b in zip(before, weights(trainer.model), strict=True))
    assert kept == {file: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}


def test_a_complete_run_changes_nothing_whatever_is_accepted(tmp_path, caplog, capsys):
    data = make_data()
    fit = {"validation": data, "recipe": "first", "summaries": "scalars"}
    train(tmp_path, fit=fit)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for again in (fit, {**fit, "accept_changes": True, "recipe": "second", "progress": "lines"}):
        changed = {"learning_rate": 0.2, "clip_norm": 1.0} if again.get("accept_changes") else {}
        _, history = train(tmp_path, fit=again, **changed)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert (history.first_step, history.step, history.stopped) == (20, 20, "complete")
        assert history.segments == [{"from_step": 0, "changes": [], "recipe": "first"}]
    assert "it is complete, so the changes change nothing" in capsys.readouterr().err


def test_the_segments_that_made_the_weights_are_kept(tmp_path):
    def go(epochs, recipe, rate, **fit):
        more = {"accept_changes": True, "epochs": epochs, "recipe": recipe, **fit}
        return train(tmp_path, fit=more, learning_rate=rate)[1].segments

    go(1, "a", 0.1)
    assert go(2, "longer", 0.1) == [{"from_step": 0, "changes": [], "recipe": "longer"}]
    second = {"from_step": 10, "changes": ["learning_rate: 0.1 -> 0.2"], "recipe": "b"}
    assert go(3, "b", 0.2) == [{"from_step": 0, "changes": [], "recipe": "longer"}, second]
    assert go(4, "b", 0.2)[1:] == [second]
    state = read_checkpoint(tmp_path / "model.ckpt-20").state
    assert [one["recipe"] for one in state["segments"]] == ["longer", "b"]


def test_another_model_is_one_error_with_all_names(tmp_path):
    train(tmp_path)
    other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(9), keras.layers.Dense(3)])
    with pytest.raises(CheckpointNamesError, match=r"the run has \[6, 9\], the checkpoint \[6, 8\]"):
        train(tmp_path, model=other, fit={"accept_changes": True, "epochs": 5})


def test_the_folder_is_locked_and_foreign_files_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    seen = []

    class Second(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            try:
                train(tmp_path)
            except BlockingIOError as error:
                seen.append(str(error))

    train(tmp_path, fit={"callbacks": [Second()], "epochs": 1})
    assert "another process is training" in seen[0]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_damaged_newest_checkpoint_costs_two_steps_not_the_run(tmp_path, caplog):
    whole, _ = train(tmp_path / "whole")
    train(tmp_path / "cut", fit={"epochs": 3})
    newest = tmp_path / "cut" / "model.ckpt-15"
    newest.write_bytes(newest.read_bytes()[:-7])
    resumed, _ = train(tmp_path / "cut")
    assert "model.ckpt-15" in caplog.text
    for one, other in zip(weights(whole.model), weights(resumed.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_validation_does_not_disturb_training(tmp_path):
    data = make_data()
    plain, _ = train(tmp_path / "a", fit={"restore_best": False})
    watched, history = train(
        tmp_path / "b", fit={"validation": make_data(20, 1), "validate_every": 3, "restore_best": False}
    )
    for one, other in zip(weights(plain.model), weights(watched.model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [line["step"] for line in history.lines if line["kind"] == "validation"] == [3, 6, 9, 12, 15, 18, 20]
    assert watched.evaluate(make_data(20, 1))["loss"] == pytest.approx(history.lines[-1]["val_loss"], abs=1e-6)
    assert data is not None


def test_early_stopping_and_the_best_model_also_after_a_resume(tmp_path):
    data, other = make_data(), (make_data(20, 1)[0], np.roll(make_data(20, 1)[1], 1))  # validation gets worse
    fit = {"validation": other, "patience": 3, "epochs": 50}
    with pytest.raises(CrashError):
        train(tmp_path, data=data, fit={**fit, "callbacks": [StopAt(8)]})
    trainer, history = train(tmp_path, data=data, fit=fit)
    values = {line["step"]: line["val_loss"] for line in history.lines if line["kind"] == "validation"}
    best = min(values, key=values.get)
    assert history.stopped == "early stopping"
    assert (history.best_step, history.best) == (best, values[best])
    assert history.step == best + 3 * 5
    assert trainer.evaluate(other)["loss"] == pytest.approx(values[best], abs=1e-6)
    # Once more from the finished folder, and without any folder: the same model.
    again, _ = train(tmp_path, data=data, fit=fit)
    assert again.evaluate(other)["loss"] == pytest.approx(values[best], abs=1e-6)
    memory, _ = train(None, data=data, fit=fit)
    assert memory.evaluate(other)["loss"] == pytest.approx(values[best], abs=1e-6)


@pytest.mark.parametrize("steps_per_call", [1, 4])
def test_nan_stops_and_says_where(tmp_path, steps_per_call):
    inputs, labels = make_data()
    labels = np.minimum(labels, 1)
    labels[13] = 2

    def loss(labels, outputs):
        values = softmax_cross_entropy(labels, outputs)
        return tf.where(labels == 2, np.nan, values)

    with pytest.raises(NonFiniteLossError) as caught:
        train(tmp_path, data=(inputs, labels), steps_per_call=steps_per_call, loss=loss)
    text = str(caught.value)
    assert "numbers 13 of the arrays" in text
    assert "labels 2" in text
    assert "their inputs are finite" in text
    assert "learning rate 0.1, epoch 1, batch" in text
    step = int(text.split("at step ")[1].split(" ", maxsplit=1)[0])
    batch = int(text.split("batch ")[1].split(")", maxsplit=1)[0])
    assert step == batch
    good = read_checkpoint(sorted(tmp_path.glob("model.ckpt-*"))[-1])
    assert good.state["step"] < step
    assert all(np.isfinite(array).all() for array in good.arrays.values())
    assert str(good.path) in text


def test_nan_in_a_stream_stops_and_says_where(tmp_path):
    inputs, labels = make_data()
    inputs[13] = np.nan
    with pytest.raises(NonFiniteLossError, match="their inputs hold NaN or Inf"):
        train(tmp_path, data=array_stream(inputs, labels, batch_size=8))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (np.where(np.arange(40)[:, None] == 13, np.inf, x), y), "1 of 40 inputs hold NaN .* number 13"),
        (
            lambda x, y: (x, y + (np.arange(40) == 5) * 9),
            r"0\.\.2 for 3 classes; 1 of 40 do not, the first is number 5",
        ),
        (lambda x, y: (x.tolist(), (y - 1).tolist()), r"labels lie in 0\.\.2"),
        (lambda x, y: (x, y.astype("float32")), "whole numbers from 0; received float32"),
        (lambda x, y: (x, y, np.where(y == 1, np.nan, 1.0)), "weights hold NaN"),
    ],
)
@pytest.mark.parametrize("part", ["training", "validation"])
def test_arrays_are_looked_at_before_the_first_step(tmp_path, change, message, part):
    good, bad = make_data(), change(*make_data())
    data, validation = (bad, good) if part == "training" else (good, bad)
    with pytest.raises(ValueError, match=f"{part} data: .*{message}"):
        make_trainer().fit(data, validation=validation, epochs=1, folder=tmp_path / "run", progress="none")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"progress": "dots"}, "progress must be auto"),
        ({"summaries": "some"}, "some"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes"),
        ({"keep": 0}, "keep must be at least 1"),
        (
            {"validation": make_data(), "monitor": "val_accurracy"},
            "'val_accurracy' is not measured; measured are val_acc",
        ),
        ({"patience": 2}, "patience needs validation data"),
        ({"validate_every": 2}, "validate_every needs validation data"),
        ({"profile": (5, 3)}, "profile must be"),
    ],
)
def test_a_refused_option_leaves_nothing(tmp_path, option, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "run", fit=option)
    assert not (tmp_path / "run").exists()


def test_too_high_a_rate_says_so(tmp_path):
    with pytest.raises(ArithmeticError, match=r"[Ll]ower the learning rate"):
        train(tmp_path, learning_rate=1e30)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_and_leave(tmp_path, number, status):
    class Kill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(InterruptedRunError) as caught:
        train(tmp_path, fit={"callbacks": [Kill()], "checkpoint_steps": None})
    assert isinstance(caught.value, SystemExit)
    assert caught.value.code == status
    assert "stopped after step 3" in str(caught.value)
    assert read_checkpoint(tmp_path / "model.ckpt-3").state["batch"] == 3
    assert signal.getsignal(number) == before
    whole, _ = train(tmp_path / "whole")
    resumed, _ = train(tmp_path)
    for one, other in zip(weights(whole.model), weights(resumed.model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_keras_callbacks_see_epochs_and_keep_their_counters(tmp_path):
    class Count(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.epochs_seen, self.logs = 0, []

        def on_epoch_end(self, epoch, logs=None):
            self.epochs_seen += 1
            self.logs.append((epoch, sorted(logs)))

    count = Count()
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=10.0)
    fit = {"callbacks": [count, plateau], "validation": make_data(8, 1), "epochs": 3}
    trainer, _ = train(tmp_path, fit=fit)
    names = ["accuracy", "learning_rate", "loss", "regularization_loss", "task_loss"]
    names += ["val_accuracy", "val_loss", "val_regularization_loss"]
    assert count.logs == [(number, sorted(names)) for number in range(3)]
    assert float(trainer.optimizer.learning_rate) == pytest.approx(0.025)
    count.epochs_seen = 0
    train(tmp_path, fit={**fit, "epochs": 4})
    assert count.epochs_seen == 4  # 3 from the checkpoint
    stopping = keras.callbacks.EarlyStopping("loss", patience=1, min_delta=10.0)
    _, history = train(tmp_path / "b", fit={"callbacks": [stopping], "epochs": 9})
    assert (history.stopped, history.step) == ("callback", 10)


class Counter(keras.callbacks.Callback):
    """Counts epochs from a number of its own, so that nobody's counter looks like another's."""

    def __init__(self, first):
        super().__init__()
        self.count = first

    def on_epoch_end(self, epoch, logs=None):
        self.count += 1


class OtherCounter(Counter):
    """Another class with the same attribute."""


@pytest.mark.parametrize(
    ("before", "after", "expected", "said"),
    [
        ([Counter, OtherCounter], [Counter, OtherCounter], [102, 202], ""),
        ([Counter, OtherCounter], [OtherCounter, Counter], [202, 102], ""),
        ([Counter, OtherCounter], [OtherCounter], [202], "test_loop.Counter, the run has 0: they are dropped"),
        ([OtherCounter], [Counter, OtherCounter], [1, 102], ""),
        ([Counter, Counter], [Counter, Counter], [102, 202], ""),
        ([Counter, Counter], [Counter], [1], "test_loop.Counter, the run has 1: they begin anew"),
        ([], [Counter], [1], ""),
    ],
)
def test_a_changed_list_of_callbacks_gives_nobody_anothers_counters(tmp_path, caplog, before, after, expected, said):
    def counters(kinds, step):
        return [kind(step * number) for number, kind in enumerate(kinds, 1)]

    train(tmp_path, fit={"callbacks": counters(before, 100), "epochs": 1})
    later = counters(after, 0)
    train(tmp_path, fit={"callbacks": later, "epochs": 2})
    assert [one.count for one in later] == expected
    assert said in caplog.text if said else "counters" not in caplog.text


def test_counters_of_a_checkpoint_of_before_are_taken_by_position_where_the_number_is_the_same(caplog):
    one, other = Counter(0), OtherCounter(0)
    restore_callbacks([one, other], [{"count": 5}, {"count": 6}])
    assert (one.count, other.count) == (5, 6)
    assert not caplog.text
    restore_callbacks([one], [{"count": 7}, {"count": 8}])
    assert one.count == 5
    assert "counters of 2 unknown" in caplog.text


def test_data_of_unknown_and_of_endless_length(tmp_path):
    inputs, labels = make_data()
    known = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(8)
    unknown = known.filter(lambda *_: True)
    endless = known.repeat()
    found = []
    for name, data, more in (("a", known, {}), ("b", unknown, {}), ("c", endless, {"steps_per_epoch": 5})):
        with pytest.raises(CrashError):
            train(tmp_path / name, data=data, fit={"callbacks": [StopAt(8)], **more})
        trainer, history = train(tmp_path / name, data=data, fit=more)
        assert history.step == 20
        found.append(weights(trainer.model))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_variable_made_later_is_saved_too(tmp_path):
    class More(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                self.model.late = self.model.add_weight(shape=(2,), initializer="ones", name="late", trainable=False)

    train(tmp_path, fit={"callbacks": [More()]})
    saved = read_checkpoint(tmp_path / "model.ckpt-20")
    assert [name for name in saved.arrays if name.endswith("late")]
    with pytest.raises(CheckpointNamesError, match="in the checkpoint only"):
        train(tmp_path, fit={"epochs": 5})


def test_history_config_and_journal(tmp_path):
    _, history = train(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["optimizer"]["momentum"] == 0.9
    assert config["data"] == {"batches": 5, "examples": 40, "global_batch": 8}
    assert [line["step"] for line in history.lines] == [3, 5, 6, 9, 10, 12, 15, 18, 20]
    journal = MetricsLog(tmp_path / "metrics.jsonl")
    with open(journal.path, "a") as file:
        file.write('{"step": 21, "lo')  # a killed process
    assert len(journal.cut(12)) == 6
    assert journal.path.read_text().count("\n") == 6
    journal.write({"step": 13, "loss": float("nan"), "other": np.float32(2)})
    assert journal.read()[-1] == {"step": 13, "loss": None, "other": 2.0}


def test_early_stopping():
    monitor = EarlyStopping("val_accuracy", patience=2, min_delta=0.1)
    assert not monitor.smaller_is_better
    found = [
        monitor.update(step, {"val_accuracy": value}) for step, value in enumerate((0.5, 0.55, 0.7, float("nan"), 0.7))
    ]
    assert found == [True, False, True, False, False]
    assert (monitor.best, monitor.best_step, monitor.exhausted) == (0.7, 2, True)
    other = EarlyStopping("val_loss", patience=2)
    other.restore(monitor.state())
    assert other.state() == monitor.state()
    with pytest.raises(ValueError, match="'val_loss' is not measured; measured are val_mse"):
        EarlyStopping().update(1, {"val_mse": 1.0})


@pytest.mark.parametrize(
    "options",
    [{}, {"clip_norm": 1.0}, {"steps_per_call": 4}, {"accumulate": 2}, {"jit_compile": True}, {"towers": 2}],
    ids=str,
)
def test_nan_that_relu_hides_stops_the_run_at_its_step(options, tmp_path):
    layers = keras.layers
    if options.pop("towers", None):
        options["strategy"] = Towers([device.name for device in tf.config.list_logical_devices("CPU")[:2]])
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "relu", name="a"), layers.Dense(2)])
    inputs = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    labels = np.arange(64) % 2
    inputs[45, 2] = np.nan  # the third batch's number 13
    data = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(16)
    with pytest.raises(NonFiniteLossError) as caught:
        make_trainer(model, global_batch=None, **options).fit(
            data, steps=300, log_every=50, checkpoint_steps=2, folder=tmp_path, progress="none"
        )
    text = str(caught.value)
    kind = "loss" if options.get("jit_compile") else "gradient"  # XLA's ReLU lets NaN through
    assert text.startswith(f"the {kind} is not finite at step 3 (learning rate 0.1, epoch 1, batch 3)")
    assert "examples 13 of 16 (labels 1; their inputs hold NaN or Inf)" in text
    assert f"last good checkpoint is {tmp_path / 'model.ckpt-2'}" in text


def _zoo_model(decay):
    def network(inputs, *, is_training=False):
        net = zoo.layers.batch_norm(inputs, decay=decay, is_training=is_training, scope="norm")
        return zoo.layers.fully_connected(net, 3, activation_fn=None, scope="logits"), {}

    return zoo.Model(network, input_shape=(6,))


def _keras_model(decay):
    layers = keras.layers
    return keras.Sequential([keras.Input((6,)), layers.BatchNormalization(momentum=decay), layers.Dense(3)])


def _dense_net(decay):
    return zoo.densenet(block_config=(1,), growth_rate=2, input_shape=(8, 8, 3), num_classes=3, batch_norm_decay=decay)


def _warnings(model, steps, caplog, shape=(6,)):
    caplog.clear()
    data = np.ones([8, *shape], "float32"), np.zeros(8, "int64")
    Trainer(model, global_batch=8).fit(data, steps=steps, progress="none")
    return [record.getMessage() for record in caplog.records if "batch norm keeps" in record.getMessage()]


@pytest.mark.parametrize(("make", "shape"), [(_zoo_model, (6,)), (_keras_model, (6,)), (_dense_net, (8, 8, 3))])
def test_a_run_too_short_for_the_moving_statistics_is_named(make, shape, caplog):
    (said,) = _warnings(make(0.9), 9, caplog, shape)
    assert "keeps 0.9 of its moving statistics" in said
    assert "about 10 steps" in said
    assert "this run has 9" in said


@pytest.mark.parametrize("make", [_zoo_model, _keras_model])
def test_runs_that_are_long_enough_frozen_or_warm_say_nothing(make, caplog):
    assert not _warnings(make(0.9), 10, caplog)
    frozen = make(0.9)
    frozen.layers[0].trainable = False
    assert not _warnings(frozen, 9, caplog)
    warm = make(0.9)
    for variable in warm.non_trainable_variables:
        variable.assign(variable + 1.0)
    assert not _warnings(warm, 9, caplog)
