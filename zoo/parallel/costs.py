"""What a step costs on many devices: compute, and gradients that travel around a ring.

Devices share a step of batch b each. A device computes b examples; then n gradient bytes pass around a ring of k
devices in 2 (k - 1) messages of n / k bytes, over links of bandwidth B and latency L:

    T(k) = b c + max(0, 2 (k - 1) (L + n / (k B)) - h b c)        efficiency = T(1) / T(k)

c is the time of an example and h the share of the computation behind which the messages hide (0: none of it).
Machines of g devices first add up inside; the ring of machines carries the gradients once for all g. The ring is that
of P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Link:
    """A ring's links."""

    bandwidth: float  # bytes a second
    latency: float = 0.0  # seconds a message

    def all_reduce(self, size: float, count: int) -> float:
        """Returns the seconds in which `count` members add up `size` bytes each: 0 for one member."""
        return 2 * (count - 1) * (self.latency + size / (count * self.bandwidth))


@dataclass(frozen=True)
class Cost:
    """What decides a network's step on one kind of cluster."""

    example: float  # seconds in which a device computes one example, forward and backward
    gradients: float  # bytes of all gradients
    network: Link  # between machines
    inside: Link  # between the devices of a machine
    per_machine: int = 8
    hidden: float = 0.0  # share of the computation behind which messages hide, 0 to below 1

    def messages(self, devices: int) -> float:
        """Returns the seconds of communication in a step."""
        inner = self.inside.all_reduce(self.gradients, min(devices, self.per_machine))
        return inner + self.network.all_reduce(self.gradients, max(1, -(-devices // self.per_machine)))

    def step(self, devices: int, batch: int) -> float:
        """Returns the seconds of a step with `batch` examples a device."""
        if devices < 1 or batch < 1:
            raise ValueError(f"devices and batch count from 1; got {devices} and {batch}")
        compute = self.example * batch
        return compute + max(0.0, self.messages(devices) - self.hidden * compute)

    def speed(self, devices: int, batch: int) -> float:
        """Returns examples a second over all devices."""
        return devices * batch / self.step(devices, batch)

    def efficiency(self, devices: int, batch: int) -> float:
        """Returns the speed as a share of that many single devices'."""
        return self.step(1, batch) / self.step(devices, batch)


def fit_link(sizes: Sequence[float], counts: Sequence[int], seconds: Sequence[float]) -> Link:
    """Fits bandwidth and latency to all-reduces of so many bytes among so many members, by their relative errors.

    Latency is 0 where the measurements ask for a negative one.
    """
    if len(sizes) < 2 or min(counts) < 2:
        raise ValueError(f"a link is fitted to at least two all-reduces of two members, got {len(sizes)}")
    taken = np.asarray(seconds, float)
    hops = np.array([[2 * (k - 1), 2 * (k - 1) * n / k] for n, k in zip(sizes, counts, strict=True)]) / taken[:, None]
    (latency, by_byte), *_ = np.linalg.lstsq(hops, np.ones(len(taken)), rcond=None)
    if latency < 0:
        latency, by_byte = 0.0, float(np.sum(hops[:, 1]) / np.sum(hops[:, 1] ** 2))
    if by_byte <= 0:
        raise ValueError("the all-reduces do not take longer for more bytes: measure larger ones")
    return Link(1.0 / float(by_byte), float(latency))


def fit_network(cost: Cost, devices: int, batch: int, speed: float) -> Cost:
    """Sets the bandwidth (between machines if there are several, else inside) so that a measured speed comes out.

    `speed` is in examples a second, of so many devices with `batch` examples each.
    """
    free = replace(cost, network=Link(np.inf), inside=cost.inside if devices > cost.per_machine else Link(np.inf))
    left = devices * batch / speed - free.step(devices, batch)
    if left <= 0:
        raise ValueError(f"{devices} devices cannot be faster than {free.speed(devices, batch):g} examples a second")
    several = devices > cost.per_machine
    count = -(-devices // cost.per_machine) if several else devices
    link = Link(2 * (count - 1) * cost.gradients / (count * left))
    return replace(cost, network=link) if several else replace(cost, inside=link)
