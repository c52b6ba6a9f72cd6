"""Whole runs on tiny pictures with a tiny trunk: what is written, reused, resumed, and refused."""

import csv
import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from transfer.retrain_support import TINY, colour_pictures, write_folder

from zoo.transfer import judge, load_predictor, retrain
from zoo.transfer.head import Head
from zoo.transfer.run import load_facts


def test_a_run_leaves_what_it_promises(finished):
    run, _, said = finished
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {
        "run.json", "report.html", "scan.json", "split.json", "head.safetensors", "predictions.csv",
        "suspicious.csv", "bad_files.csv", "model.keras", "saved_model", "settings.json",
    }  # fmt: skip
    assert not any(name.endswith((".tmp", ".partial", ".new", ".old")) for name in names)
    assert run.evaluation.accuracy == 1.0
    assert any("trunk: lenet5, untrained" in line for line in said)
    facts = load_facts(run.folder)
    assert facts["classes"] == sorted(run.scan.labels) == list(run.classes)
    rows = list(csv.DictReader((run.folder / "predictions.csv").open(encoding="utf-8")))
    assert len(rows) == 36 and {row["set"] for row in rows} == {"train", "validation", "test"}


def test_row_56_the_export_gives_names_and_the_training_paths_probabilities(finished):
    import tensorflow as tf

    run = finished[0]
    assert run.facts["export"]["largest_difference"] < 1e-4
    assert run.facts["export"]["same_label"] == run.facts["export"]["pictures"] == 16
    loaded = tf.saved_model.load(str(run.folder / "saved_model"))
    picture = run.scan.pictures[5]
    data = Path(picture.path).read_bytes()
    found = loaded.signatures["serving_default"](tf.constant([data]))
    assert found["label"][0].numpy().decode() == picture.label
    assert [name.decode() for name in found["classes"][0].numpy()] == list(run.classes)
    pixels = tf.io.decode_png(data, channels=3)[tf.newaxis]
    by_pixels = loaded.signatures["pixels"](pixels)
    np.testing.assert_allclose(by_pixels["probabilities"], found["probabilities"], atol=1e-6)


def test_the_saved_model_and_the_keras_file_agree_with_the_head(finished):
    run = finished[0]
    predictor = load_predictor(run.folder)
    some = run.scan.pictures[:4]
    found = predictor([Path(p.path).read_bytes() for p in some])
    np.testing.assert_allclose(found, [run.probabilities[p.sha256] for p in some], atol=1e-4)
    head = Head.load(run.folder / "head.safetensors")
    np.testing.assert_array_equal(head.weights, run.head.weights)


def test_the_same_command_again_reuses_the_cache_and_gives_the_same_head(finished, pictures, tmp_path):
    run, cache, _ = finished
    said = []
    again = retrain(pictures, tmp_path / "again", cache=cache, export=False, say=said.append, **TINY)
    assert "bottlenecks: 36 pictures, 36 found in the cache" in said
    np.testing.assert_array_equal(again.head.weights, run.head.weights)
    assert again.head.temperature == run.head.temperature
    assert again.split.sets == run.split.sets


def test_new_pictures_and_a_new_class_keep_what_was_there(finished, pictures, tmp_path):
    _, cache, _ = finished
    folder = tmp_path / "pictures"
    shutil.copytree(pictures, folder)
    first = retrain(folder, tmp_path / "run", cache=cache, export=False, **TINY)
    write_folder(folder, names=("black", "black", "black"), per_class=3, seed=9)
    (tmp_path / "run" / "saved_model").mkdir()
    (tmp_path / "run" / "model.keras").write_bytes(b"knows nothing of black")
    said = []
    second = retrain(folder, tmp_path / "run", cache=cache, export=False, say=said.append, **TINY)
    assert any("45 pictures, 36 found in the cache" in line for line in said)
    assert all(second.split.sets[key] == where for key, where in first.split.sets.items())
    assert second.facts["changes"][:2] == ["new class: black", "9 pictures added"]
    report = (tmp_path / "run" / "report.html").read_text()
    assert "new class: black" in report
    assert "This run wrote no model" in report
    assert not {"model.keras", "saved_model"} & {path.name for path in (tmp_path / "run").iterdir()}
    third = retrain(folder, tmp_path / "run", cache=cache, export=False, views=2, accept_changes=True, **TINY)
    assert third.facts["changes"][0] == "views was 0, is 2" and "pictures added" not in str(third.facts["changes"])


def test_decisions_in_the_csv_are_read_back(finished, pictures, tmp_path):
    _, cache, _ = finished
    out = tmp_path / "run"
    run = retrain(pictures, out, cache=cache, export=False, **TINY)
    dropped, moved = run.scan.pictures[0], run.scan.pictures[1]
    lines = ["decision,path,label,suggestion,confidence,reason,sha256"]
    lines += [f"drop,{dropped.name},{dropped.label},,,,{dropped.sha256}", f"red,{moved.name},,,,,{moved.sha256}"]
    (out / "suspicious.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    again = retrain(pictures, out, cache=cache, export=False, **TINY)
    labels = {p.name: p.label for p in again.scan.pictures}
    assert dropped.name not in labels and labels[moved.name] == "red"
    assert "drop" in (out / "suspicious.csv").read_text(encoding="utf-8")


def test_a_picture_that_a_person_kept_is_no_longer_called_suspicious(finished, tmp_path):
    folder, out = write_folder(tmp_path / "p"), tmp_path / "run"
    (folder / "green" / "same.png").write_bytes((folder / "red" / "000.png").read_bytes())
    how = {"cache": finished[1], "export": False, **TINY}
    first = [suspect["path"] for suspect in retrain(folder, out, **how).facts["suspicious"]]
    assert first == ["green/same.png", "red/000.png"]
    text = (out / "suspicious.csv").read_text(encoding="utf-8")
    (out / "suspicious.csv").write_text(text.replace("\n,red/000.png", "\nkeep,red/000.png"), encoding="utf-8")
    assert [suspect["path"] for suspect in retrain(folder, out, **how).facts["suspicious"]] == first[:1]
    rows = list(csv.DictReader((out / "suspicious.csv").open(encoding="utf-8")))
    assert [(row["decision"], row["path"], row["suggestion"]) for row in rows] == [
        ("", "green/same.png", "red"),
        ("keep", "red/000.png", "green"),
    ]


def test_arrays_and_data_sets(finished, tmp_path):
    import tensorflow as tf

    _, cache, _ = finished
    pixels, labels = colour_pictures()
    run = retrain(pixels, tmp_path / "a", labels=labels, cache=cache, export=False, **TINY)
    assert run.classes == ("0", "1", "2") and run.evaluation.accuracy == 1.0
    data = tf.data.Dataset.from_tensor_slices((pixels, labels)).batch(7)
    other = retrain(data, tmp_path / "b", cache=cache, export=False, **TINY)
    np.testing.assert_array_equal(other.head.weights, run.head.weights)
    with pytest.raises(TypeError, match="an array with labels="):
        retrain(pixels, tmp_path / "c", **TINY)
    with pytest.raises(ValueError, match="a label for each of the 36"):
        retrain(pixels, tmp_path / "d", labels=labels[:3], **TINY)
    with pytest.raises(ValueError, match="uint8"):
        retrain(pixels / 255.0, tmp_path / "e", labels=labels, **TINY)


def test_heads_trained_by_steps(finished, pictures, tmp_path):
    _, cache, _ = finished
    how = {"cache": cache, "export": False, "bottleneck": "final", **TINY}
    run = retrain(pictures, tmp_path / "adam", head="adam", hidden=8, dropout=0.2, **how)
    assert run.evaluation.accuracy > 0.75 and run.head.hidden_weights.shape[1] == 8
    again = Head.load(tmp_path / "adam" / "head.safetensors")
    np.testing.assert_array_equal(again.hidden_bias, run.head.hidden_bias)
    picture = run.scan.pictures[0]
    from zoo.transfer.run import Predictor

    direct = Predictor(run.model, run.reader, run.classes)([Path(picture.path).read_bytes()])[0]
    np.testing.assert_allclose(direct, run.probabilities[picture.sha256], atol=1e-4)
    plain = retrain(pictures, tmp_path / "sgd", head="sgd", balance=True, **how)
    assert plain.evaluation.accuracy == 1.0 and plain.head.hidden_weights is None


def test_evaluation_on_other_pictures(finished, tmp_path):
    run = finished[0]
    result, known = judge(run.folder, write_folder(tmp_path / "other", per_class=3, seed=5))
    assert result.count == 9 and result.accuracy == 1.0 and not any(known.values())
    same, known = judge(run.folder, run.scan.root)
    parts = list(run.split.sets.values())
    assert same.count == 36 and known == {part: parts.count(part) for part in ("train", "validation")}
    assert known["validation"] > 0
    with pytest.raises(ValueError, match="does not know the class black"):
        judge(run.folder, write_folder(tmp_path / "new", names=("red", "green", "black"), per_class=1))


BAD = (
    ({"bottleneck": "Mixed_9z"}, "--bottleneck is auto, final, or different end points"),
    ({"bottleneck": ""}, "--bottleneck is auto, final, or different end points"),
    ({"bottleneck": "conv2+conv2"}, "--bottleneck is auto, final, or different end points"),
    ({"finetune_from": "Mixed_9z"}, "--finetune-from is one of conv1"),
    ({"finetune_from": ""}, "--finetune-from is one of conv1"),
    ({"finetune_from": "conv2", "validation": 0.0}, "needs a validation part"),
    ({"finetune_from": "conv2", "finetune_rate": float("nan")}, "finetune_rate must be above 0"),
    ({"finetune_from": "conv2", "epochs": 0}, "epochs must be above 0"),
    ({"train_batch_norm": True}, "train_batch_norm needs finetune_from"),
    ({"max_bad": "few"}, "max_bad takes a share"),
    ({"max_bad": "-1"}, "max_bad takes a share"),
    ({"near": float("nan")}, "near must be a cosine"),
    ({"near": -2.0}, "near must be a cosine"),
    ({"views": -1}, "views must be 0 or more"),
    ({"fit": "squeeze"}, "fit must be one of pad, stretch, crop"),
    ({"background": (0, 0, 256)}, "background takes three levels"),
    ({"layout": "flat"}, "layout must be one of auto, classes, subsets"),
    ({"head": "forest"}, "head must be one of softmax, sgd, adam"),
    ({"head": "adam", "hidden": -1}, "hidden must be 0 or more"),
    ({"dropout": 0.5}, "hidden and dropout need head sgd or adam"),
    ({"validation": 0.5, "test": 0.5}, "leave something to train on"),
    ({"validation": -0.1}, "validation must be a share"),
    ({"test": float("nan")}, "test must be a share"),
    ({"size": 8}, "size must be 16 or more"),
    ({"batch_size": 0}, "batch_size and workers must be 1 or more"),
    ({"workers": 0}, "batch_size and workers must be 1 or more"),
    ({"net": "lenet"}, "lenet"),
    ({"weights": "no-such-file.h5"}, "no-such-file.h5"),
    ({"net_options": {"colour": 1}}, "colour"),
)


@pytest.mark.parametrize(("settings", "words"), BAD, ids=[" ".join(f"{k}={v}" for k, v in s.items()) for s, _ in BAD])
def test_bad_settings_are_found_before_the_scan_and_leave_nothing(settings, words, pictures, tmp_path):
    def scanned(scan):
        raise AssertionError("the scan had begun")

    how = {**TINY, **settings}
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(words)):
        retrain(pictures, tmp_path / "run", cache=tmp_path / "cache", on_scan=scanned, **how)
    assert not list(tmp_path.iterdir())


def test_unknown_settings_are_named(pictures, tmp_path):
    with pytest.raises(TypeError, match="no setting learning"):
        retrain(pictures, tmp_path / "run", learning=1, **TINY)
    assert not list(tmp_path.iterdir())


def test_pictures_that_cannot_be_trained_on_leave_nothing(tmp_path):
    folder = write_folder(tmp_path / "p", names=("a", "b", "b"), per_class=4)
    (folder / "a" / "cut.png").write_bytes(next((folder / "a").iterdir()).read_bytes()[:60])
    with pytest.raises(ValueError, match="1 bad file of 13, more than --max-bad 1%"):
        retrain(folder, tmp_path / "run", cache=tmp_path / "cache", **TINY)
    with pytest.raises(FileNotFoundError, match="no such folder or CSV"):
        retrain(tmp_path / "gone", tmp_path / "run", cache=tmp_path / "cache", **TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_classes_of_the_same_files_are_refused(pictures, tmp_path):
    for label in "ab":
        shutil.copytree(pictures / "red", tmp_path / "p" / label)
    with pytest.raises(ValueError, match="every picture of a, b lies in another class too, so none is left"):
        retrain(tmp_path / "p", tmp_path / "run", cache=tmp_path / "cache", **TINY)
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_picture_in_two_classes_is_listed_and_not_trained_on(tmp_path):
    folder = write_folder(tmp_path / "p", names=("a", "b", "b"), per_class=5)
    twice = next(iter(sorted((folder / "a").iterdir())))
    shutil.copy(twice, folder / "b" / "again.png")
    run = retrain(folder, tmp_path / "run", cache=tmp_path / "cache", export=False, **TINY)
    assert run.facts["conflicts"] == 1 and len(run.scan.pictures) == 14  # of 16
    rows = list(csv.DictReader((run.folder / "suspicious.csv").open(encoding="utf-8")))
    names = [(row["path"], row["suggestion"]) for row in rows if "also in" in row["reason"]]
    assert names == [(f"a/{twice.name}", "b"), ("b/again.png", "a")]
    assert "In two classes: 1 picture, not trained on" in (run.folder / "report.html").read_text()


def test_a_model_of_another_run_is_refused(finished, tmp_path):
    facts = json.loads((finished[0].folder / "run.json").read_text())
    facts["classes"] = [f"z{name}" for name in facts["classes"]]
    for one, name in zip(facts["evaluation"]["classes"], facts["classes"], strict=True):
        one["name"] = name
    (tmp_path / "run.json").write_text(json.dumps(facts))
    shutil.copy(finished[0].folder / "model.keras", tmp_path)
    with pytest.raises(ValueError, match=r"model\.keras knows the classes .*, and run.json beside it knows z"):
        load_predictor(tmp_path)


def test_a_cut_model_file_says_what_to_do(finished, tmp_path):
    for name in ("run.json", "model.keras"):
        (tmp_path / name).write_bytes((finished[0].folder / name).read_bytes())
    os.truncate(tmp_path / "model.keras", 1000)
    with pytest.raises(ValueError, match=r"model\.keras .*Run `zoo retrain` again"):
        load_predictor(tmp_path)
    os.truncate(tmp_path / "run.json", 100)
    with pytest.raises(ValueError, match=r"run.json cannot be read as JSON: .*Delete it"):
        load_predictor(tmp_path)


def test_a_damaged_split_is_found_before_the_scan(finished, pictures, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(finished[0].folder / "settings.json", run)
    (run / "split.json").write_text('{"format": 1, "sets"')
    with pytest.raises(ValueError, match=r"split\.json cannot be read as JSON: .* Delete it, and the"):
        retrain(pictures, run, cache=finished[1], on_scan=lambda scan: pytest.fail("scanned"), **TINY)
    assert sorted(path.name for path in run.iterdir()) == ["settings.json", "split.json"]


def test_a_folder_of_somebody_else_is_refused(pictures, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="holds no retraining run"):
        retrain(pictures, tmp_path, **TINY)
    with pytest.raises(NotADirectoryError, match=r"thesis.txt is a file; give a folder as --out"):
        retrain(pictures, tmp_path / "thesis.txt" / "run", **TINY)
    with pytest.raises(NotADirectoryError, match=r"thesis.txt is a file; give a folder as --cache"):
        retrain(pictures, tmp_path / "run", cache=tmp_path / "thesis.txt", **TINY)
    assert (tmp_path / "thesis.txt").read_text() == "years of work" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_cannot_be_written_is_found_before_the_scan(pictures, tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir(mode=0o500)
    if os.geteuid() == 0:  # root may write everywhere
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "locked")
    with pytest.raises(PermissionError, match=r"locked cannot be written; give another --out"):
        retrain(pictures, tmp_path / "locked" / "run", **TINY)


def test_a_folder_that_is_no_run_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished run"):
        load_facts(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="update zoo"):
        load_facts(tmp_path)


def test_a_public_name_is_never_hidden_by_the_file_that_defines_it():
    import zoo.transfer

    hidden = [name for name in zoo.transfer.__all__ if importlib.util.find_spec(f"zoo.transfer.{name}")]
    assert hidden == []  # once imported, a submodule of that name would be what zoo.transfer.NAME gives
