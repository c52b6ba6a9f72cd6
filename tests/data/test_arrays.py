"""What is said about bad labelled images before anything is trained."""

import numpy as np
import pytest

import zoo
from zoo.data.arrays import check_examples, white

SIZE = (4, 4, 1)


def check(images, labels, **how):
    return check_examples(images, labels, **{"size": SIZE, "num_classes": 3, **how})


def test_good_examples_come_back_as_float32_and_int64():
    images, labels = check(np.full((2, 4, 4), 0.5), [0, 2])
    assert images.shape == (2, 4, 4, 1)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)


def test_integers_are_scaled_and_it_is_said():
    with pytest.warns(UserWarning, match="uint8 pixels are divided by 255"):
        images, _ = check(np.full((1, *SIZE), 51, "uint8"), [0])
    assert images == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("dtype", "largest"), [("uint8", 255), ("int8", 127), ("uint16", 65535), ("int32", 255), ("int64", 255)]
)
def test_wide_integers_hold_bytes_for_data_as_for_networks(dtype, largest):
    assert white(dtype) == largest
    pixels = np.full((1, 32, 32, 1), 51, dtype)
    with pytest.warns(UserWarning, match=f"{dtype} pixels are divided by {largest}"):
        images, _ = check(pixels, [0], size=(32, 32, 1))
    assert images == pytest.approx(51 / largest)
    model = zoo.lenet5(seed=1)
    with pytest.warns(UserWarning, match=f"{dtype} images are divided by {largest}"):
        logits = model(pixels)
    np.testing.assert_allclose(logits, model(images), rtol=1e-5, atol=1e-6)


def test_a_strange_range_is_said_but_taken():
    with pytest.warns(UserWarning, match=r"0\.\.1 but go from 0 to 255"):
        check(np.stack([np.zeros(SIZE), np.full(SIZE, 255.0)]), [0, 1])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 4)), [0, 1], r"4 x 4 x 1; got shape \[2, 4\]"),
        (np.zeros((2, 5, 4, 1)), [0, 1], "got shape"),
        (np.zeros((2, 4, 4, 3)), [0, 1], "got shape"),
        (np.zeros((0, 4, 4, 1)), [], "there are none"),
        (np.full((2, 4, 4, 1), np.nan), [0, 1], "2 of 2 have NaN .* the first is number 0"),
        (
            np.array([np.zeros(SIZE), np.full(SIZE, np.inf)]),
            [0, 1],
            "1 of 2 have NaN .* the first is number 1",
        ),
        (np.full((2, 4, 4, 1), "a"), [0, 1], "integers or floats"),
        (np.zeros((2, 4, 4, 1)), [0], r"labels of shape \[2\]; got \[1\]"),
        (np.zeros((2, 4, 4, 1)), [0.0, 1.0], "labels are integers"),
        (np.zeros((2, 4, 4, 1)), [0, 3], r"0\.\.2 for 3 classes; 1 of 2 do not, first number 1 with 3"),
        (np.zeros((2, 4, 4, 1)), [-1, 0], "first number 0 with -1"),
    ],
    ids=range(11),
)
def test_bad_examples(images, labels, message):
    with pytest.raises(ValueError, match=f"digits: .*{message}"):
        check(images, labels, what="digits")
