"""One cell of a benchmark: a training step of one network in a process of its own.

Run as a script with the cell as JSON; it needs nothing of zoo unless the cell is zoo's, so that another interpreter can
run a peer. It prints one JSON line when it is warm, then takes one step for each line it reads and prints the seconds,
and at the end of its input prints the peaks.
"""

import contextlib
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


def peak_resident_bytes() -> int:
    """Returns the largest resident size of this process so far, as the kernel counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _tensorflow(cell: dict[str, Any], build: Callable[[], Any]) -> tuple[Step, dict[str, str]]:
    """A step of SGD on a Keras model, without Keras' own loop."""
    import keras
    import tensorflow as tf

    if cell["precision"] == "bfloat16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    device = "/GPU:0" if cell["device"] == "gpu" else "/CPU:0"
    with tf.device(device):
        model = build()
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
        images = tf.random.stateless_normal([cell["batch"], cell["size"], cell["size"], 3], [0, 1])
        labels = tf.range(cell["batch"]) % cell["classes"]

    @tf.function(jit_compile=cell["xla"], autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = tf.cast(model(images, training=True), tf.float32)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    def run() -> float:
        with tf.device(device):
            return float(step())

    return run, {"tensorflow": tf.__version__, "keras": keras.__version__}


def _zoo(cell: dict[str, Any]) -> tuple[Step, dict[str, str]]:
    def build() -> Any:
        import zoo

        options = {"memory": cell["memory"], "input_shape": (cell["size"], cell["size"], 3), **cell["options"]}
        return zoo.create(cell["net"], num_classes=cell["classes"], **options)

    return _tensorflow(cell, build)


def _keras(cell: dict[str, Any]) -> tuple[Step, dict[str, str]]:
    def build() -> Any:
        import keras

        make = getattr(keras.applications, cell["net"].replace("densenet", "DenseNet"))
        shape = (cell["size"], cell["size"], 3)
        return make(weights=None, classes=cell["classes"], classifier_activation=None, input_shape=shape)

    return _tensorflow(cell, build)


def _torchvision(cell: dict[str, Any]) -> tuple[Step, dict[str, str]]:
    """A step of SGD on torchvision's network, in the faster of its layouts."""
    import torch

    if not torch.cuda.is_available():
        with contextlib.suppress(ImportError):  # declares the operators of a torchvision without its own library
            import torchvision_cpu_shim  # noqa: F401
    import torchvision

    device = "cuda" if cell["device"] == "gpu" else "cpu"
    torch.manual_seed(0)
    make = getattr(torchvision.models, cell["net"])
    model = make(weights=None, num_classes=cell["classes"], memory_efficient=cell["memory"] == "memory_efficient")
    model = model.to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(cell["batch"], 3, cell["size"], cell["size"], device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = (torch.arange(cell["batch"]) % cell["classes"]).to(device)
    half = cell["precision"] == "bfloat16"

    def run() -> float:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return float(loss)

    return run, {"torch": torch.__version__, "torchvision": torchvision.__version__}


PEERS = {"zoo": _zoo, "keras": _keras, "torchvision": _torchvision}


def allocator_peak(cell: dict[str, Any], reset: bool = False) -> int | None:
    """Returns the peak of the framework's allocator since the last reset, in bytes; None where it keeps no count."""
    if cell["peer"] == "torchvision":
        import torch

        if cell["device"] != "gpu":
            return None
        if reset:
            torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.max_memory_allocated())
    import tensorflow as tf

    device = "GPU:0" if cell["device"] == "gpu" else "CPU:0"
    try:
        if reset:
            tf.config.experimental.reset_memory_stats(device)
        return int(tf.config.experimental.get_memory_info(device)["peak"])
    except ValueError:  # some CPU allocators count nothing
        return None


def main() -> None:
    """Runs the cell that the first argument describes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    cell = json.loads(sys.argv[1])
    started = time.perf_counter()
    step, versions = PEERS[cell["peer"]](cell)
    built = peak_resident_bytes()
    for _ in range(cell["warmup"]):
        step()
    gc.collect()
    allocator_peak(cell, reset=True)
    warm = {"versions": versions, "seconds_to_warm": time.perf_counter() - started, "built_bytes": built}
    print(json.dumps(warm), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        step()
        print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    print(
        json.dumps({"resident_peak_bytes": peak_resident_bytes(), "allocator_peak_bytes": allocator_peak(cell)}),
        flush=True,
    )


if __name__ == "__main__":
    main()
