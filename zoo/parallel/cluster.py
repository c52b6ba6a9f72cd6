"""Clusters of machines: what TF_CONFIG says, checked, and TensorFlow's strategies on it."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zoo.files import parse_json, validated
from zoo.parallel.watchdog import Watchdog, wait_for

_EXAMPLES = {
    "multiworker": '{"cluster": {"worker": ["host1:2222", "host2:2222"]}, "task": {"type": "worker", "index": 0}}',
    "ps": '{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222"], "ps": ["host2:2222"]}, '
    '"task": {"type": "worker", "index": 0}}',
}
_KINDS = {"multiworker": ("chief", "worker"), "ps": ("chief", "worker", "ps")}


class ClusterConfigError(ValueError):
    """TF_CONFIG is missing or broken; the message names the field."""


@dataclass(frozen=True)
class Task:
    """This process's place in a cluster."""

    kind: str  # chief, worker or ps
    index: int
    cluster: Mapping[str, list[str]]  # kind to addresses host:port

    @property
    def name(self) -> str:
        """As ``worker 1``."""
        return f"{self.kind} {self.index}"

    @property
    def address(self) -> str:
        """Its own ``host:port``."""
        return self.cluster[self.kind][self.index]

    def peers(self, *kinds: str) -> dict[str, str]:
        """Returns the other tasks of these kinds, or of all: name to address."""
        return {
            f"{kind} {number}": address
            for kind, addresses in self.cluster.items()
            for number, address in enumerate(addresses)
            if (not kinds or kind in kinds) and (kind, number) != (self.kind, self.index)
        }


@dataclass(frozen=True)
class _Place:
    """The ``task`` of TF_CONFIG."""

    type: str
    index: int


@dataclass(frozen=True)
class _Config:
    """What TF_CONFIG says; other fields are TensorFlow's."""

    cluster: dict[str, list[str]]
    task: _Place


def read_task(strategy: str, environment: Mapping[str, str] = os.environ) -> Task:
    """Reads this process's task from TF_CONFIG; ClusterConfigError where that describes no cluster of `strategy`."""
    text, example = environment.get("TF_CONFIG", ""), _EXAMPLES[strategy]
    if not text:
        raise ClusterConfigError(
            f"strategy {strategy!r} reads the environment variable TF_CONFIG, which is not set; 'zoo launch' sets it "
            f"on one machine, and on several it is as {example}"
        )
    try:
        config = validated(_Config, parse_json(text, "TF_CONFIG"), "TF_CONFIG")
    except ValueError as error:
        raise ClusterConfigError(f"{error}. Write it as {example}") from None

    def wrong(field: str, rule: str, got: Any) -> ClusterConfigError:
        return ClusterConfigError(f"TF_CONFIG: {field} {rule}; got {json.dumps(got)}. Write it as {example}")

    cluster = config.cluster
    if not cluster:
        raise wrong("cluster", "maps kinds of tasks to their addresses", cluster)
    _check_addresses(cluster, strategy, wrong)
    if strategy == "ps" and len(os.sched_getaffinity(0)) < 2:
        raise ClusterConfigError(
            "strategy 'ps' needs two cores for each process: on one, TensorFlow's tasks wait for ever"
        )
    if strategy == "ps" and not all(cluster.get(kind) for kind in ("chief", "worker", "ps")):
        raise wrong("cluster", "needs a chief, workers and a ps", sorted(cluster))
    kind, index = config.task.type, config.task.index
    if kind not in cluster:
        raise wrong("task.type", f"is one of the cluster's {sorted(cluster)}", kind)
    if not 0 <= index < len(cluster[kind]):
        raise wrong("task.index", f"is a number from 0 to {len(cluster[kind]) - 1}", index)
    return Task(kind, index, cluster)


def _check_addresses(cluster: dict[str, list[str]], strategy: str, wrong: Callable[..., ClusterConfigError]) -> None:
    for kind, addresses in cluster.items():
        if kind not in _KINDS[strategy]:
            raise wrong(f"cluster.{kind}", f"is no kind of task of {strategy}, which has {_KINDS[strategy]}", addresses)
        if not addresses:
            raise wrong(f"cluster.{kind}", "is a list of addresses", addresses)
        for number, address in enumerate(addresses):
            host, _, port = address.rpartition(":")
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port[:6]) < 65536:
                raise wrong(f"cluster.{kind}[{number}]", "is HOST:PORT", address)
    everyone = [address for addresses in cluster.values() for address in addresses]
    twice = sorted({address for address in everyone if everyone.count(address) > 1})
    if twice:
        raise wrong("cluster", "gives each task an address of its own", twice)


def check_port(task: Task) -> None:
    """Raises ClusterConfigError when this task's own port is taken: as a rule by a second process of the same index."""
    host, _, port = task.address.rpartition(":")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", int(port)))
    except OSError as error:
        raise ClusterConfigError(
            f"{task.name} listens on port {port} of {host}, which is taken ({error.strerror}): another process runs "
            "with the same task.index, or another program has the port"
        ) from None


def meet(task: Task, timeout: float) -> None:
    """Waits until all tasks are there: TensorFlow would wait for ever, and without a word.

    Until then this task listens on its own port, so that the others see it.
    """
    with socket.socket() as here:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        here.bind(("", int(task.address.rpartition(":")[2])))
        here.listen()
        wait_for(task.peers(), timeout)


def watch(strategy: str, timeout: float) -> Watchdog:
    """Checks this process's place in the cluster and watches those it depends on: all others, or the chief its servers.

    One that does not answer for `timeout` seconds is gone.
    """
    task = read_task(strategy)
    check_port(task)
    if strategy == "multiworker":
        meet(task, timeout)
        return Watchdog(task.name, task.peers(), timeout).start()
    wait_for(task.peers(), timeout)
    return Watchdog(task.name, task.peers("ps"), timeout).start()


def serve(timeout: float) -> bool:
    """Runs TensorFlow's server in a worker or parameter server of a ``ps`` job, until the chief has been gone so long.

    Returns False in the chief, at once.
    """
    import tensorflow as tf

    task = read_task("ps")
    if task.kind == "chief":
        return False
    check_port(task)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(dict(task.cluster)),
        job_name=task.kind,
        task_index=task.index,
        protocol="grpc",
        start=True,
    )
    Watchdog(task.name, task.peers("chief"), timeout, status=0).start()
    print(f"zoo: {task.name} serves at {task.address}", flush=True)
    while server:
        time.sleep(3600)
    return True


def multi_worker(reduction: str = "auto") -> Any:
    """Makes TensorFlow's strategy of workers that take each step together; `reduction` is auto, or nccl among GPUs."""
    import tensorflow as tf

    if reduction not in ("auto", "nccl"):
        raise ValueError(f"workers reduce by 'auto' (a ring of gRPC) or 'nccl'; got {reduction!r}")
    kinds = tf.distribute.experimental.CommunicationImplementation
    chosen = kinds.NCCL if reduction == "nccl" else kinds.AUTO
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver(),
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=chosen),
    )


def parameter_server() -> Any:
    """Makes TensorFlow's strategy of workers that update shared variables, each at its own pace; in the chief."""
    import tensorflow as tf

    os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")  # a worker that comes back is reached again
    return tf.distribute.ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
