"""Private APIs of TensorFlow and Keras are named in ``zoo/_compat.py`` alone, so that a new release breaks one file."""

import ast
import re
from pathlib import Path

import pytest

ZOO = Path(__file__).parents[1] / "zoo"
TREES = {path: ast.parse(path.read_text()) for path in sorted(ZOO.rglob("*.py"))}
COMPAT = TREES[ZOO / "_compat.py"]
OTHERS = [path for path in TREES if path.name != "_compat.py" and "slim" not in path.relative_to(ZOO).parts[0]]
PYTHONS_OWN = {"_asdict", "_exit", "_fields", "_getframe", "_replace"}
MODULES = re.compile(r"keras\.src\b|tensorflow\.python\b|tf\.__internal__")
LISTED = {"keras.src.models."}  # in loading.py, a name that files have for a public class


def is_private(name):
    return name.startswith("_") and not name.endswith("__")


def own_names():
    """Private names that zoo itself gives to functions, classes, attributes and module variables."""
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def asked(tree):
    """Private attributes that a file asks objects for, and the object's words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, ast.unparse(node.value)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("getattr", "hasattr", "setattr")
            and isinstance(node.args[1], ast.Constant)
        ):
            yield str(node.args[1].value), ast.unparse(node.args[0])


OWN = set(own_names())
FOREIGN = {name for name, owner in asked(COMPAT) if is_private(name)}


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: str(p.relative_to(ZOO)))
def test_nobody_else_uses_what_is_private(path):
    names = {
        f"{owner}.{name}"
        for name, owner in asked(TREES[path])
        if is_private(name) and owner not in ("self", "cls") and (name in FOREIGN or name not in OWN | PYTHONS_OWN)
    }
    assert not names, f"{path.relative_to(ZOO)} uses {names} of others: give it a name in zoo/_compat.py"
    text = path.read_text()
    for allowed in LISTED:
        text = text.replace(allowed, "")
    assert not MODULES.findall(text)


def test_everything_there_is_used_and_says_why():
    public = [n for n in COMPAT.body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    assert all(ast.get_docstring(function) for function in public)
    text = "".join(path.read_text() for path in OTHERS)
    assert [f.name for f in public if not re.search(rf"\b{f.name}\b", text)] == []
