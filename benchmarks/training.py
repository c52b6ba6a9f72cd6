"""Figures of the training engine, as CSV files in benchmarks/results/.

Usage: python benchmarks/training.py PART, where PART is one of

    kills     20 runs killed with SIGKILL and resumed, against one undisturbed: bits of the final checkpoint
    full      a file system of 1 MB that fills while a checkpoint is saved (needs root for the mount)
    step_lenet5, step_inception   Trainer step against a bare tf.function loop, interleaved, by network
    stall     how long a checkpoint of Inception-v3 with its optimizer stops training, against a plain save with fsync
    memory    resident size after 200 and after 2,000 steps
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from paired import Paired, measure, write

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

HERE = Path(__file__).resolve().parent


def kills():
    """Runs tests/training/killing.py with 20 kills."""
    with tempfile.TemporaryDirectory() as folder:
        script = HERE.parent / "tests" / "training" / "killing.py"
        said = subprocess.run([sys.executable, script, folder, "20", "1"], capture_output=True, text=True, check=True)
    report = json.loads(said.stdout.splitlines()[-1])
    rows = [{name: json.dumps(value) if isinstance(value, list) else value for name, value in report.items()}]
    write("training_kills", rows)


def full():
    """Saves larger and larger checkpoints to a 1 MB tmpfs until one does not fit, by way of a child process."""
    child = """
import sys, numpy as np, keras
from zoo.training import Trainer
keras.utils.set_random_seed(1)
layers = [keras.Input((200,)), keras.layers.Dense(250), keras.layers.Dense(3)]  # 0.2 MB, twice with momentum
model = keras.Sequential(layers)
x, y = np.random.rand(64, 200).astype("float32"), np.random.randint(0, 3, 64)
Trainer(model, optimizer="momentum", global_batch=8).fit(
    (x, y), steps=int(sys.argv[2]), folder=sys.argv[1], checkpoint_steps=1, keep=5, summaries="none", progress="none")
"""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
        try:
            said = subprocess.run(
                [sys.executable, "-c", child, folder, "20"], capture_output=True, text=True, check=False
            )
            left = sorted(path.name for path in Path(folder).iterdir())
            from zoo.training import Checkpoints

            newest = Checkpoints(Path(folder)).newest()
            rows.append(
                {
                    "file_system": "tmpfs of 1 MB",
                    "exit_status": said.returncode,
                    "message": said.stderr.strip().splitlines()[-1][:200],
                    "newest_checkpoint_that_loads": newest.path.name if newest else "",
                    "files": json.dumps(left),
                }
            )
        finally:
            subprocess.run(["umount", folder], check=True)
    write("training_full", rows)


def small_inception():
    """Two Inception modules on 32 x 32 x 3: convolutions side by side with batch norm."""
    import keras

    layers = keras.layers

    def conv(x, filters, size):
        x = layers.Conv2D(filters, size, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    def module(x, width):
        pool = layers.AveragePooling2D(3, 1, "same")(x)
        branches = [conv(x, width, 1), conv(conv(x, width, 1), width, 3), conv(conv(x, width, 1), width, 5)]
        return layers.Concatenate()([*branches, conv(pool, width, 1)])

    inputs = keras.Input((32, 32, 3))
    x = layers.MaxPooling2D(3, 2)(conv(inputs, 16, 3))
    x = module(x, 16)
    x = layers.MaxPooling2D(3, 2)(x)
    x = module(x, 32)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def step_lenet5():
    """LeNet-5."""
    import zoo

    step("lenet5", zoo.lenet5, (32, 32, 1), steps=100, pairs=25)


def step_inception():
    """The small Inception above."""
    step("small_inception", small_inception, (32, 32, 3), steps=25, pairs=20)


def step(name, build, shape, *, steps, pairs, batch=32):
    """Interleaves epochs of the Trainer and of a bare loop with the same model, optimizer, loss and metric."""
    import numpy as np
    import tensorflow as tf

    numbers = np.random.default_rng(0)
    images = numbers.random((batch * steps, *shape), dtype=np.float32)
    labels = numbers.integers(0, 10, batch * steps)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(batch, drop_remainder=True).cache().prefetch(2)
    theirs, rows = epoch_of_bare_loop(build(), data), []
    for many in (1, 10):
        paired = measure(epoch_of_trainer(build(), data, many), theirs, pairs=pairs)
        paired = Paired([t / steps for t in paired.ours], [t / steps for t in paired.theirs])
        about = {"network": name, "batch": batch, "steps_per_call": many, "steps_per_epoch": steps}
        rows.append({**about, **paired.row(), "goal": 1.03})
    write(f"training_step_{name}", rows)


def epoch_of_bare_loop(model, data):
    """A function that runs an epoch of the shortest loop: same model, optimizer, loss and metric."""
    import keras
    import tensorflow as tf

    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseCategoricalAccuracy()

    @tf.function(autograph=False)
    def train(x, y):
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            value = loss(y, logits)
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)
        metric.update_state(y, logits)
        return value

    def run():
        for images, labels in data:
            value = train(images, labels)
        return float(value)

    return run


def epoch_of_trainer(model, data, steps_per_call):
    """The same by the Trainer; one fit() an epoch, so starting, logging and ending are in the measured time too."""
    from zoo.training import Trainer

    trainer = Trainer(model, optimizer="momentum", learning_rate=0.01, steps_per_call=steps_per_call)
    done = 0

    def run():
        nonlocal done
        done += 1
        trainer.fit(data, epochs=done, progress="none")

    return run


def stall():
    """Saves a model of Inception-v3's size with RMSProp and momentum: background save against a plain one."""
    import keras
    import numpy as np
    import tensorflow as tf

    from zoo.training import Checkpoints
    from zoo.training.state import variables_of
    from zoo.training.trainer import Trainer

    try:
        import zoo

        model = zoo.create("inception_v3")
    except (ImportError, ValueError, TypeError):
        model = keras.applications.InceptionV3(weights=None)
    trainer = Trainer(model, optimizer="rmsprop", learning_rate=0.01)
    size = (
        tuple(model.input_shape[1:]) if getattr(model, "input_shape", None) and model.input_shape[1] else (299, 299, 3)
    )
    spec = (tf.TensorSpec((None, *size)), tf.TensorSpec((None,), tf.int64))
    variables = variables_of(trainer.build(spec))
    total = sum(np.asarray(v).nbytes for v in variables.values())
    plain, stalls = [], []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", ".")) as folder:
        slow = Checkpoints(Path(folder) / "plain", keep=1, background=False)
        fast = Checkpoints(Path(folder) / "background", keep=1)
        for keeper in (slow, fast):
            keeper.folder.mkdir()
            keeper.prepare(variables)
        for number in range(8):
            slow.save(variables, {"step": number})
            plain.append(slow.stall_seconds)
            fast.save(variables, {"step": number})
            stalls.append(fast.stall_seconds)
            fast.wait()
        fast.close()
    row = Paired(stalls[1:], plain[1:]).row()
    about = {"model": f"{model.name}, rmsprop with momentum", "megabytes": round(total / 1e6, 1)}
    write("training_stall", [{**about, **row, "goal": 0.2}])


def memory():
    """Reads the resident size while LeNet-5 trains 2,000 steps with checkpoints, logs and validation."""
    import keras
    import numpy as np

    import zoo
    from zoo.training import Trainer

    def resident():
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    sizes = {}

    class Watch(keras.callbacks.Callback):
        steps = 0

        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1
            if self.steps in (200, 500, 1000, 1500, 2000):
                sizes[self.steps] = resident()

    numbers = np.random.default_rng(0)
    data = numbers.random((1600, 32, 32, 1), dtype=np.float32), numbers.integers(0, 10, 1600)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(zoo.lenet5(), optimizer="momentum", global_batch=32, averages=0.99).fit(
            data,
            steps=2000,
            validation=(data[0][:256], data[1][:256]),
            folder=folder,
            checkpoint_steps=100,
            log_every=50,
            callbacks=[Watch()],
            progress="none",
        )
    rows = [
        {"steps": steps, "resident_MB": round(size, 1), "over_200_MB": round(size - sizes[200], 1)}
        for steps, size in sizes.items()
    ]
    write("training_memory", [{**row, "goal_MB": 20} for row in rows])


if __name__ == "__main__":
    parts = {function.__name__: function for function in (kills, full, step_lenet5, step_inception, stall, memory)}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    parts[sys.argv[1]]()
