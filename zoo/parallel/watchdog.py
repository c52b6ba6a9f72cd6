"""A thread that ends this process when another of the cluster is gone: TensorFlow itself would wait for ever."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping


def reachable(address: str, seconds: float = 2.0) -> bool:
    """Says whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), seconds):
            return True
    except OSError:
        return False


def wait_for(peers: Mapping[str, str], seconds: float) -> None:
    """Waits until every task, name to address, listens; TimeoutError names those that do not come."""
    end = time.monotonic() + seconds
    missing = dict(peers)
    while missing:
        missing = {name: address for name, address in missing.items() if not reachable(address)}
        if missing and time.monotonic() > end:
            named = ", ".join(f"{name} at {address}" for name, address in missing.items())
            raise TimeoutError(f"did not come within {seconds:g} s: {named}; start it, or look into its log")
        if missing:
            time.sleep(0.2)


class Watchdog:
    """Looks after the tasks of a cluster without which this one, `me`, cannot go on, by connecting to their ports.

    One that does not answer for `timeout` seconds is gone: the process ends with `status`, with 1 for one that never
    came. `leave` ends it.
    """

    def __init__(
        self,
        me: str,
        peers: Mapping[str, str],
        timeout: float,
        *,
        status: int = 1,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self.me, self.peers, self.timeout, self.status, self._leave = me, dict(peers), timeout, status, leave
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="zoo-watchdog", daemon=True)

    def start(self) -> Watchdog:
        """Begins to watch."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends the watch: the others may leave now."""
        self._ended.set()

    def _watch(self) -> None:
        seen = dict.fromkeys(self.peers, time.monotonic())
        came: set[str] = set()
        while not self._ended.wait(min(1.0, self.timeout / 4)):
            for name, address in self.peers.items():
                if reachable(address):
                    seen[name] = time.monotonic()
                    came.add(name)
                elif time.monotonic() - seen[name] > self.timeout and not self._ended.is_set():
                    what = "has been gone" if name in came else "did not come"
                    status = self.status if name in came else 1
                    self._say(f"{name} at {address} {what} for {self.timeout:g} s", status)
                    self._leave(status)
                    return

    def _say(self, what: str, status: int) -> None:
        more = "start all tasks again with the same command: they go on from the newest checkpoint" if status else ""
        print(f"zoo: {self.me} ends: {what}{'; ' + more if more else ''}", file=sys.stderr, flush=True)
