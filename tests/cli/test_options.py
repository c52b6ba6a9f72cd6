"""Every option of train, retrain, predict and evaluate: where it has no effect it is refused, else it is heard."""

import functools
import hashlib
import importlib
import json

import numpy as np
import pytest
import typer

import zoo.transfer.pipeline
from zoo.data import digits
from zoo.data.images import encode_png
from zoo.transfer.settings import Settings


class HeardError(ValueError):
    """Ends a command where its work would begin."""


def module_of(command):
    return importlib.import_module(f"zoo.cli.{command}")


def parameters(command):
    app = module_of(command).app
    return {p.name: p for p in typer.main.get_command(app).params if p.name != "help"}


def words_of(parameter, value):
    """An option as it is typed: ``--no-x`` for a switch that is on, one word for one that is off."""
    if parameter.param_type_name == "argument":
        return []
    if value is True:
        return [parameter.opts[0]]
    if value is False:
        return [parameter.secondary_opts[0]]
    return [parameter.opts[0], str(value)]


@pytest.fixture
def devices(monkeypatch):
    """Device settings are noted instead of made."""
    noted = []
    monkeypatch.setattr("zoo.devices.DeviceSettings.apply", lambda self: noted.append(repr(self)))
    return noted


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    chance = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("options")
    for label in ("a", "b"):
        (root / "classes" / label).mkdir(parents=True)
        for number in range(20):
            data = encode_png(chance.integers(0, 255, (32, 32, 3)).astype("uint8"))
            (root / "classes" / label / f"{number}.png").write_bytes(data)
            part = ("train", "validation", "test")[min(number // 8, 2)]
            (root / "subsets" / part / label).mkdir(parents=True, exist_ok=True)
            (root / "subsets" / part / label / f"{number}.png").write_bytes(data)
    return root


# A value for every option, other than its default; None: it is the subject itself, or nothing can be tried here.
TRAIN = {
    "net": None, "data": None, "data_dir": ".", "download": True, "split": "writers", "validation": 0.3,
    "on_damage": "skip", "augment": False, "epochs": 3, "batch": 7, "optimizer": "lion", "learning_rate": 0.5,
    "schedule": "constant", "warmup_steps": 3, "label_smoothing": 0.2, "clip_norm": 1.5, "averages": 0.5,
    "train_only": "logits", "accumulate": 2, "precision": "bfloat16", "steps_per_call": 2, "jit_compile": True,
    "seed": 9, "deterministic": True, "option": "dropout_keep_prob=0.5", "out": "elsewhere", "resume": False,
    "accept_changes": True, "checkpoint_steps": 3, "checkpoint_minutes": 1.5, "keep": 2, "keep_every_hours": 1.5,
    "validate_every": 2, "patience": 2, "summaries": "none", "profile": "1:2", "progress": "none", "find_lr": True,
    "licence": "mine", "devices": "cpu", "memory_growth": False, "gpu_memory_limit": "100", "intra_op_threads": 1,
    "inter_op_threads": 1, "log_device_placement": True, "soft_placement": False, "strategy": "towers", "num_gpus": 1,
    "strict_gpus": True, "batch_norm": "sync", "reduction": "nccl", "asynchronous": True, "show_placement": True,
    "peer_timeout": 5.0, "config": None, "print_config": None,  # test_config.py
}  # fmt: skip
REFUSED = {  # by data: what has no effect there
    "digits": {"data_dir", "download", "on_damage"},
    "classes": {"data_dir", "download", "split", "on_damage"},
    "subsets": {"data_dir", "download", "split", "on_damage", "validation"},
    "records": {"data_dir", "download", "split", "validation"},
    "single": {"num_gpus", "strict_gpus", "batch_norm", "reduction", "asynchronous", "peer_timeout"},
}
ABOUT_DATA = ("data_dir", "download", "split", "validation", "on_damage", "augment", "seed", "batch")


@pytest.fixture
def heard(monkeypatch, devices):
    """What a trainer is told, with the first batch of every part where that is looked at; nothing is trained."""
    looks = {"inside": False}
    monkeypatch.setattr(digits, "load", functools.cache(digits.load))

    class Noting:
        def __init__(self, model, **settings):
            self.seen = {**settings, "learning_rate": repr(settings["learning_rate"])}
            if hasattr(settings["learning_rate"], "get_config"):
                self.seen["learning_rate"] = str(settings["learning_rate"].get_config())
            self.seen["model"] = (model.dtype_policy.name, str(model.options), model.seed)
            self.seen["strategy"] = repr(type(settings["strategy"]))

        def fit(self, data, *, validation, **run):
            for name, part in (("train", data), ("validation", validation)):
                run[name] = part and str((part.examples, part.batches))
                if part and looks["inside"]:
                    batch = [np.asarray(one).tobytes() for one in next(iter(part(0)))]
                    run[name] += hashlib.sha256(b"".join(batch)).hexdigest()
            raise HeardError(json.dumps({**self.seen, **run, "devices": devices}, default=str, sort_keys=True))

    monkeypatch.setattr("zoo.training.Trainer", Noting)
    monkeypatch.setattr("zoo.training.find_learning_rate", lambda *_: _stop("find"))
    monkeypatch.setattr("tensorflow.config.experimental.enable_op_determinism", lambda: devices.append("exact"))
    return looks


def _stop(text):
    raise HeardError(text)


def tell(zoo_command, devices, *words):
    devices.clear()
    said = zoo_command(*words)
    assert said.code == 2, said
    return said.err.strip().removeprefix("zoo: "), said.out


def check(zoo_command, devices, looks, base, values, refused, only=None):
    """Gives every option by itself: refused with its name, or the command does something else than without."""
    known = parameters("train")
    assert known.keys() == values.keys(), "a new option: say here how it is tried"
    usually = {}
    for name, value in values.items():
        if value is None or (only and name not in only):
            continue
        looks["inside"] = name in ABOUT_DATA
        if looks["inside"] not in usually:
            usually[looks["inside"]] = tell(zoo_command, devices, *base)
        usual = usually[looks["inside"]]
        assert usual[0].startswith("{"), usual
        words = words_of(known[name], value)
        found = tell(zoo_command, devices, *base, *words)
        if name in refused:
            named = name.rpartition("_")[2][-8:] in found[0].lower()  # words differ: synchronous, GPUs
            assert named and not found[0].startswith("{"), (name, found)
        else:
            assert found[0].startswith(("{", "--find-lr trains nothing")), (name, found)
            assert found != usual, f"train ignores {words}"


@pytest.mark.slow
def test_train_on_digits(zoo_command, heard, devices, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = REFUSED["digits"] | REFUSED["single"]
    values = {**TRAIN, "licence": None}  # in the card: test_train.py
    base = ("train", "lenet5", "--epochs", "2", "--no-resume")
    values |= {"accept_changes": None, "resume": None}  # exclude each other, and that is refused: test_train.py
    check(zoo_command, devices, heard, base, values, refused)


@pytest.mark.parametrize("data", ["classes", "subsets", "records"])
def test_train_on_pictures_and_records(zoo_command, heard, devices, tmp_path, monkeypatch, pictures, data):
    monkeypatch.chdir(tmp_path)
    place = pictures / data
    if data == "records" and not place.exists():
        words = ("tfrecord", "build", pictures / "classes", place, "--validation", 0.2, "--test", 0.2, "--shards", 1)
        assert zoo_command(*words).code == 0
    base = ("train", "lenet5", "--data", place, "--epochs", "2", "--batch", "4")
    refused = REFUSED[data]
    quiet = {"on_damage": None} if data == "records" else {}  # where nothing is damaged it reads the same
    values = TRAIN | quiet
    check(zoo_command, devices, heard, base, values, refused, ABOUT_DATA)


def test_train_of_the_word_model_takes_or_refuses_every_option(zoo_command, devices, tmp_path, monkeypatch):
    fixed = {
        "data_dir", "download", "split", "on_damage", "validation", "augment", "optimizer", "schedule", "warmup_steps",
        "label_smoothing", "clip_norm", "averages", "train_only", "accumulate", "jit_compile", "validate_every",
        "patience", "find_lr", "licence",
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    seen = lambda *args, **settings: _stop(json.dumps([args, settings, devices], default=str))  # noqa: E731
    monkeypatch.setattr(module_of("train"), "train_words", seen)
    known = parameters("train")
    base = ("train", "word_lm", "--data", tmp_path)
    usual = tell(zoo_command, devices, *base)
    for name, value in TRAIN.items():
        if value is None or name in ("accept_changes",):
            continue
        found = tell(zoo_command, devices, *base, *words_of(known[name], value))
        if name in fixed:
            assert f"takes no --{name.replace('_', '-')}" in found[0], (name, found)
        else:
            assert found[0].startswith("["), (name, found)
            assert found != usual, name


RETRAIN = {
    "images": None, "out": "elsewhere", "net": "cifarnet", "weights": "embedded", "size": 64, "bottleneck": "final",
    "views": 2, "fit": "crop", "background": "#102030", "orient": False, "layout": "classes", "validation": 0.2,
    "test": 0.2, "max_bad": "5", "conflicts": "first", "near": 0.5, "balance": True, "head": "sgd", "hidden": 5,
    "dropout": 0.5, "finetune_from": "conv2", "epochs": 3, "finetune_rate": 0.1, "train_batch_norm": True, "seed": 9,
    "batch_size": 3, "workers": 1, "cache": "cache", "export": False, "accept_changes": True,
    "option": "dropout_keep_prob=0.5", "demo": True,
    "devices": "cpu", "memory_growth": False, "gpu_memory_limit": "100", "intra_op_threads": 1,
    "inter_op_threads": 1, "log_device_placement": True, "soft_placement": False, "config": None, "print_config": None,
}  # fmt: skip


@pytest.mark.parametrize("data", ["classes", "subsets"])
def test_retrain(zoo_command, devices, tmp_path, monkeypatch, pictures, data):
    monkeypatch.chdir(tmp_path)

    def noting(images, out, *, on_scan, say, progress, **settings):
        from zoo.data.scan import scan_images

        fields = {name: settings.pop(name) for name in list(settings) if name in Settings.__dataclass_fields__}
        Settings(**fields)
        on_scan(scan_images(images))
        raise HeardError(json.dumps([str(images), str(out), fields, settings, devices], default=str))

    monkeypatch.setattr(zoo.transfer.pipeline, "retrain", noting)
    refused = {"hidden", "dropout", "epochs", "finetune_rate", "train_batch_norm", "demo"}
    if data == "subsets":
        refused |= {"validation", "test"}
    known = parameters("retrain")
    assert known.keys() == RETRAIN.keys(), "a new option: say here how it is tried"
    base = ("retrain", pictures / data, "--net", "lenet5", "--weights", "none")
    usual = tell(zoo_command, devices, *base)
    assert usual[0].startswith("[")
    for name, value in RETRAIN.items():
        if value is None or (data == "subsets" and name not in ("validation", "test", "seed")):
            continue
        found = tell(zoo_command, devices, *base, *words_of(known[name], value))
        assert found[0].startswith("[") == (name not in refused), (name, found)
        assert found != usual, f"retrain ignores {name}"


PREDICT = {
    "net": None, "images": None, "weights": "imagenet", "top": 2, "labels": "labels.txt", "batch_size": 3,
    "option": "num_classes=4", "reject_below": 0.5, "as_json": True, "as_csv": True,
}  # fmt: skip


@pytest.mark.parametrize("subject", ["network", "train", "retrain"])
def test_predict(zoo_command, tmp_path, monkeypatch, subject):
    monkeypatch.chdir(tmp_path)
    module = module_of("predict")
    (tmp_path / "p.png").write_bytes(b"no matter what")
    (tmp_path / "run.json").write_text(json.dumps({"kind": subject}))
    note = lambda *args, **how: json.dumps([args, how], default=str)  # noqa: E731
    monkeypatch.setattr(module, "_network_predictor", note)
    monkeypatch.setattr(module, "load_any_predictor", note)
    monkeypatch.setattr(module, "name_pictures", lambda *args, **how: _stop(note(*args, **how)))
    known = parameters("predict")
    assert known.keys() == PREDICT.keys(), "a new option: say here how it is tried"
    base = ("predict", "lenet5", "p.png", "--weights", "w") if subject == "network" else ("predict", tmp_path, "p.png")
    usual = tell(zoo_command, [], *base)
    assert usual[0].startswith("[")
    for name, value in PREDICT.items():
        if value is None:
            continue
        found = tell(zoo_command, [], *base, *words_of(known[name], value))
        refused = subject != "network" and name in ("weights", "labels", "option")
        assert found[0].startswith("[") == (not refused), (name, found)
        assert found != usual, f"predict ignores {name}"


EVALUATE = {"run": None, "data": None, "data_dir": ".", "batch_size": 3, "max_bad": "5", "as_json": True}


@pytest.mark.parametrize("data", ["digits", "mnist", "pictures", "records"])
def test_evaluate(zoo_command, tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    module = module_of("evaluate")
    for name in ("pictures", "records", "run"):
        (tmp_path / name).mkdir()
    (tmp_path / "records" / "manifest.json").write_text("{}")
    (tmp_path / "run" / "run.json").write_text(json.dumps({"kind": "train"}))
    note = lambda *args: _stop(json.dumps(args, default=str))  # noqa: E731
    monkeypatch.setattr(module, "_judge_pictures", note)
    monkeypatch.setattr(module, "_judge_stream", note)
    known = parameters("evaluate")
    assert known.keys() == EVALUATE.keys(), "a new option: say here how it is tried"
    base = ("evaluate", "run", data)
    usual = tell(zoo_command, [], *base)
    for name, value in EVALUATE.items():
        if value is None or name == "as_json":  # its form: test_runs.py
            continue
        refused = (name == "data_dir" and data != "mnist") or (name == "max_bad" and data != "pictures")
        found = tell(zoo_command, [], *base, *words_of(known[name], value))
        assert found[0].startswith("[") == (not refused), (name, found)
        assert found != usual, f"evaluate ignores {name}"


def test_generate_draws_nothing_at_temperature_0(zoo_command, tmp_path):
    for option in (("--seed", "3"), ("--top-k", "5")):
        found = tell(zoo_command, [], "generate", tmp_path, "--temperature", "0", *option)
        assert f"leave out {option[0]}" in found[0]
