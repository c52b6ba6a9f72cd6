"""Extraction: only what is missing is computed, company does not matter, and bad numbers stop it."""

import hashlib

import numpy as np
import pytest

from zoo.data.images import encode_png
from zoo.data.preprocessing import Preprocessing
from zoo.transfer.features import Extractor, default_cache
from zoo.transfer.reader import Reader


class Means:
    """A trunk of one end point, the mean colour; counts the batches and remembers their size."""

    def __init__(self):
        self.batches = []

    def __call__(self, images):
        self.batches.append(len(images))
        return {"mean": images.mean((1, 2))}


@pytest.fixture
def files(tmp_path):
    generator = np.random.default_rng(0)
    found = {}
    for i in range(11):
        data = encode_png(generator.integers(0, 256, (9 + i, 12, 3)).astype(np.uint8))
        (tmp_path / f"{i}.png").write_bytes(data)
        found[hashlib.sha256(data).hexdigest()] = tmp_path / f"{i}.png"
    return found


READER = Reader(Preprocessing(size=(8, 8), method="bilinear_antialias"))


def make(tmp_path, **options):
    trunk = Means()
    return trunk, Extractor(trunk, READER, tmp_path / "cache", digest="d", batch_size=4, **options)


def test_row_45_every_picture_once_and_batches_of_one_size(files, tmp_path):
    trunk, extractor = make(tmp_path)
    seen = []
    rows = extractor.features(files, ["mean"], progress=lambda done, total: seen.append((done, total)))
    assert trunk.batches == [4, 4, 4] and rows.computed == 11
    assert seen == [(0, 11), (4, 11), (8, 11), (11, 11)]
    key = list(files)[3]
    expected = READER.read(files[key].read_bytes()).mean((0, 1))
    np.testing.assert_allclose(rows.read([key], ["mean"])["mean"][0], expected, rtol=1e-5)


def test_a_second_run_computes_nothing_and_a_new_picture_only_itself(files, tmp_path):
    make(tmp_path)[1].features(files, ["mean"])
    trunk, extractor = make(tmp_path)
    assert extractor.features(files, ["mean"]).computed == 0 and trunk.batches == []
    data = encode_png(np.zeros((5, 5, 3), np.uint8))
    (tmp_path / "new.png").write_bytes(data)
    more = {**files, hashlib.sha256(data).hexdigest(): tmp_path / "new.png"}
    assert extractor.features(more, ["mean"]).computed == 1 and trunk.batches == [4]


def test_an_interrupted_extraction_goes_on_to_the_same_bits(files, tmp_path):
    _, whole = make(tmp_path / "whole")
    expected = whole.features(files, ["mean"]).read(list(files), ["mean"])["mean"]
    _, part = make(tmp_path / "part")
    part.features(dict(list(files.items())[:5]), ["mean"])
    trunk, rest = make(tmp_path / "part")
    rows = rest.features(files, ["mean"])
    assert rows.computed == 6 and trunk.batches == [4, 4]
    np.testing.assert_array_equal(rows.read(list(files), ["mean"])["mean"], expected)


OTHERS = {
    "weights": {"digest": "e"},
    "fit": {"reader": Reader(READER.preprocessing, fit="stretch")},
    "background": {"reader": Reader(READER.preprocessing, background=(1, 2, 3))},
    "orientation": {"reader": Reader(READER.preprocessing, orient=False)},
    "size": {"reader": Reader(Preprocessing(size=(8, 9), method="bilinear_antialias"))},
    "method": {"reader": Reader(Preprocessing(size=(8, 8), method="bilinear"))},
    "batch": {"batch_size": 5},  # other batches may round otherwise
}


@pytest.mark.parametrize("which", OTHERS)
def test_weights_and_every_setting_have_their_own_caches(files, tmp_path, which):
    """One thing at a time: what is left out of the cache's key gives the features of another setting."""
    same = {"reader": READER, "digest": "d", "batch_size": 4}

    def computed(view=0, **options):
        given = {**same, **options}
        extractor = Extractor(Means(), given.pop("reader"), tmp_path / "cache", **given)
        return extractor.features(files, ["mean"], view=view).computed

    assert [computed(), computed(), computed(**OTHERS[which]), computed(), computed(view=1)] == [11, 0, 11, 0, 11]


def test_a_file_that_changed_meanwhile_stops(files, tmp_path):
    path = next(iter(files.values()))
    path.write_bytes(encode_png(np.zeros((5, 5, 3), np.uint8)))
    with pytest.raises(ValueError, match=r"0\.png changed"):
        make(tmp_path)[1].features(files, ["mean"])


def test_numbers_that_are_not_finite_stop(files, tmp_path):
    extractor = Extractor(lambda x: {"mean": np.full((len(x), 3), np.nan)}, READER, tmp_path, digest="d")
    with pytest.raises(ValueError, match=r"not finite at mean for .*0\.png"):
        extractor.features(files, ["mean"])


def test_a_callable_needs_a_digest(tmp_path):
    with pytest.raises(ValueError, match="needs digest="):
        Extractor(Means(), READER, tmp_path)


def test_the_cache_lies_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "bottlenecks"


def test_views_are_the_mirror_image_and_fixed_distortions(files):
    key, path = next(iter(files.items()))
    data = path.read_bytes()
    np.testing.assert_array_equal(READER.view(data, 1, key), READER.read(data)[:, ::-1])
    np.testing.assert_array_equal(READER.view(data, 2, key), READER.view(data, 2, key))
    assert np.abs(READER.view(data, 2, key) - READER.view(data, 3, key)).max() > 0.01


def test_a_trunk_of_one_channel_gets_distorted_views_too(files):
    grey = Reader(Preprocessing(size=(8, 8), method="bilinear_antialias", mean=(0.5,), std=(0.5,), channels=1))
    key, path = next(iter(files.items()))
    first, second = (grey.view(path.read_bytes(), number, key) for number in (2, 3))
    assert first.shape == (8, 8, 1) and np.abs(first).max() <= 1.0 and np.abs(first - second).max() > 0.01


@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
def test_the_graph_reads_what_the_training_path_reads(files, fit):
    import tensorflow as tf

    reader = Reader(Preprocessing(size=(8, 8), method="bilinear_antialias"), background=(250, 10, 20), fit=fit)
    in_graph = tf.function(reader.read_in_graph, input_signature=[tf.TensorSpec([], tf.string)])
    for path in list(files.values())[:3]:
        data = path.read_bytes()
        np.testing.assert_allclose(in_graph(tf.constant(data)), reader.read(data), atol=1e-6)


def test_padding_shows_the_background_and_keeps_proportions():
    reader = Reader(Preprocessing(size=(4, 4), mean=(0, 0, 0), std=(1, 1, 1)), background=(255, 0, 0))
    tall = np.full((4, 2, 3), 255, np.uint8)
    out = reader.prepare(tall).numpy()
    np.testing.assert_allclose(out[:, 0], [[1, 0, 0]] * 4)
    np.testing.assert_allclose(out[:, 1:3], 1)
    assert Reader.from_dict(reader.to_dict()) == reader


def test_bad_readers():
    with pytest.raises(ValueError, match="fit must be one of pad, stretch, crop"):
        Reader(Preprocessing(), fit="squash")
    with pytest.raises(ValueError, match="three levels"):
        Reader(Preprocessing(), background=(256, 0, 0))
