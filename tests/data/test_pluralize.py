"""Numbers in sentences."""

import pytest

from zoo.data import pluralize


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((1, "picture"), "1 picture"),
        ((0, "picture"), "0 pictures"),
        ((1200, "class"), "1200 classes"),
        ((2, "group of equal pictures"), "2 groups of equal pictures"),
        ((1, "group of equal pictures"), "1 group of equal pictures"),
        ((2, "bad file", "bad files"), "2 bad files"),
    ],
)
def test_one_is_one(words, said):
    assert pluralize(*words) == said
