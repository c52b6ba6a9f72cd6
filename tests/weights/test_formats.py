"""Formats are told by content; damaged and hostile files are refused with a clear error."""

import hashlib
import json
import pickle
import struct
import tarfile
import zipfile

import h5py
import numpy as np
import pytest
import safetensors.numpy
from weights.fixtures import write_tfjs

from zoo.weights import open_weights, sniff
from zoo.weights.keras_files import read_keras
from zoo.weights.layer_order import natural_key, pair_units
from zoo.weights.safetensors_files import write_safetensors
from zoo.weights.tf1 import save_tf1
from zoo.weights.torch_files import inception_modules, is_torch_state, units_from_torch

LAYERS = {
    "conv2d_1": [("kernel", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))],
    "batch_normalization_1": [("beta", np.ones(4, np.float32)), ("moving_mean", np.zeros(4, np.float32))],
}


def test_sniffing_ignores_names(tmp_path):
    one = {"a": np.ones(3, np.float32)}
    safetensors.numpy.save_file(one, tmp_path / "x.h5")
    assert sniff(tmp_path / "x.h5") == "safetensors"
    with h5py.File(tmp_path / "x.safetensors", "w") as file:
        file["a"] = 1
    assert sniff(tmp_path / "x.safetensors") == "keras"
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert sniff(tmp_path / "x.ckpt") == "pth"
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", b"")
    assert sniff(tmp_path / "x.pth") == "keras"
    (tmp_path / "old.bin").write_bytes(b"\x80\x02\x8a\x0a")
    assert sniff(tmp_path / "old.bin") == "pth"
    write_tfjs(LAYERS, tmp_path / "js")
    assert sniff(tmp_path / "js") == sniff(tmp_path / "js" / "model.json") == "tfjs"
    assert sniff(save_tf1(one, tmp_path / "y.pth")) == "tf1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "none of the weight formats"),
        (b"hello, these are no weights", "its first bytes are b'hello, t'"),
        (b"\x1f\x8b\x08rest", "a gzip archive: unpack it first"),
        (b"PK\x03\x04rest", "is damaged, or it is not a zip archive"),
        (struct.pack("<Q", 10**9) + b"{", "none of the weight formats"),
    ],
)
def test_what_is_no_weights_file_is_said(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        open_weights(tmp_path / "file")


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No weights at .*nothing"):
        sniff(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"neither a model.json nor"):
        sniff(tmp_path)


def test_damaged_files_are_errors(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.ones(10000)
    whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        open_weights(tmp_path / "cut.h5")
    safetensors.numpy.save_file({"a": np.ones(1000)}, tmp_path / "a.safetensors")
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-8])
    with pytest.raises(ValueError, match=r"cut.safetensors is damaged"):
        open_weights(tmp_path / "cut.safetensors")


def test_written_files_can_be_read_by_whom_the_user_lets(tmp_path):
    write_safetensors({"N/weights": np.ones(4, np.float32)}, tmp_path / "a.safetensors", {"net": "n"})
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
    assert open_weights(tmp_path / "a.safetensors").own_card.net == "n"


def test_a_card_beside_a_path_is_held_to_its_sha256(tmp_path):
    path, card = tmp_path / "a.safetensors", tmp_path / "a.json"
    safetensors.numpy.save_file({"N/weights": np.ones(4, np.float32)}, path)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    card.write_text(json.dumps({"net": "n", "sha256": right}))
    assert open_weights(path).own_card.net == "n"
    card.write_text(json.dumps({"net": "n"}))  # a card without a hash promises nothing
    assert open_weights(path).own_card.net == "n"
    card.write_text(json.dumps({"net": "n", "sha256": "0" * 64}))
    with pytest.raises(ValueError, match=rf"its SHA-256 is {right}, but its card .*a.json says 0000.*changed or"):
        open_weights(path)
    card.write_text("[1, 2")
    with pytest.raises(ValueError, match=r"a.json beside the weights is no card"):
        open_weights(path)


def test_pickled_code_is_never_run(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(ValueError, match="never pickled code"):
        open_weights(tmp_path / "evil.pth")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(ValueError, match="never pickled code"):
        open_weights(tmp_path / "evil.pkl")
    assert not (tmp_path / "ran").exists()


def test_hdf5_links_to_other_files_are_not_followed(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["data"] = np.ones(4)
    with h5py.File(tmp_path / "linked.h5", "w") as file:
        file.attrs["layer_names"] = [b"conv2d_1"]
        group = file.create_group("conv2d_1")
        group.attrs["weight_names"] = [b"kernel:0"]
        group["kernel:0"] = h5py.ExternalLink("secret.h5", "/data")
    with pytest.raises(ValueError, match="is a link, which zoo does not follow"):
        read_keras(tmp_path / "linked.h5")


def test_tfjs_shards_stay_in_their_folder_and_are_whole(tmp_path):
    write_tfjs(LAYERS, tmp_path / "js", shards=2)
    manifest = json.loads((tmp_path / "js" / "model.json").read_text())
    (tmp_path / "outside").write_bytes(b"x" * 100)
    manifest["weightsManifest"][0]["paths"][0] = "../outside"
    (tmp_path / "js" / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"outside its folder: '../outside'"):
        open_weights(tmp_path / "js")
    write_tfjs(LAYERS, tmp_path / "js", shards=2)
    shard = tmp_path / "js" / "group1-shard2of2"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut short"):
        open_weights(tmp_path / "js")
    shard.unlink()
    with pytest.raises(FileNotFoundError, match="group1-shard2of2"):
        open_weights(tmp_path / "js")


def test_torchvisions_modules_in_order():
    names = inception_modules()
    assert len(names) == len(set(names)) == 96
    assert names[5:8] == ["Mixed_5b.branch1x1", "Mixed_5b.branch5x5_1", "Mixed_5b.branch5x5_2"]
    assert names[-3:] == ["Mixed_7c.branch_pool", "AuxLogits.conv0", "AuxLogits.conv1"]


def torch_modules(names):
    """A state dictionary with a parameter for each of these modules, in the reverse order."""
    shapes = {"conv": (4, 3, 1, 1), "norm": (4,), "bn": (4,)}
    kinds = {name: next((kind for kind in shapes if kind in name.rpartition(".")[2]), "conv") for name in names}
    return {f"{name}.weight": np.ones(shapes[kinds[name]], np.float32) for name in reversed(names)}


def test_densenets_modules_in_order_with_old_spelling():
    layers = [f"features.denseblock1.denselayer{i}" for i in range(1, 11)]
    modules = ["features.conv0", "features.norm0"]
    modules += [f"{layer}.{kind}.1" for layer in layers for kind in ("norm", "conv")]
    modules += ["features.transition1.norm", "features.transition1.conv"]
    modules += ["features.denseblock2.denselayer1.norm.1", "features.denseblock2.denselayer1.conv.1", "features.norm5"]
    state = torch_modules([*modules, "classifier.1"])
    assert is_torch_state(list(state))
    units = units_from_torch({f"module.{name}": array for name, array in state.items()})
    assert [unit.name.replace("norm1", "norm.1").replace("conv1", "conv.1") for unit in units[:-1]] == modules
    assert [unit.name for unit in units if unit.part == "head"] == ["classifier.1"]
    assert [unit.name for unit in units_from_torch(torch_modules(modules[:6]))][-1].endswith("denselayer2.conv1")


DENSE = [f"features.denseblock1.denselayer{i}.{kind}1" for i in (1, 2, 3) for kind in ("norm", "conv")]
INCEPTION = [f"{module}.{kind}" for module in inception_modules() for kind in ("conv", "bn")] + ["AuxLogits.fc"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["conv1", "bn1", "layer1.0.conv1", "fc"], r"modules of another network: bn1, conv1, layer1.0.conv1\. "),
        (["features.0", "features.3", "classifier.6"], r"another network: features.0, features.3\. "),
        (["fc"], r"nothing but a head: fc\. "),
        ([*INCEPTION, "Mixed_8a.conv", "fc"], r"another network: Mixed_8a.conv\. "),
        ([name for name in INCEPTION if name != "Mixed_5b.branch1x1.conv"], r"missing: Mixed_5b.branch1x1.conv\. "),
        ([name for name in INCEPTION if name != "AuxLogits.conv0.bn"], r"missing: AuxLogits.conv0.bn\. "),
        (["features.conv0", "features.norm0", *DENSE[:2], *DENSE[4:]], "missing: .*denselayer2.conv1, .*layer2.norm1"),
        (["features.conv0", "features.norm0", *DENSE, "features.norm_final"], "network: features.norm_final"),
    ],
)
def test_networks_whose_names_nobody_knows_are_not_paired_by_order(names, message, tmp_path):
    safetensors.numpy.save_file(torch_modules(names), tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=message + "|" + message.replace(r"\. ", "; ")) as error:
        open_weights(tmp_path / "a.safetensors")
    assert "zoo.weights.restore_tf1(model, arrays)" in str(error.value)


def test_recurrent_layers_of_pytorch_are_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.save(torch.nn.LSTM(3, 4).state_dict(), tmp_path / "lstm.pth")
    with pytest.raises(ValueError, match="knows the names of torchvision's"):
        open_weights(tmp_path / "lstm.pth")


def test_names():
    assert sorted(["conv2d_10", "conv2d", "conv2d_9"], key=natural_key) == ["conv2d", "conv2d_9", "conv2d_10"]


def test_layers_of_another_network_are_named(tmp_path):
    write_tfjs(LAYERS, tmp_path / "js")
    with pytest.raises(
        ValueError, match=r"layer 1 of 1 in the trunk, 'conv2d_1'.*\[1, 2, 3, 4\].*Net/conv has \[3, 3, 3, 4\]"
    ):
        pair_units(open_weights(tmp_path / "js").units, {"Net/conv/weights": (3, 3, 3, 4)})


def test_archives_cannot_escape(tmp_path):
    from zoo.weights.published import FetchError, unpack

    for name, kind in (("../evil", tarfile.REGTYPE), ("/evil", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "/etc/passwd"
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            tar.addfile(info)
        with pytest.raises(FetchError, match="a link or leads outside"):
            unpack(tmp_path / "a.tar", tmp_path / "out")
    (tmp_path / "b.tar.gz").write_bytes(b"\x1f\x8bnot really")
    with pytest.raises(FetchError, match="is damaged, or it is not a tar archive"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
