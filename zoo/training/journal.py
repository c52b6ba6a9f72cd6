"""metrics.jsonl: one JSON object a line, never behind and never ahead of the checkpoint a run resumes from."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.files import parse_json, write_whole

_log = logging.getLogger("zoo")


class Journal:
    """The lines of a run: ``{"step": 100, "epoch": 1, "loss": 0.3, ...}``.

    Args:
        path: the file; made at the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def write(self, values: Mapping[str, Any]) -> None:
        """Appends a line; numbers that are not finite become null."""
        clean = {name: _clean(value) for name, value in values.items()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(clean, ensure_ascii=False) + "\n")

    def cut(self, step: int) -> list[dict[str, Any]]:
        """Drops what was logged after a step, and a line that a killed process left half-written.

        Args:
            step: the checkpoint's step.

        Returns:
            The lines that stay.
        """
        lines = [line for line in self.read() if line.get("step", 0) <= step]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        if self.path.exists() and self.path.read_text(encoding="utf-8", errors="replace") != text:
            write_whole(self.path, text)
        return lines

    def read(self) -> list[dict[str, Any]]:
        """Returns the whole lines; lines that are none, but for a last one that was cut, are named in a warning."""
        if not self.path.exists():
            return []
        found: list[dict[str, Any]] = []
        bad: list[int] = []
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                value = parse_json(line, self.path)
            except ValueError:
                value = None
            if isinstance(value, dict) and isinstance(value.get("step", 0), int | float):
                found.append(value)
            else:
                bad.append(number)
        if bad and bad != [len(lines)]:
            shown = ", ".join(map(str, bad[:5])) + (" and others" if len(bad) > 5 else "")
            _log.warning("%s: what is no record of numbers is left out: line %s", self.path, shown)
        return found


def _clean(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
