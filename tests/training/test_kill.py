"""Killed with SIGKILL at random moments and started again, a run ends in the same bits; so does its log."""

import json
import subprocess
import sys
from pathlib import Path


def test_kills_change_nothing(tmp_path):
    script = Path(__file__).with_name("killing.py")
    said = subprocess.run([sys.executable, script, tmp_path, "2", "5"], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr[-2000:]
    report = json.loads(said.stdout.splitlines()[-1])
    assert report["kills"] == 2
    assert report["arrays"] > 30
    assert report["different"] == []
