"""The house's order: rooms import downwards only and have no circles inside; functions can be read."""

import ast
import re
import runpy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import SimpleNamespace

import pytest

ZOO = Path(__file__).parents[1] / "zoo"
# the script that counts and draws what is checked here
house = SimpleNamespace(**runpy.run_path(str(ZOO.parent / "benchmarks" / "house.py")))
ORDER = [
    "files", "hdf5", "_compat", "devices", "inputs", "scoping", "layers", "rnn", "slim", "data", "weights", "registry",
    "nets", "parallel", "training", "inference", "transfer", "bench", "cli",
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


every_file = pytest.mark.parametrize("path", house.FILES, ids=lambda p: str(p.relative_to(ZOO)))


@every_file
def test_a_room_imports_only_from_rooms_above(path):
    room = house.room_of(path)
    if room == "__init__":
        return
    assert room in ORDER, f"{room} is a new room: give it its place in the order"
    rooms = {name.split(".")[1] for name in house.imported(path) if "." in name} & set(ORDER)
    below = {r for r in rooms if ORDER.index(r) > ORDER.index(room)}
    assert not below, f"{path.relative_to(ZOO)} imports {below}, which stand below {room}"


def test_the_picture_of_the_house_has_its_rooms_in_order():
    assert list(house.WORDS) == ORDER
    page, drawing = ((ZOO.parent / "docs" / name).read_text() for name in ("architecture.md", "architecture.svg"))
    for room, word in house.WORDS.items():
        assert f"<!-- {word} -->" in drawing, "draw it again: python benchmarks/house.py picture"
        assert f"`{room}`" in page
    wanted = {f"{room}-to-{other}" for room, others in house.arrows().items() for other in others}
    assert set(re.findall(r'<g id="(\w+-to-\w+)">', drawing)) == wanted, "an import was added or went: draw it again"


@pytest.mark.parametrize("room", ORDER)
def test_no_circle_inside_a_room(room):
    inside = {house.module_of(p): house.imported(p) for p in house.FILES if house.room_of(p) == room}
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
    for lines, arguments, name in house.functions(ast.parse(path.read_text())):
        public = house.room_of(path) in FREE and not name.startswith("_")
        if not public and (lines > LINES or arguments > ARGUMENTS):
            found.add(f"{path.relative_to(ZOO)} {name}")
    return found


def test_functions_can_be_read():
    found = set().union(*map(long_functions, house.FILES))
    assert not found - LONG, "longer than 60 lines, or more than 8 arguments: make functions, or a record, of the parts"
    assert not LONG - found, "these are within the limits now: take them off the list"
