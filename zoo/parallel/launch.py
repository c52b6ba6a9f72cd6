"""Starts the tasks of a cluster as processes of this machine, watches them, and ends them together."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

GRACE = 5.0  # seconds between asking a task to end and ending it
BAD_INPUT = 2  # exit status of a command that refuses its input
SAVING = 60.0  # seconds that tasks have to save and leave by themselves after Ctrl-C


@dataclass
class _Task:
    kind: str
    index: int
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.index}"


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback interface on which nothing listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class Launch:
    """A cluster on this machine, whose tasks all run `command`; ``zoo`` as its first word means this very program.

    With parameter servers there is a chief too, and a worker that dies is started again, so many times, unless it
    refused its input (exit status 2). Each task has a log in the folder `logs`.
    """

    def __init__(
        self, command: Sequence[str], workers: int, servers: int = 0, *, logs: Path, restarts: int = 3
    ) -> None:
        if not command:
            raise ValueError("say what to launch, after two dashes: zoo launch --workers 2 -- zoo train lenet5 ...")
        _check_strategy(command, "ps" if servers else "multiworker")
        if workers < 1 or servers < 0:
            raise ValueError(
                f"a cluster has at least one worker and no negative number of servers; got {workers}, {servers}"
            )
        self.logs, self.restarts, self.servers = Path(logs), restarts, servers
        kinds = {"worker": workers, **({"chief": 1, "ps": servers} if servers else {})}
        ports = iter(free_ports(sum(kinds.values())))
        self.cluster = {kind: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for kind, count in kinds.items()}
        self.tasks = [self._task(command, kind, index) for kind, count in kinds.items() for index in range(count)]
        self._signal: int | None = None
        self._signal_at = 0.0

    def run(self) -> int:
        """Starts all tasks, waits for the job's end, and returns the exit status.

        It is that of the chief, or of the first task that failed. A task ended by signal n counts as 128 + n.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        with self._signals():
            try:
                for task in self.tasks:
                    self._start(task)
                return self._watch()
            finally:
                self._end()

    def _task(self, command: Sequence[str], kind: str, index: int) -> _Task:
        words = list(command)
        if words[0] == "zoo":
            words = [sys.executable, "-c", "from zoo.cli import main; main()", *words[1:]]
        elif shutil.which(words[0]) is None:
            raise ValueError(f"there is no program {words[0]!r} to launch")
        config = {"cluster": self.cluster, "task": {"type": kind, "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), "PYTHONUNBUFFERED": "1"}
        return _Task(kind, index, words, environment, self.logs / f"{kind}-{index}.log")

    def _start(self, task: _Task) -> None:
        with task.log.open("ab") as log:  # whatever is there stays
            shown = task.kind == "chief" or (not self.servers and task.index == 0)
            output: Any = subprocess.PIPE if shown else log
            task.process = subprocess.Popen(
                task.command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=task.environment,
                start_new_session=True,  # Ctrl-C comes here, and from here to all
            )
        if shown and task.process.stdout is not None:
            threading.Thread(target=_tee, args=(task.process.stdout, task.log), daemon=True).start()

    def _watch(self) -> int:
        while True:
            for task in self.tasks:
                status = task.process.poll() if task.process is not None else None
                if status is None:
                    continue
                status = status if status >= 0 else 128 - status
                if self._starts_again(task, status):
                    task.restarts += 1
                    print(f"zoo: {task.name} ended with status {status} and is started again", file=sys.stderr)
                    self._start(task)
                elif self.servers and task.kind == "chief" and status == 0:
                    return 0
                elif status or self.servers:
                    if self._signal is None:
                        print(
                            f"zoo: {task.name} ended with status {status}; the other tasks are stopped. See {task.log}",
                            file=sys.stderr,
                        )
                    return status or 1
            if not self.servers and all(t.process is not None and t.process.poll() == 0 for t in self.tasks):
                return 0
            if self._signal is not None and time.monotonic() - self._signal_at > SAVING:
                return 128 + self._signal
            time.sleep(0.1)

    def _starts_again(self, task: _Task, status: int) -> bool:
        """A worker beside parameter servers, but not one that refused its input: it would do so again."""
        again = self.servers and task.kind == "worker" and status != BAD_INPUT
        return bool(again) and self._signal is None and task.restarts < self.restarts

    def _alive(self) -> list[_Task]:
        return [task for task in self.tasks if task.process is not None and task.process.poll() is None]

    def _end(self) -> None:
        """Asks the tasks to end, and ends those that do not."""
        self._pass_on(signal.SIGTERM)
        end = time.monotonic() + GRACE
        while self._alive() and time.monotonic() < end:
            time.sleep(0.05)
        self._pass_on(signal.SIGKILL)
        for task in self.tasks:
            if task.process is not None:
                task.process.wait()

    def _pass_on(self, number: int) -> None:
        for task in self._alive():
            if task.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(task.process.pid, number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def passed(number: int, _: Any) -> None:
            self._signal, self._signal_at = number, time.monotonic()
            self._pass_on(number)

        before = {number: signal.signal(number, passed) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _check_strategy(command: Sequence[str], wanted: str) -> None:
    """Tasks of another strategy would each train the whole network, all into the same folder."""
    words = list(command)
    if words[:2] != ["zoo", "train"] or "--help" in words:
        return
    given = [second for first, second in itertools.pairwise(words) if first == "--strategy"]
    given += [word.partition("=")[2] for word in words if word.startswith("--strategy=")]
    if given[-1:] != [wanted]:
        raise ValueError(
            f"zoo launch {'with' if wanted == 'ps' else 'without'} --ps starts tasks of zoo train --strategy {wanted}; "
            f"got {f'--strategy {given[-1]}' if given else 'no --strategy'}"
        )


def _tee(stream: IO[bytes], log: Path) -> None:
    with log.open("ab") as file:
        for line in stream:
            file.write(line)
            file.flush()
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
