"""Kill -9 in every stage, the same command again: the same report, and the same head to the bit."""

import shutil
import subprocess
import sys

import pytest
from transfer.retrain_support import TINY

SCRIPT = """
import os, signal, sys
from zoo.transfer import retrain

images, out, cache, stage = sys.argv[1:]

def say(line):
    if stage and line.startswith(stage):
        os.kill(os.getpid(), signal.SIGKILL)

def progress(name, done, total):
    if stage == "half the " + name and total > done >= total / 2 > 0:
        os.kill(os.getpid(), signal.SIGKILL)

retrain(images, out, cache=cache, say=say, progress=progress, batch_size=8, near=2.0, **{settings})
""".replace("{settings}", repr({**TINY, "finetune_from": "conv2", "epochs": 4}))

STAGES = ("scan", "half the bottlenecks", "split", "head", "half the fine-tuning", "fine-tuning", "export")


def run(pictures, out, cache, stage=""):
    words = [sys.executable, "-c", SCRIPT, str(pictures), str(out), str(cache), stage]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_killed_run_ends_like_one_that_was_not(pictures, tmp_path):
    out, whole = tmp_path / "run", tmp_path / "whole"  # the report names its folder: every run is in the same one
    assert run(pictures, out, tmp_path / "cache").returncode == 0
    out.rename(whole)
    for number, stage in enumerate(STAGES):
        cache = tmp_path / f"cache{number}"
        assert run(pictures, out, cache, stage).returncode == -9, stage
        assert not (out / "run.json").exists()
        again = run(pictures, out, cache)
        assert again.returncode == 0, again.stderr
        for name in ("report.html", "head.safetensors", "predictions.csv", "run.json", "split.json"):
            assert (out / name).read_bytes() == (whole / name).read_bytes(), (stage, name)
        shutil.rmtree(out)
