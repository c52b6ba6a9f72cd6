"""What a file may ask for when it is read, and how its faults are said."""

import errno
import gzip
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

from zoo.files import Limits, ZipReader, current_limits, limits, parse_json, read_json, reading

RAISED = [
    zipfile.BadZipFile("x"), zlib.error("x"), EOFError(), RuntimeError("x"), IndexError("x"), KeyError("x"),
    AttributeError("x"), TypeError("x"), RecursionError("x"), struct.error("x"), MemoryError(), OverflowError("x"),
    ValueError("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), gzip.BadGzipFile("x"), ZeroDivisionError("x"),
]  # fmt: skip


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_parser_raises_becomes_a_value_error_that_names_the_file(error):
    said = r"^/a/b.h5 (is damaged, or it is not a Keras file \(.+\)|cannot be read as a Keras file: .+)$"
    with pytest.raises(ValueError, match=said) as caught, reading("/a/b.h5", "a Keras file"):
        raise error
    assert type(caught.value) is ValueError
    assert caught.value.__cause__ is error


def test_errors_that_name_the_file_stay_and_those_of_the_system_get_its_name():
    said = ValueError("/a/b.h5: two layers are called 'x'")
    with pytest.raises(ValueError, match="two layers") as caught, reading("/a/b.h5"):
        raise said
    assert caught.value is said
    with pytest.raises(OSError, match=r"/a/b\.h5") as failed, reading("/a/b.h5"):
        raise OSError(errno.EIO, "Input/output error")
    assert failed.value.errno == errno.EIO
    with pytest.raises(FileNotFoundError, match=r"/c"), reading("/a/b.h5"):
        open("/c")  # noqa: SIM115
    with pytest.raises(ModuleNotFoundError), reading("/a/b.h5"):
        raise ModuleNotFoundError("torch")


def test_what_is_declared_is_compared_with_what_is_held():
    limit = Limits(max_bytes=1000, max_ratio=10, small=50)
    limit.check(50, 0, "f")
    limit.check(1000, 100, "f")
    with pytest.raises(ValueError, match=r"^f is refused: its content asks for 1,001 bytes, and max_bytes=1,000"):
        limit.check(1001, 10**6, "f")
    with pytest.raises(ValueError, match=r"^f is refused: data set 'a' asks for 51 bytes, .* holds only 5 for it"):
        limit.check(51, 5, "f", "data set 'a'")
    with pytest.raises(ValueError, match=r"f is damaged"):
        limit.check(-1, 5, "f")


def test_limits_hold_inside_their_block_only():
    before = current_limits()
    with limits(max_bytes=7) as inside:
        assert inside.max_bytes == current_limits().max_bytes == 7
        assert inside.max_ratio == before.max_ratio
    assert current_limits() == before


def test_json_is_bounded_in_size_and_depth(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": [1, {"b": 2}]}))
    assert read_json(path) == {"a": [1, {"b": 2}]}
    assert parse_json("[" * 100 + "]" * 100, path)
    for text, said in {
        b"[" * 101 + b"1" + b"]" * 101: "nested more than 100 deep",
        b"[" * 200_000: "is damaged.*JSON|nested",
        b"{'a': 1}": "as JSON: ",
        b"\xff\xfe\x00": "as JSON: ",
        b"": "as JSON: ",
        b"{" * 11 + b"9" * 5000: "as JSON: ",
    }.items():
        path.write_bytes(text)
        with pytest.raises(ValueError, match=rf"a\.json.*({said})"):
            read_json(path)
    with limits(max_json_bytes=10), pytest.raises(ValueError, match=r"a\.json is refused: 11 bytes of JSON"):
        read_json(path)
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        read_json(tmp_path / "nothing.json")


def test_zip_members_are_read_when_their_size_is_believed(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("plain", os.urandom(1000))
        archive.writestr("zeros", bytes(300_000))
    with ZipReader(path) as archive:
        assert archive.sizes == {"plain": 1000, "zeros": 300_000}
        assert archive.read("zeros") == bytes(300_000)
        with pytest.raises(ValueError, match=r"a\.zip is damaged.*nothing"):
            archive.read("nothing")
    said = r"a\.zip is refused: all its members together asks for 301,000"
    with limits(small=1000), pytest.raises(ValueError, match=said):
        ZipReader(path)
    said = r"a\.zip is refused: member 'zeros' asks for 300,000 .* holds only"
    with limits(small=1000, max_ratio=250), ZipReader(path) as archive, pytest.raises(ValueError, match=said):
        archive.read("zeros")
    with limits(max_members=1), pytest.raises(ValueError, match=r"a\.zip is refused: 2 members"):
        ZipReader(path)
    whole = path.read_bytes()
    for damaged in (whole[:-30], whole[:50] + bytes([whole[50] ^ 255]) + whole[51:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.zip (is damaged|cannot be read)"), ZipReader(path) as archive:
            archive.read("plain")


def test_no_tensorflow_is_imported():
    code = "import sys, zoo.files; sys.exit('tensorflow' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
