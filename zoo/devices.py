"""Device settings, made before TensorFlow touches a device: afterwards they cannot be made at all.

zoo touches no device when it is imported. ``DeviceSettings(...).apply()`` is called once, first thing, by the commands
(see ``zoo.cli._devices``) or by a program.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class DeviceSettings:
    """How TensorFlow uses the devices.

    Args:
        devices: Which physical devices to see: "all", "cpu", or names such as "gpu:0,gpu:2" (the CPU is always there).
            "cpu:0,cpu:1" divides the CPU into logical devices, to try several without GPUs.
        memory_growth: Take GPU memory as it is needed and not all of it at the start.
        gpu_memory_limit: Most memory of each GPU: a number of MB ("4096") or a share ("0.5", "50%"). None for no limit.
            TensorFlow allows no growth under a limit, so it rules out ``memory_growth``, which is then off.
        intra_op_threads: Threads within one operation; 0 leaves it to TensorFlow.
        inter_op_threads: Operations at the same time; 0 leaves it to TensorFlow.
        log_device_placement: Print which device each operation runs on.
        soft_placement: Run an operation on the CPU when its device has no kernel for it.

    Raises:
        ValueError: a value makes no sense.
    """

    devices: str = "all"
    memory_growth: bool = True
    gpu_memory_limit: str | float | None = None
    intra_op_threads: int = 0
    inter_op_threads: int = 0
    log_device_placement: bool = False
    soft_placement: bool = True

    def __post_init__(self) -> None:
        parse_devices(self.devices)
        if self.gpu_memory_limit is not None:
            parse_memory(self.gpu_memory_limit)
        for name in ("intra_op_threads", "inter_op_threads"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} counts from 0, which leaves it to TensorFlow; got {getattr(self, name)}")

    def apply(self) -> None:
        """Makes the settings; must be the first thing that TensorFlow is asked to do.

        Raises:
            ValueError: a device that is not there.
            RuntimeError: TensorFlow has started its devices already.
        """
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        chosen = self._choose(gpus)
        try:
            tf.config.set_visible_devices(chosen, "GPU")
            for gpu in chosen:
                if self.gpu_memory_limit is None:
                    tf.config.experimental.set_memory_growth(gpu, self.memory_growth)
                else:
                    limit = tf.config.LogicalDeviceConfiguration(memory_limit=self._megabytes(gpu))
                    tf.config.set_logical_device_configuration(gpu, [limit])
            if logical_cpus(self.devices) > 1:
                parts = [tf.config.LogicalDeviceConfiguration()] * logical_cpus(self.devices)
                tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
            if self.intra_op_threads:
                tf.config.threading.set_intra_op_parallelism_threads(self.intra_op_threads)
            if self.inter_op_threads:
                tf.config.threading.set_inter_op_parallelism_threads(self.inter_op_threads)
        except RuntimeError as error:
            raise RuntimeError(
                f"device settings come too late: TensorFlow has started its devices already ({error}); make them "
                "before the first tensor, model or data set"
            ) from None
        tf.debugging.set_log_device_placement(self.log_device_placement)
        tf.config.set_soft_device_placement(self.soft_placement)

    def _choose(self, gpus: list["tf.config.PhysicalDevice"]) -> list["tf.config.PhysicalDevice"]:
        wanted = parse_devices(self.devices)
        if wanted is None:
            return list(gpus)
        missing = [number for number in wanted if number >= len(gpus)]
        if missing:
            there = ", ".join(f"gpu:{number}" for number in range(len(gpus))) or "no GPU"
            raise ValueError(f"--devices asks for gpu:{missing[0]}, but TensorFlow finds {there}")
        return [gpus[number] for number in wanted]

    def _megabytes(self, gpu: "tf.config.PhysicalDevice") -> int:
        limit = parse_memory(self.gpu_memory_limit or 1.0)
        if limit > 1:
            return int(limit)
        return max(1, int(limit * gpu_memory(int(gpu.name.rpartition(":")[2]))))


def parse_devices(text: str) -> list[int] | None:
    """Reads ``--devices``: None for all GPUs, else their numbers.

    Raises:
        ValueError: it is not "all", "cpu", or a list such as "gpu:0,gpu:1", or logical CPUs are named twice or
            with a gap.
    """
    word = text.strip().lower()
    if word in ("all", ""):
        return None
    numbers: list[int] = []
    for part in (part.strip() for part in word.split(",")):
        kind, _, number = part.partition(":")
        if kind == "gpu" and number.isdigit() and int(number) not in numbers:
            numbers.append(int(number))
        elif part != "cpu" and not (kind == "cpu" and number.isdigit()):
            raise ValueError(
                f"devices takes 'all', 'cpu', or a list such as 'gpu:0,gpu:1' or 'cpu:0,cpu:1'; got {text!r}"
            )
    cpus = _logical_cpus(word)
    if sorted(cpus) != list(range(len(cpus))):
        raise ValueError(
            f"devices divides the CPU into as many parts as are named, from cpu:0 on: 'cpu:0,cpu:1' for two; "
            f"got {text!r}"
        )
    return numbers


def logical_cpus(text: str) -> int:
    """Returns into how many logical devices ``--devices`` divides the CPU: 2 for "cpu:0,cpu:1"."""
    return len(_logical_cpus(text.lower())) or 1


def _logical_cpus(word: str) -> list[int]:
    numbers = [part.strip().partition(":")[2] for part in word.split(",") if part.strip().startswith("cpu")]
    return [int(number) for number in numbers if number.isdigit()]


def parse_size(text: str, option: str) -> int:
    """Reads a size of memory with its unit: "24GiB", "24 GB" (powers of 1000), "800MiB".

    Args:
        text: What was given.
        option: What gave it, for the message.

    Returns:
        Bytes.

    Raises:
        ValueError: It is no such size, or none above 0.
    """
    units = {"b": 1} | {f"{p}{i}b": b**n for n, p in enumerate("kmgt", 1) for i, b in (("", 1000), ("i", 1024))}
    word = text.strip().lower()
    number = word.rstrip("bikmgt").strip()
    try:
        size = float(number) * units[word[len(number) :].strip()]
    except (KeyError, ValueError):
        size = 0.0
    if not 1 <= size < 2**60:
        raise ValueError(f"{option} takes a size above 0 with its unit, such as 24GiB or 24GB; got {text!r}")
    return int(size)


def parse_memory(value: str | float) -> float:
    """Reads a limit of GPU memory: a number of MB (above 1), or a share in (0, 1].

    Raises:
        ValueError: it is neither.
    """
    text = str(value).strip().lower().removesuffix("mb").strip()
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf") or (text.endswith("%") and number > 1) or (number > 1 and number != int(number)):
        raise ValueError(f"gpu_memory_limit takes whole MB such as 4096, or a share such as 0.5 or 50%; got {value!r}")
    return number


def gpu_memory(number: int) -> float:
    """Returns the memory of a GPU in MB, as its driver says.

    Args:
        number: The GPU, among those that TensorFlow sees.

    Returns:
        MB.

    Raises:
        ValueError: the driver's tool ``nvidia-smi`` is not there or does not say.
    """
    import subprocess

    visible = [part.strip() for part in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if part.strip()]
    name = visible[number] if number < len(visible) else str(number)
    command = ["nvidia-smi", f"--id={name}", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise ValueError(
            "cannot ask nvidia-smi for the GPU's memory: give the limit in MB and not as a share"
        ) from None
