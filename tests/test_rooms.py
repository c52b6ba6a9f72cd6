"""The house's order: a room imports only from rooms above it, and nothing imports the command line."""

import ast
from pathlib import Path

import pytest

ZOO = Path(__file__).parents[1] / "zoo"
ORDER = [
    "files", "hdf5", "_compat", "devices", "scoping", "layers", "rnn", "slim", "data", "weights", "registry", "nets",
    "parallel", "training", "inference", "transfer", "bench", "cli",
]  # fmt: skip


def room_of(path: Path) -> str:
    return path.relative_to(ZOO).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports, at its top or inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            rooms |= {a.name.split(".")[1] for a in node.names if a.name.startswith("zoo.")}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "zoo":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
    return rooms & set(ORDER)


@pytest.mark.parametrize("path", sorted(ZOO.rglob("*.py")), ids=lambda p: str(p.relative_to(ZOO)))
def test_a_room_imports_only_from_rooms_above(path):
    room = room_of(path)
    if room == "__init__":
        return
    assert room in ORDER, f"{room} is a new room: give it its place in the order"
    below = {r for r in imported_rooms(path) if ORDER.index(r) > ORDER.index(room)}
    assert not below, f"{path.relative_to(ZOO)} imports {below}, which stand below {room}"


@pytest.mark.parametrize("path", sorted(ZOO.rglob("*.py")), ids=lambda p: str(p.relative_to(ZOO)))
def test_a_file_holds_one_idea(path):
    assert len(path.read_text().splitlines()) <= 600
