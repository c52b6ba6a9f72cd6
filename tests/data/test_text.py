"""Folders of text: the three files of a corpus go together."""

import pytest

from zoo.data.text import load_corpus


@pytest.mark.parametrize("prefix", ["ptb.", ""])
@pytest.mark.parametrize(("there", "missing"), [(["train", "test"], "valid"), (["train", "valid"], "test")])
def test_a_missing_part_is_named(tmp_path, prefix, there, missing):
    for part in there:
        (tmp_path / f"{prefix}{part}.txt").write_text("a b c\n" * 20)
    with pytest.raises(FileNotFoundError, match=rf"but not {prefix}{missing}\.txt: put the missing part there"):
        load_corpus(tmp_path)
    (tmp_path / f"{prefix}{missing}.txt").write_text("a b\n")
    assert len(load_corpus(tmp_path).train) == 80
