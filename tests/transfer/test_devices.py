"""Extraction shares its batches among devices, and the features are those of one device."""

import subprocess
import sys

SCRIPT = """
import hashlib, sys
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
from zoo.data.images import encode_png
from zoo.transfer import Extractor, Reader, load_trunk
from pathlib import Path

root, files = Path(sys.argv[1]), {}
for i in range(22):
    data = encode_png(np.random.default_rng(i).integers(0, 256, (20, 30, 3)).astype(np.uint8))
    (root / f"{i}.png").write_bytes(data)
    files[hashlib.sha256(data).hexdigest()] = root / f"{i}.png"
trunk = load_trunk("lenet5", "none")
names = [trunk.bottleneck]
found = []
for number, devices in enumerate((["CPU:0"], ["CPU:0", "CPU:1", "CPU:2"])):
    extractor = Extractor(trunk, Reader(trunk.preprocessing), root / f"cache{number}", batch_size=4, devices=devices)
    found.append(extractor.features(files, names).read(list(files), names)[names[0]])
    print([model.variable("conv1/weights").value.device[-5:] for model in extractor._models.values()])
np.testing.assert_array_equal(*found)
"""


def test_three_devices_give_the_features_of_one(tmp_path):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[1] == "['CPU:0', 'CPU:1', 'CPU:2']"
