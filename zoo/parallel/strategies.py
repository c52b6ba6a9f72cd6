"""Ways to share the work by name: one device, towers, or TensorFlow's own strategies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from zoo import _compat
from zoo.files import parse_json, reading
from zoo.parallel.places import check_devices, choose_devices
from zoo.parallel.towers import Towers

STRATEGIES = ("single", "towers", "mirrored", "multiworker", "ps")
REDUCTIONS = ("auto", "nccl", "hierarchical", "one_device")
Strategy: TypeAlias = "Towers | tf.distribute.Strategy"


def make_strategy(
    name: str,
    *,
    num_gpus: int | None = None,
    devices: Sequence[str] | None = None,
    strict: bool = False,
    batch_norm: str = "mean",
    synchronous: bool = True,
    reduction: str = "auto",
) -> Strategy | None:
    """Makes what `zoo.training.Trainer` takes as its strategy.

    Args:
        name: ``single`` (one device), ``towers`` and ``mirrored`` (the devices of this machine), ``multiworker`` and
            ``ps`` (the machines that TF_CONFIG names; this process must be one that computes, not a server).
        num_gpus: How many GPUs of this machine; default all, or the logical CPUs where there is none.
        devices: Their names, in place of a number.
        strict: Refuse to run on fewer GPUs than asked for; else there is a warning with both numbers.
        batch_norm: ``first`` (towers only), ``mean`` or ``sync``, see `Towers`; elsewhere the trainer's own option.
        synchronous: For towers, see there.
        reduction: How mirrored gradients meet: ``nccl``, ``hierarchical`` (copies along a tree of GPUs),
            ``one_device``, or ``auto``: NCCL among GPUs, one device among CPUs.

    Returns:
        `Towers`, a `tf.distribute.Strategy`, or None for one device.

    Raises:
        ValueError: Unknown names, options that contradict each other, missing devices, a broken TF_CONFIG.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy is one of {', '.join(STRATEGIES)}; got {name!r}")
    if devices is not None and num_gpus is not None:
        raise ValueError(f"give devices or their number, not both; got {list(devices)} and num_gpus={num_gpus}")
    if not synchronous and name != "towers":
        raise ValueError(f"synchronous=False is for towers; {name} is {'always' if name == 'ps' else 'never'} so")
    if reduction != "auto" and name not in ("mirrored", "multiworker"):
        raise ValueError(f"reduction is how mirrored replicas and workers meet; got {reduction!r} with {name}")
    if batch_norm == "first" and name != "towers":
        raise ValueError(f"batch_norm='first' is for towers; {name} takes 'mean', or 'sync' over replicas")
    if name in ("single", "multiworker", "ps"):
        if devices is not None or num_gpus is not None:
            raise ValueError(f"strategy {name!r} takes no number of GPUs: it uses those that this process sees")
        if name == "single":
            return None
        from zoo.parallel.cluster import multi_worker, parameter_server

        return multi_worker(reduction) if name == "multiworker" else parameter_server()
    chosen = check_devices(devices) if devices is not None else choose_devices(num_gpus, strict=strict)
    if name == "towers":
        return Towers(chosen, batch_norm=batch_norm, synchronous=synchronous)
    return mirrored(chosen, reduction)


def mirrored(devices: Sequence[str], reduction: str = "auto") -> tf.distribute.MirroredStrategy:
    """Makes TensorFlow's strategy with a copy of the variables on each device.

    Args:
        devices: Names.
        reduction: See `make_strategy`.

    Raises:
        ValueError: An unknown reduction, or NCCL without GPUs.
    """
    chosen = check_devices(devices)
    gpus = all(name.startswith("GPU") for name in chosen)
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is one of {', '.join(REDUCTIONS)}; got {reduction!r}")
    if reduction == "nccl" and not gpus:
        raise ValueError(f"NCCL joins GPUs, and the devices are {', '.join(chosen)}; take hierarchical or one_device")
    if reduction == "auto":
        reduction = "nccl" if gpus else "one_device"
    ops: dict[str, Any] = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
        "one_device": tf.distribute.ReductionToOneDevice,
    }
    return tf.distribute.MirroredStrategy(chosen, cross_device_ops=ops[reduction]())


def replica_count(strategy: Strategy) -> int:
    """Returns over how many devices a synchronous step is split; 1 under parameter servers, where each has its own."""
    return strategy.count if isinstance(strategy, Towers) else strategy.num_replicas_in_sync


def worker_count(strategy: Strategy | None) -> int:
    """Returns how many workers take steps of their own: those behind parameter servers; 1 elsewhere."""
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return 1
    return _compat.worker_count(strategy)


def is_multi_worker(strategy: Strategy) -> bool:
    """Says whether several processes take each step together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief() -> bool:
    """Says whether this process writes the files: always, but in a worker of TF_CONFIG's that is not the first."""
    if not os.environ.get("TF_CONFIG"):
        return True
    with reading("TF_CONFIG"):
        config = parse_json(os.environ["TF_CONFIG"], "TF_CONFIG")
        task = config.get("task", {})
        if "chief" in config.get("cluster", {}):
            return bool(task.get("type") == "chief")
        return task.get("type", "worker") == "worker" and int(task.get("index", 0)) == 0


def check_batch(strategy: Strategy, batch: int | None, examples: int | None) -> None:
    """Raises ValueError for a global batch that leaves a device without an example; `examples` are an epoch's."""
    count = replica_count(strategy)
    if batch is None or count == 1:
        return
    if batch < count:
        raise ValueError(
            f"the global batch of {batch} has fewer examples than the {count} devices that share it; give each at "
            f"least one"
        )
    rest = (examples or 0) % batch
    if 0 < rest < count and not isinstance(strategy, Towers):
        raise ValueError(
            f"the last batch of an epoch has {rest} of {examples} examples, fewer than the {count} devices that share "
            f"it; choose another batch than {batch}, or leave the unfilled batch out"
        )
