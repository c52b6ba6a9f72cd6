"""What a user sees of a run: lines, the bar."""

import io
import re

import pytest
from rich.console import Console

from zoo.training.progress import Progress, duration


def test_lines_and_bar():
    text = io.StringIO()
    console = Console(file=text, width=200)
    with Progress(0, 10, console=console, seconds=0) as watch:
        watch.step(4, {"step": 4, "kind": "train", "loss": 0.5, "val_accuracy": 0.25, "task_loss": 1.0})
        watch.say("[hello]")
    lines = text.getvalue().splitlines()
    assert lines[0].startswith("step 4 of 10: loss 0.5 val accuracy 0.25, 0 s left")
    assert lines[1] == "[hello]"
    text = io.StringIO()
    with Progress(0, 10, console=Console(file=text, width=200, force_terminal=True)) as watch:
        watch.step(10, {"loss": 0.5})
    assert "10/10" in text.getvalue()
    with pytest.raises(ValueError, match="progress must be"):
        Progress(0, 1, show="much")
    assert [duration(s) for s in (5, 720, 11100)] == ["5 s", "12 min", "3 h 05 min"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_bar_stays_whole_however_much_is_measured(width):
    text = io.StringIO()
    measured = dict.fromkeys(("loss", "accuracy", "top5", "learning_rate", "val_loss", "val_accuracy"), 0.123456)
    with Progress(0, 1350, show="bar", console=Console(file=text, width=width, force_terminal=True)) as watch:
        watch.step(675, {"kind": "train", **measured, "examples_per_second": 1234.5})
        with watch.console.capture() as seen:
            watch.console.print(watch._bar.get_renderable())
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in seen.get().splitlines()]
    bar = next(line for line in lines if "675/1350" in line)
    assert bar.count("━") + bar.count("╸") >= 10
    for name in measured:
        assert f"{name.replace('_', ' ')} 0.1235" in " ".join(" ".join(lines).split())
