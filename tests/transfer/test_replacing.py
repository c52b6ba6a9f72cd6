"""A second run in a folder: the same leaves it alone, other pictures replace it in one step, other settings ask."""

import json
import shutil
import threading

import numpy as np
import pytest
from transfer.retrain_support import TINY, write_folder

from zoo.files import locked
from zoo.transfer import load_predictor, retrain
from zoo.transfer.run import LOCK, NEXT, WRITTEN, finish_replacing, load_facts


@pytest.fixture
def place(finished, pictures, tmp_path):
    """Pictures, a copy of the finished run, and how to retrain there."""
    shutil.copytree(pictures, tmp_path / "pictures")
    shutil.copytree(finished[0].folder, tmp_path / "run")
    return tmp_path / "pictures", tmp_path / "run", {"cache": finished[1], **TINY}


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_again_is_nothing_to_do(place):
    pictures, out, how = place
    before, said = contents(out), []
    run = retrain(pictures, out, say=said.append, **how)
    assert said == [f"nothing changed since the finished run in {out}: nothing to do"]
    assert contents(out) == before
    picture = run.scan.pictures[0]
    data = (pictures / picture.name).read_bytes()
    np.testing.assert_array_equal(load_predictor(out)([data]).shape, (1, len(run.classes)))
    assert run.evaluation.accuracy == load_facts(out)["evaluation"]["accuracy"]
    retrain(pictures, out, max_bad="50%", **how)  # decides no number
    assert contents(out) == before


@pytest.mark.parametrize("change", [{"seed": 5}, {"views": 1}, {"balance": True}, {"validation": 0.2}, {"head": "sgd"}])
def test_other_settings_are_refused_until_they_are_accepted(place, change):
    pictures, out, how = place
    before = contents(out)
    with pytest.raises(ValueError, match=rf"holds a run with another configuration:\n  {next(iter(change))}: "):
        retrain(pictures, out, **how, **change)
    assert contents(out) == before


def test_an_accepted_change_replaces_the_run(place):
    pictures, out, how = place
    run = retrain(pictures, out, seed=5, accept_changes=True, export=False, **how)
    assert load_facts(out)["settings"]["seed"] == 5
    assert (run.folder, run.place) == (out, out)
    assert not {NEXT, "model.keras", "saved_model"} & {path.name for path in out.iterdir()}
    assert str(out / NEXT) not in (out / "report.html").read_text()


@pytest.mark.parametrize("change", ["picture", "label", "correction", "report"])
def test_what_changed_in_the_pictures_replaces_the_run(place, change):
    pictures, out, how = place
    first = sorted((pictures / "red").iterdir())[0]
    if change == "picture":
        write_folder(pictures, names=("red", "red", "red"), per_class=1, seed=7)
    elif change == "label":
        first.rename(pictures / "green" / "moved.png")
    elif change == "correction":
        picture = next(
            p for p in json.loads((out / "scan.json").read_text())["pictures"] if p["path"].endswith("0.png")
        )
        lines = [
            "decision,path,label,suggestion,confidence,reason,sha256",
            f"drop,{picture['name']},,,,,{picture['sha256']}",
        ]
        (out / "suspicious.csv").write_text("\n".join(lines) + "\n")
    else:
        (out / "report.html").unlink()
    before = load_facts(out)["fingerprint"]
    said = []
    retrain(pictures, out, say=said.append, **how)
    assert not any("nothing to do" in line for line in said)
    assert (load_facts(out)["fingerprint"] == before) == (change == "report")
    assert (out / "report.html").is_file()


def test_a_run_that_fails_leaves_the_old_one_whole(place):
    pictures, out, how = place
    write_folder(pictures, names=("red", "red", "red"), per_class=1, seed=7)
    before = contents(out)

    def stop(line):
        if line.startswith("head:"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrain(pictures, out, say=stop, **how)
    left = {path: data for path, data in contents(out).items() if NEXT not in path.parts}
    assert left == before
    assert load_predictor(out).classes


@pytest.mark.parametrize("moved", range(0, len(WRITTEN), 3))
def test_a_process_killed_while_it_replaces_is_gone_on_with(place, tmp_path, moved):
    _, out, _ = place
    new, old = tmp_path / "new", contents(out)
    shutil.copytree(out, new)
    for path in new.rglob("*"):
        if path.is_file() and path.name != "run.json":
            path.write_bytes(path.read_bytes() + b"new")
    new.rename(out / NEXT)
    expected = {path.relative_to(out / NEXT): data for path, data in contents(out / NEXT).items()}
    for name in WRITTEN[:moved]:
        if (out / NEXT / name).is_dir():
            shutil.rmtree(out / name)
        (out / NEXT / name).replace(out / name)
    load_facts(out)
    finish_replacing(out)
    assert {path.relative_to(out): data for path, data in contents(out).items()} == expected
    assert contents(out).keys() == old.keys()


def test_refused_retrainings_leave_no_folder(pictures, finished, tmp_path):
    pixels = np.zeros((4, 20, 20, 3), np.uint8)
    one = write_folder(tmp_path / "one", names=("red", "red", "red"), per_class=2)
    few = write_folder(tmp_path / "few", per_class=2)
    cache = finished[1]
    for images, more in (
        (one, {}),
        (pixels, {"labels": ["a"] * 4}),
        (pixels, {"labels": ["a", "a", "b", "b"]}),
        (pixels, {"labels": ["a", "a", "b/c", "b"]}),
        (few, {"finetune_from": "conv2", "epochs": 1}),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - each has words of its own
            retrain(images, tmp_path / "deep" / "run", cache=cache, **TINY, **more)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["few", "one"], more


def test_a_run_of_zoo_train_is_no_retraining(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "kind": "train"}))
    with pytest.raises(ValueError, match="it is of a run of zoo train, not of a retraining"):
        load_facts(tmp_path)


def test_the_second_of_two_runs_at_once_is_refused_and_harms_nothing(pictures, finished, tmp_path):
    out, refused = tmp_path / "run", []
    how = {"cache": finished[1], "export": False, **TINY}
    out.mkdir()
    (out / ".lock").touch()  # of a process that was killed: nobody holds it

    def meanwhile(line):
        before = contents(out)
        with pytest.raises(BlockingIOError, match=f"another process is retraining in {out}; wait for it or give"):
            retrain(pictures, out, seed=5, **how)
        refused.append(line)
        assert contents(out) == before

    run = retrain(pictures, out, say=meanwhile, **how)
    assert len(refused) > 4 and load_facts(out)["settings"]["seed"] == 0
    assert run.evaluation.accuracy == 1.0 and not (out / ".lock").exists()
    assert run.facts["changes"] == []


def test_who_opens_a_run_waits_for_the_process_that_replaces_it(place):
    _, out, _ = place
    shutil.copytree(out, out.with_name("new"))
    out.with_name("new").rename(out / NEXT)
    with locked(out / LOCK):
        reader = threading.Thread(target=load_facts, args=[out])
        reader.start()
        reader.join(0.3)
        assert reader.is_alive() and (out / NEXT / "run.json").is_file()
    reader.join(20)
    assert not reader.is_alive() and not {NEXT, LOCK} & {path.name for path in out.iterdir()}
