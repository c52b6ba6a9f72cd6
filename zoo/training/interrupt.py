"""SIGTERM and Ctrl-C: finish the step, save, and leave with the status that shells expect."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptedRunError(SystemExit):
    """Training was asked to stop; the state is saved. Exit status 128 + signal: 143 for SIGTERM, 130 for Ctrl-C.

    Args:
        signum: the signal.
        message: what was saved and how to go on.
    """

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(128 + signum)
        self.signum, self.message = signum, message

    def __str__(self) -> str:
        return self.message


class Interrupts:
    """Notes SIGTERM and SIGINT while it is entered; a second signal acts at once.

    Attributes:
        signum: the signal that came, or None.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self._SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put_back()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signum = number
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
