import io
import pickle
import tarfile

import numpy as np
import pytest

from zoo.data.cifar import PIXELS, load_cifar10, load_cifar100

RNG = np.random.default_rng(3)


def records(count, classes, coarse=0):
    rows = RNG.integers(0, 256, (count, PIXELS), np.uint8)
    heads = [np.arange(count, dtype=np.uint8) % n for n in ((coarse, classes) if coarse else (classes,))]
    return np.concatenate([np.stack(heads, 1), rows], 1)


@pytest.fixture
def ten(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    data = [records(10, 10) for _ in range(6)]
    for name, rows in zip([*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"], data, strict=True):
        (folder / name).write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n")
    return folder, data


def test_cifar10_from_a_folder_and_from_the_archive(ten, tmp_path):
    folder, data = ten
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    for source in (folder, tmp_path, archive):
        train, test = load_cifar10(source), load_cifar10(source, "test")
        assert train.images.shape == (50, 32, 32, 3) and train.images.dtype == np.uint8
        assert train.labels.tolist() == list(range(10)) * 5 and train.class_names[9] == "truck"
        pixel = data[5][7, 1:].reshape(3, 32, 32)[:, 4, 9]  # three planes: red, green, blue
        assert test.images[7, 4, 9].tolist() == pixel.tolist()


def test_cifar100_has_two_labels(tmp_path):
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(records(100, 100, coarse=20).tobytes())
    assert load_cifar100(tmp_path).labels.tolist() == list(range(100))
    assert load_cifar100(tmp_path, "test", labels="coarse").labels.tolist() == list(range(20)) * 5
    assert load_cifar100(tmp_path).class_names == []
    with pytest.raises(ValueError, match="'fine' or 'coarse', got 'both'"):
        load_cifar100(tmp_path, labels="both")


class Bomb:
    def __reduce__(self):
        return (open, ("/nowhere/touched", "w"))


def test_pickles_are_refused_with_the_reason_and_never_loaded(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=r"can run any code.*cifar-10-binary\.tar\.gz"):
        load_cifar10(tmp_path)
    archive = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-100-python/train")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"\x80\x04N."))
    with pytest.raises(ValueError, match="made of pickles"):
        load_cifar100(archive)


def test_archives_are_not_unpacked(tmp_path):
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        link = tarfile.TarInfo("x/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        info = tarfile.TarInfo("../../escape.bin")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(FileNotFoundError, match=r"no test_batch\.bin"):
        load_cifar10(archive, "test")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.tar"]


def test_damaged_files_are_named(ten, tmp_path):
    folder, _ = ten
    (folder / "data_batch_3.bin").write_bytes((folder / "data_batch_3.bin").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3\.bin has 30729 bytes"):
        load_cifar10(folder)
    (folder / "test_batch.bin").write_bytes(bytes([77]) + bytes(PIXELS))
    with pytest.raises(ValueError, match=r"labels 0\.\.9, found 77"):
        load_cifar10(folder, "test")
    (folder / "test_batch.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="has 0 bytes"):
        load_cifar10(folder, "test")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_cifar10(tmp_path / "missing")
    (tmp_path / "half.tar.gz").write_bytes(b"\x1f\x8b\x08 no")
    with pytest.raises(ValueError, match=r"half\.tar\.gz is damaged, or it is not a whole tar archive"):
        load_cifar10(tmp_path / "half.tar.gz")
    with pytest.raises(ValueError, match="got 'val'"):
        load_cifar10(folder, "val")


def test_an_archive_of_zeros_is_refused_when_it_has_unpacked_too_much(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for number in range(4):
            info = tarfile.TarInfo(f"{number}.bin")
            info.size = 25 << 20
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"bomb\.tar\.gz is refused: what it unpacks to asks for 67,\d+,\d+ bytes"):
        load_cifar10(path)
