"""HDF5 is read in a child process: everything comes back, nothing outside the file, and no crash reaches the caller."""

import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from zoo.files import limits
from zoo.hdf5 import clean_copy, read_h5


def fill(file):
    file["a/b"] = np.arange(12.0).reshape(3, 4)
    file["a/scalar"] = np.float32(3)
    file["a/empty"] = np.zeros((0, 4))
    file["bfloat16"] = np.arange(8, dtype=np.uint8).view("V2")
    file.create_dataset("packed", data=np.ones((1000, 10)), compression="gzip")
    file.attrs["layer_names0"], file.attrs["layer_names1"] = [b"x", b"yy"], [b"z"]
    file.attrs["model_config"] = '{"a": "ü"}'
    file["a"].attrs["weight_names"] = np.array(["k", "b"], object)
    file["a/b"].attrs["dtype"] = np.bytes_(b"bfloat16")
    file["a"].attrs["count"] = 3
    file["a"].attrs["none"] = np.array([], "S1")
    file["a"].attrs["no_space"] = h5py.Empty("f4")


def test_everything_comes_back_and_can_be_written_again(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        fill(file)
    with h5py.File(tmp_path / "inside.h5", "w") as file:
        fill(file)
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        archive.write(tmp_path / "inside.h5", "model.weights.h5")
    found = read_h5(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        for name, array in found.arrays.items():
            assert array.dtype == file[name].dtype
            assert array.tobytes() == file[name][()].tobytes()
    assert list(found.arrays) == ["a/b", "a/empty", "a/scalar", "bfloat16", "packed"]
    assert found.names("layer_names") == ["x", "yy", "z"]
    assert found.names("weight_names", "a") == ["k", "b"]
    assert found.names("none", "a") == []
    assert found.names("nothing") is found.names("no_space", "a") is None
    assert (found.text("model_config"), found.attrs["a/b"]["dtype"]) == ('{"a": "ü"}', b"bfloat16")
    assert found.attrs["a"]["count"] == 3
    for source in ("a.h5", "a.keras"):
        with clean_copy(tmp_path / source) as copy:
            again = read_h5(copy)
        assert not os.path.exists(copy)
        assert again.attrs.keys() == found.attrs.keys()
        assert all(again.arrays[name].tobytes() == array.tobytes() for name, array in found.arrays.items())


def external(file):
    file.create_dataset("d", shape=(4,), dtype="f4", external=[("/etc/passwd", 0, 16)])


def virtual(file):
    layout = h5py.VirtualLayout(shape=(4,), dtype="f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "d", shape=(4,))
    file.create_virtual_dataset("d", layout)


def link(file):
    file["d"] = h5py.ExternalLink("/etc/passwd", "/x")


def circle(file):
    file.create_group("g")["up"] = file["/"]


def many_links(file):
    file["d"] = np.ones(1000)
    for i in range(3):
        file[f"d{i}"] = file["d"]


def never_written(file):
    file.create_dataset("d", shape=(20000, 1000, 1000), dtype="f4")


def no_chunk_written(file):
    file.create_dataset("d", shape=(400, 1000, 1000), dtype="f4", chunks=(1, 1000, 1000))


def zeros(file):
    file.create_dataset("d", data=np.zeros(10**7), compression="gzip", compression_opts=9)


def texts(file):
    file["d"] = ["a", "b"]


def deep(file):
    for _ in range(150):
        file = file.create_group("g")


REFUSED = {
    external: "d keeps its data in another file",
    virtual: "d keeps its data in another file",
    link: "d is a link, which zoo does not follow",
    circle: "g/up is a second link to the same data",
    many_links: "is a second link to the same data",
    never_written: r"d declares 80,000,000,000 bytes \(shape \[20000, 1000, 1000\]\), of which the file holds 0",
    no_chunk_written: "d declares 1,600,000,000 bytes .* of which the file holds 0",
    zeros: "data set 'd' asks for 80,000,000 bytes, and the file holds only",
    texts: "d is of type object, which no weights have",
    deep: "more than 100 deep",
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_no_weights_do_is_refused(tmp_path, make):
    with h5py.File(tmp_path / "bad.h5", "w") as file:
        make(file)
    with pytest.raises(ValueError, match=rf"bad\.h5.*{REFUSED[make]}"):
        read_h5(tmp_path / "bad.h5")


def test_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.h5"):
        read_h5(tmp_path / "nothing.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.h5 is damaged, or it is not an HDF5 file"):
        read_h5(tmp_path / "text.h5")
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match=r"a\.keras is damaged.*model\.weights\.h5"):
        read_h5(tmp_path / "a.keras")


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"a\.h5 is damaged: libhdf5 crashed on it \(signal 11\)"),
        ("time.sleep(60)", r"a\.h5 is refused: reading it took more than 1 seconds"),
        ("sys.exit('out of order')", r"a\.h5 could not be read: .* ended with 1: out of order"),
        ("time.File = lambda *_: np.ones(10**12); sys.modules['h5py'] = time", r"a\.h5 is damaged.*MemoryError"),
    ],
    ids=["crash", "hang", "exit", "memory"],
)
def test_what_happens_in_the_child_stays_there(tmp_path, monkeypatch, does, message):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["d"] = np.ones(3)
    (tmp_path / "h5py.py").write_text(f"import os, signal, sys, time\nimport numpy as np\n{does}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with limits(seconds=1.0), pytest.raises(ValueError, match=message):
        read_h5(tmp_path / "a.h5")


def test_parts_of_weights_are_copied_and_stay_in_their_folder(tmp_path):
    with h5py.File(tmp_path / "part.weights.h5", "w") as file:
        file["d"] = np.ones(3)
    index = tmp_path / "all.weights.json"
    index.write_text('{"weight_map": {"/d": "part.weights.h5", "/e": ["part.weights.h5"]}}')
    with clean_copy(index) as copy:
        assert sorted(os.listdir(os.path.dirname(copy))) == ["all.weights.json", "part.weights.h5"]
    for map_ in ('{"/d": "../part.weights.h5"}', '{"/d": 3}', "[1]"):
        index.write_text(f'{{"weight_map": {map_}}}')
        with pytest.raises(ValueError, match=r"all\.weights\.json"), clean_copy(index):
            pass


def test_the_child_imports_no_tensorflow():
    code = "import sys, zoo.hdf5; sys.exit(any(m in sys.modules for m in ('tensorflow', 'keras', 'h5py')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
