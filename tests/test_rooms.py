"""The house's order: rooms import downwards only and have no circles inside; functions can be read."""

import ast
import runpy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ZOO = Path(__file__).parents[1] / "zoo"
ORDER = [
    "files", "hdf5", "_compat", "devices", "scoping", "layers", "rnn", "slim", "data", "weights", "registry", "nets",
    "parallel", "training", "inference", "transfer", "bench", "cli",
]  # fmt: skip

LINES, ARGUMENTS = 60, 8
# Networks, layers and cells are called as the papers and TF-Slim call them, with all their options.
FREE = ("nets", "layers", "rnn")
# Other functions above 60 lines without their docstring, or 8 arguments. The list may only shrink.
LONG = {
    # builders, whose arguments are the user's options
    "data/tfrecord/builder.py build",
    "data/tfrecord/pictures.py image_stream",
    "data/tfrecord/schema.py read",
    "parallel/build.py build_towers",
    "training/trainer.py Trainer.__init__",
    "transfer/finetune.py fine_tune",
    "transfer/head.py fit_head",
    "transfer/head.py train_head",
    "transfer/pipeline.py retrain",
    # commands, whose arguments are the options that typer reads
    "cli/bench.py densenet",
    "cli/bench.py scaling",
    "cli/predict.py predict",
    "cli/retrain.py retrain",
    "cli/scan.py scan",
    "cli/tfrecord.py build",
}


def room_of(path: Path) -> str:
    return path.relative_to(ZOO).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(("zoo", *path.relative_to(ZOO).with_suffix("").parts)).removesuffix(".__init__")


FILES = sorted(ZOO.rglob("*.py"))
MODULES = {module_of(path): path for path in FILES}
every_file = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ZOO)))


def imported(path: Path) -> set[str]:
    """Modules of zoo that a file imports, at its top or inside functions; imports for type checkers alone are none."""
    found, tree = set(), ast.parse(path.read_text())
    for_types = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    skipped = {id(inner) for n in for_types for child in n.body for inner in ast.walk(child)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else node.module)
    return {name for name in found if name.split(".")[0] == "zoo" and name != module_of(path)}


@every_file
def test_a_room_imports_only_from_rooms_above(path):
    room = room_of(path)
    if room == "__init__":
        return
    assert room in ORDER, f"{room} is a new room: give it its place in the order"
    rooms = {name.split(".")[1] for name in imported(path) if "." in name} & set(ORDER)
    below = {r for r in rooms if ORDER.index(r) > ORDER.index(room)}
    assert not below, f"{path.relative_to(ZOO)} imports {below}, which stand below {room}"


def test_the_picture_of_the_house_has_its_rooms_in_order():
    words = runpy.run_path(str(ZOO.parent / "benchmarks" / "house.py"))["WORDS"]
    assert list(words) == ORDER
    page, drawing = ((ZOO.parent / "docs" / name).read_text() for name in ("architecture.md", "architecture.svg"))
    for room, word in words.items():
        assert f"<!-- {word} -->" in drawing, "draw it again: python benchmarks/house.py picture"
        assert f"`{room}`" in page


@pytest.mark.parametrize("room", ORDER)
def test_no_circle_inside_a_room(room):
    inside = {module_of(p): imported(p) for p in FILES if room_of(p) == room}
    try:
        TopologicalSorter({m: needs & inside.keys() for m, needs in inside.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@every_file
def test_a_file_holds_one_idea(path):
    assert len(path.read_text().splitlines()) <= 600


def long_functions(path: Path) -> set[str]:
    """Functions of a file above the limits; of the free rooms those that are not public."""
    found = set()

    def visit(node: ast.AST, owner: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                spoken = ast.get_docstring(inner) is not None
                first, last = inner.body[0], inner.end_lineno or 0
                lines = last - inner.lineno + 1 - (spoken and (first.end_lineno or 0) - first.lineno + 1)
                arguments = inner.args.posonlyargs + inner.args.args + inner.args.kwonlyargs
                count = sum(argument.arg not in ("self", "cls") for argument in arguments)
                name = f"{owner}{inner.name}"
                public = room_of(path) in FREE and not name.startswith("_")
                if not public and (lines > LINES or count > ARGUMENTS):
                    found.add(f"{path.relative_to(ZOO)} {name}")
            visit(inner, f"{owner}{inner.name}." if isinstance(inner, ast.ClassDef | ast.FunctionDef) else owner)

    visit(ast.parse(path.read_text()), "")
    return found


def test_functions_can_be_read():
    found = set().union(*map(long_functions, FILES))
    assert not found - LONG, "longer than 60 lines, or more than 8 arguments: make functions, or a record, of the parts"
    assert not LONG - found, "these are within the limits now: take them off the list"
