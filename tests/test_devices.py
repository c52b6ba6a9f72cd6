import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from zoo import devices
from zoo.cli._devices import device_options
from zoo.devices import DeviceSettings, parse_devices, parse_memory

SCRIPT = """
import json, sys
import zoo
from zoo.cli import _devices
assert "tensorflow" not in sys.modules
from zoo.devices import DeviceSettings
DeviceSettings(intra_op_threads=3, inter_op_threads=2, soft_placement=False, log_device_placement=False).apply()
import tensorflow as tf
import zoo.data.stream
facts = {
    "intra": tf.config.threading.get_intra_op_parallelism_threads(),
    "inter": tf.config.threading.get_inter_op_parallelism_threads(),
    "soft": tf.config.get_soft_device_placement(),
}
tf.ones([2]) + 1
try:
    DeviceSettings(intra_op_threads=1).apply()
except RuntimeError as error:
    facts["late"] = str(error)
try:
    DeviceSettings(devices="gpu:7").apply()
except ValueError as error:
    facts["missing"] = str(error)
print(json.dumps(facts))
"""


def test_row_46_settings_are_made_before_and_refused_after_the_first_tensor():
    result = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    facts = json.loads(result.stdout)
    assert (facts["intra"], facts["inter"], facts["soft"]) == (3, 2, False)
    assert "too late" in facts["late"] and "asks for gpu:7" in facts["missing"]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("all", None), ("", None), ("cpu", []), ("gpu:0", [0]), ("GPU:1, gpu:0", [1, 0]), ("cpu:0,gpu:3", [3])],
)
def test_devices_by_name(text, numbers):
    assert parse_devices(text) == numbers


@pytest.mark.parametrize("text", ["gpu", "gpu:x", "tpu:0", "0", "gpu:-1", "gpu:1,gpu:1"])
def test_devices_that_are_none(text):
    with pytest.raises(ValueError, match=r"devices takes 'all'"):
        DeviceSettings(devices=text)


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("0.5", 0.5), ("50%", 0.5), (1.0, 1.0), ("2048 MB", 2048)])
def test_memory_is_megabytes_or_a_share(text, value):
    assert parse_memory(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "150%", "lots", "nan", "1.5", "inf"])
def test_memory_that_makes_no_sense(text):
    with pytest.raises(ValueError, match="gpu_memory_limit takes"):
        DeviceSettings(gpu_memory_limit=text)


def test_threads_are_not_negative():
    with pytest.raises(ValueError, match="intra_op_threads counts from 0"):
        DeviceSettings(intra_op_threads=-2)


class FakeGpu:
    def __init__(self, number):
        self.name = f"/physical_device:GPU:{number}"


def test_gpus_are_chosen_grown_and_limited(monkeypatch):
    import tensorflow as tf

    calls = []
    gpus = [FakeGpu(0), FakeGpu(1)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda chosen, kind: calls.append(("see", len(chosen), kind)))
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: calls.append(("grow", on)))
    monkeypatch.setattr(
        tf.config, "set_logical_device_configuration", lambda gpu, c: calls.append(("limit", c[0].memory_limit))
    )
    monkeypatch.setattr(devices, "gpu_memory", lambda number: 16000.0)
    DeviceSettings().apply()
    DeviceSettings(devices="gpu:1", memory_growth=False).apply()
    DeviceSettings(devices="gpu:0", gpu_memory_limit="25%").apply()
    DeviceSettings(devices="cpu").apply()
    assert calls == [
        ("see", 2, "GPU"), ("grow", True), ("grow", True),
        ("see", 1, "GPU"), ("grow", False),
        ("see", 1, "GPU"), ("limit", 4000),
        ("see", 0, "GPU"),
    ]  # fmt: skip


def test_a_share_needs_the_drivers_tool(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="give the limit in MB"):
        devices.gpu_memory(0)


def test_commands_get_the_options(monkeypatch):
    made = []
    monkeypatch.setattr(DeviceSettings, "apply", lambda self: made.append(self))
    app = typer.Typer()

    @app.command()
    @device_options
    def work(net: str, steps: int = 3) -> None:
        """Work."""
        typer.echo(f"{net} {steps}")

    result = CliRunner().invoke(
        app, ["lenet5", "--steps", "4", "--no-memory-growth", "--gpu-memory-limit", "0.5", "--devices", "cpu"]
    )
    assert result.output == "lenet5 4\n" and result.exit_code == 0
    assert made == [DeviceSettings(devices="cpu", memory_growth=False, gpu_memory_limit="0.5")]
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert all(word in text for word in ("--log-device-placement", "--inter-op-threads", "--no-soft-placement"))
