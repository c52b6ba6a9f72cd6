import numpy as np
import pytest
import tensorflow as tf

from zoo.data import augment
from zoo.data.stream import Stream, array_stream, as_stream, permutation, prepare_picture

X = np.arange(23, dtype=np.float32)
Y = np.arange(23)


def rows(dataset):
    return [tuple(map(tuple, batch)) for batch in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("skip", [0, 1, 5])
def test_a_stream_starts_again_at_any_batch_of_any_epoch(skip):
    stream = array_stream(X, Y, batch_size=4, seed=7)
    assert rows(stream(3, skip=skip)) == rows(stream(3))[skip:]
    assert stream.batches == 6 and stream.examples == 23
    assert sorted(x for batch in rows(stream(3)) for x in batch[1]) == list(range(23))


def test_the_order_changes_with_the_epoch_and_the_seed_but_not_with_the_global_seed():
    first = rows(array_stream(X, Y, batch_size=4, seed=7)(0))
    tf.random.set_seed(99)
    assert rows(array_stream(X, Y, batch_size=4, seed=7)(0)) == first
    assert rows(array_stream(X, Y, batch_size=4, seed=7)(1)) != first
    assert rows(array_stream(X, Y, batch_size=4, seed=8)(0)) != first
    assert not np.array_equal(permutation(50, 1, 2), permutation(50, 2, 1))


def test_unshuffled_arrays_keep_their_order_and_the_last_batch_can_be_dropped():
    stream = array_stream(X, batch_size=4, shuffle=False, drop_remainder=True)
    batches = list(stream(0).as_numpy_iterator())
    assert np.array_equal(np.concatenate(batches), X[:20]) and stream.batches == 5


def test_augmentation_is_repeated_exactly_after_a_restart():
    images = np.random.default_rng(0).random((10, 8, 8, 3), np.float32)
    stream = array_stream(images, batch_size=3, seed=1, augment=augment.pad_crop_flip)
    whole = list(stream(2).as_numpy_iterator())
    rest = list(stream(2, skip=2).as_numpy_iterator())
    assert all(np.array_equal(a, b) for a, b in zip(whole[2:], rest, strict=True))


def test_every_batch_and_picture_has_a_seed_of_its_own():
    def seeds_of(seed, epoch):
        def augment(images, pair):
            return tf.tile(pair[None], [len(images), 1])

        stream = array_stream(np.zeros((12, 2), np.int32), batch_size=3, seed=seed, augment=augment)
        return [tuple(batch[0].tolist()) for batch in stream(epoch).as_numpy_iterator()]

    found = [pair for seed in (0, 1) for epoch in (0, 1) for pair in seeds_of(seed, epoch)]
    assert len(set(found)) == len(found) == 16
    assert seeds_of(0, 1) == seeds_of(0, 1)
    places = [(epoch, number) for epoch in (0, 1) for number in range(4)]
    pairs = [prepare_picture(lambda image, pair: pair, tf.zeros([1, 1, 3]), 0, *place) for place in places]
    assert len({tuple(pair.numpy()) for pair in pairs}) == 8


def test_repeat_gives_exactly_n_epochs_and_no_batch_spans_two():
    batches = rows(array_stream(X, Y, batch_size=10, seed=0).repeat(3))
    assert [len(batch[0]) for batch in batches] == [10, 10, 3] * 3
    assert all(sum(x == value for batch in batches for x in batch[1]) == 3 for value in range(23))


def test_as_stream_takes_what_people_have():
    dataset = tf.data.Dataset.range(10).batch(3)
    for data in (
        dataset,
        lambda epoch: dataset,
        lambda epoch, skip: dataset.skip(skip),
        Stream(lambda e, s: dataset.skip(s)),
    ):
        assert [list(b) for b in as_stream(data)(0, skip=3).as_numpy_iterator()] == [[9]]
    assert as_stream(dataset).batches == 4
    stream = array_stream(X, batch_size=4)
    assert as_stream(stream) is stream
    assert len(rows(as_stream((X, Y), batch_size=5)(0))) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_stream((X, Y)), "batch_size="),
        (lambda: as_stream(tf.data.Dataset.range(3), batch_size=2), "batched already"),
        (lambda: array_stream(X, Y[:5], batch_size=2), "one length"),
        (lambda: array_stream(X, batch_size=0), "got 0"),
        (lambda: array_stream(X, batch_size=30, drop_remainder=True), "no batch"),
        (lambda: array_stream(X, batch_size=4)(-1), "counts from 0"),
        (lambda: array_stream(X, batch_size=4)(0, skip=7), "shrink"),
        (lambda: array_stream(X, batch_size=4).repeat(0), "got 0"),
    ],
)
def test_bad_input_says_what_was_given(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_other_data_is_a_type_error():
    with pytest.raises(TypeError, match="int"):
        as_stream(3)
