"""A cell's process on a device that is not there: its memory runs out at FAKE_LIMIT_MIB, and it can die or hang.

Everything but the framework is as in `zoo.bench.peers`. A step needs 100 MiB and so much an image by level; FAKE_DIE
and FAKE_HANG name cells as LEVEL:BATCH. Each process leaves a line in FAKE_LOG when it begins and when it ends.
"""

import contextlib
import os
import signal
import time

from zoo.bench import peers

PER_IMAGE = {"store": 100, "recompute": 20, "minimal": 10}
MIB = 2**20


class ResourceExhaustedError(Exception):
    """As TensorFlow's."""


class FakeMemory:
    """Gives out bytes until there are no more."""

    def __init__(self, limit):
        self.limit, self.given, self.most = limit, 0, 0

    def take(self, size, shape):
        if self.given + size > self.limit:
            raise ResourceExhaustedError(
                f"Graph execution error:\n\nOOM when allocating tensor with shape{shape} and type float on "
                "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n\t [[{{node conv}}]]"
            )
        self.given += size
        self.most = max(self.most, self.given)

    def give_back(self, size):
        self.given -= size

    def in_use(self):
        return self.given

    def peak(self):
        return self.most

    def reset(self):
        self.most = self.given

    def reserved(self):
        return None


def fake(cell):
    level, batch = cell["memory"], cell["batch"]
    log(f"begin {level} {batch}")
    memory = FakeMemory(int(os.environ.get("FAKE_LIMIT_MIB", "100000")) * MIB)
    memory.take(50 * MIB, "[50]")
    taken = []

    def step():
        if os.environ.get("FAKE_DIE") == f"{level}:{batch}":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("FAKE_HANG") == f"{level}:{batch}":
            time.sleep(60)
        workspace = 0 if taken else 30 * MIB  # what trying out the convolutions takes, once
        size = (50 + PER_IMAGE[level] * batch) * MIB + workspace
        memory.take(size, f"[{batch},64,112,112]")
        memory.give_back(size)
        taken.append(size)

    return peers.Ready(step, {"fake": "1"}, memory, "Fake GPU")


def log(line):
    if "FAKE_LOG" in os.environ:
        with open(os.environ["FAKE_LOG"], "a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    peers.PEERS["zoo"] = fake
    with contextlib.suppress(SystemExit):
        peers.main()
    log("end")
