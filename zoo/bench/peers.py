"""One cell of a benchmark: a training step of one network in a process of its own.

Run as a script with the cell as JSON; it needs nothing of zoo unless the cell is zoo's, so that another interpreter can
run a peer. It prints one JSON line when it is warm, then takes one step for each line it reads and prints the seconds,
and at the end of its input prints the peaks. What ends it before that is a JSON line, too.
"""

import contextlib
import gc
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

Step = Callable[[], Any]
OUT_OF_MEMORY = "out of memory"
# What the frameworks' allocators and XLA's say of a request that they could not meet.
_REQUESTS = (
    r"OOM when allocating tensor with shape\s*\[[^\]]*\] and type \w+",
    r"[Oo]ut of memory (?:while )?trying to allocate [\d.,]+ ?\w+",
    r"[Tt]ried to allocate [\d.,]+ ?\w+",
    r"(?:[Ff]ailed to allocate|can't allocate memory: you tried to allocate) [\d.,]+ ?\w+",
    r"Unable to allocate [\d.,]+ ?\w+",
)


class Ready(NamedTuple):
    """A training step that can be taken.

    Args:
        step: Takes it.
        versions: Of the frameworks, and on a GPU of the libraries below them.
        memory: The framework's allocator on the device.
        device: The device's name.
    """

    step: Step
    versions: dict[str, str]
    memory: "TensorFlowMemory | TorchMemory"
    device: str = ""


class TensorFlowMemory:
    """What TensorFlow's allocator on a device counts, in bytes; None where it keeps no count."""

    def __init__(self, device: str) -> None:
        self.device = device

    def _ask(self, what: str) -> int | None:
        import tensorflow as tf

        try:
            return int(tf.config.experimental.get_memory_info(self.device)[what])
        except ValueError:  # some CPU allocators count nothing, nor does cuda_malloc_async in some versions
            return None

    def in_use(self) -> int | None:
        """Given out now."""
        return self._ask("current")

    def peak(self) -> int | None:
        """Most that was given out since the last reset."""
        return self._ask("peak")

    def reset(self) -> None:
        """Lets the peak start again from what is in use."""
        import tensorflow as tf

        with contextlib.suppress(ValueError):
            tf.config.experimental.reset_memory_stats(self.device)

    def reserved(self) -> int | None:
        """TensorFlow does not say what it holds of the device."""
        return None


class TorchMemory:
    """What PyTorch's allocator on a GPU counts, in bytes; None on a CPU, where it keeps no count."""

    def __init__(self, device: str) -> None:
        self.device = device

    def _ask(self, what: str) -> int | None:
        import torch

        return int(getattr(torch.cuda, what)(self.device)) if self.device != "cpu" else None

    def in_use(self) -> int | None:
        """Given out now."""
        return self._ask("memory_allocated")

    def peak(self) -> int | None:
        """Most that was given out since the last reset."""
        return self._ask("max_memory_allocated")

    def reset(self) -> None:
        """Lets the peaks start again from what is in use."""
        import torch

        if self.device != "cpu":
            torch.cuda.reset_peak_memory_stats(self.device)

    def reserved(self) -> int | None:
        """Most that it held of the device since the last reset."""
        return self._ask("max_memory_reserved")


def peak_resident_bytes() -> int:
    """Returns the largest resident size of this process so far, as the kernel counts it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def gpu_number(device: str) -> int:
    """Returns which GPU a device such as "gpu" or "gpu:1" is."""
    return int(device.partition(":")[2] or 0)


def _tensorflow(cell: dict[str, Any], build: Callable[[], Any]) -> Ready:
    """A step of SGD on a Keras model, without Keras' own loop."""
    import keras
    import tensorflow as tf

    device, name, versions = "CPU:0", "", {"tensorflow": tf.__version__, "keras": keras.__version__}
    gpus = tf.config.list_physical_devices("GPU")
    if cell["device"] == "cpu":
        tf.config.set_visible_devices([], "GPU")
    else:
        chosen = gpus[gpu_number(cell["device"])]
        tf.config.set_visible_devices([chosen], "GPU")
        tf.config.experimental.set_memory_growth(chosen, True)  # or the driver's count is that of the whole GPU
        name = str(tf.config.experimental.get_device_details(chosen).get("device_name", ""))
        build_info = tf.sysconfig.get_build_info()
        versions |= {key: build_info[f"{key}_version"] for key in ("cuda", "cudnn") if f"{key}_version" in build_info}
        device = "GPU:0"
    if cell["precision"] == "bfloat16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
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

    return Ready(run, versions, TensorFlowMemory(device), name)


def _zoo(cell: dict[str, Any]) -> Ready:
    def build() -> Any:
        import zoo

        options = {"memory": cell["memory"], "input_shape": (cell["size"], cell["size"], 3), **cell["options"]}
        return zoo.create(cell["net"], num_classes=cell["classes"], **options)

    return _tensorflow(cell, build)


def _keras(cell: dict[str, Any]) -> Ready:
    def build() -> Any:
        import keras

        make = getattr(keras.applications, cell["net"].replace("densenet", "DenseNet"))
        shape = (cell["size"], cell["size"], 3)
        return make(weights=None, classes=cell["classes"], classifier_activation=None, input_shape=shape)

    return _tensorflow(cell, build)


def _torchvision(cell: dict[str, Any]) -> Ready:
    """A step of SGD on torchvision's network, in the faster of its layouts."""
    import torch

    if not torch.cuda.is_available():
        with contextlib.suppress(ImportError):  # declares the operators of a torchvision without its own library
            import torchvision_cpu_shim  # noqa: F401
    import torchvision

    device = "cpu" if cell["device"] == "cpu" else f"cuda:{gpu_number(cell['device'])}"
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
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return float(loss)

    versions, name = {"torch": torch.__version__, "torchvision": torchvision.__version__}, ""
    if device != "cpu":
        versions |= {"cuda": str(torch.version.cuda), "cudnn": str(torch.backends.cudnn.version())}
        name = torch.cuda.get_device_name(device)
    return Ready(run, versions, TorchMemory(device), name)


PEERS: dict[str, Callable[[dict[str, Any]], Ready]] = {"zoo": _zoo, "keras": _keras, "torchvision": _torchvision}


def of_the_driver(cell: dict[str, Any]) -> dict[str, Any]:
    """Returns what the driver says of this process' GPU: memory of the process, bytes; version; clocks in MHz.

    Empty on a CPU and without ``nvidia-ml-py``. A driver that does not count by process (in some containers) gives
    the memory of the whole device, under ``driver_device_bytes``.
    """
    if cell["device"] == "cpu":
        return {}
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
        handle = _nvml_handle(pynvml, gpu_number(cell["device"]))
        version = pynvml.nvmlSystemGetDriverVersion()
        found: dict[str, Any] = {
            "driver": version.decode() if isinstance(version, bytes) else version,
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "driver_device_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        }
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid == os.getpid() and process.usedGpuMemory is not None:
                found["driver_bytes"] = int(process.usedGpuMemory)
        return found
    except pynvml.NVMLError:
        return {}


def _nvml_handle(pynvml: Any, number: int) -> Any:
    """The driver's handle of the GPU that a framework numbers so: CUDA_VISIBLE_DEVICES chooses and orders them."""
    seen = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    word = seen[number] if number < len(seen) else str(number)
    return pynvml.nvmlDeviceGetHandleByIndex(int(word)) if word.isdigit() else pynvml.nvmlDeviceGetHandleByUUID(word)


def failure_of(error: BaseException) -> dict[str, str]:
    """Returns what ended a cell: ``failed`` ("out of memory" or "failed") and ``said``, the request or first line."""
    text = str(error)
    request = next((found[0] for found in (re.search(pattern, text) for pattern in _REQUESTS) if found), "")
    kind = type(error).__name__
    full = bool(request) or kind in ("ResourceExhaustedError", "OutOfMemoryError", "MemoryError", "bad_alloc")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    said = " ".join((request or f"{kind}: {first}").split())
    return {"failed": OUT_OF_MEMORY if full else "failed", "said": said[:300]}


def main() -> None:
    """Runs the cell that the first argument describes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        _measure(json.loads(sys.argv[1]))
    except Exception as error:  # whatever it is, the table has a row for it
        print(json.dumps(failure_of(error)), flush=True)
        sys.exit(1)


def _measure(cell: dict[str, Any]) -> None:
    """Warms up, answers each line of input with a step's seconds, and its end with the peaks."""
    step, versions, memory, device = PEERS[cell["peer"]](cell)
    for _ in range(cell["warmup"]):
        step()
    gc.collect()
    warm = {"start_peak_bytes": memory.peak()}  # with what trying out convolutions' algorithms took
    memory.reset()
    warm["in_use_bytes"] = memory.in_use()
    print(json.dumps({"versions": versions, "device": device, **warm}), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        step()
        print(json.dumps({"seconds": time.perf_counter() - begun}), flush=True)
    peaks = {
        "resident_peak_bytes": peak_resident_bytes(),
        "allocator_peak_bytes": memory.peak(),
        "reserved_bytes": memory.reserved(),
        **of_the_driver(cell),
    }
    print(json.dumps(peaks), flush=True)


if __name__ == "__main__":
    main()
