"""The examples of docs/rnn.md run as they stand."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "rnn.md").read_text(), re.DOTALL)


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """What the examples without PyTorch leave and print, in a folder with an old checkpoint."""
    numbers = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for layer, rows in enumerate((3 + 8, 8 + 8)):
            for name, shape in (("Matrix", [rows, 32]), ("Bias", [32])):
                tf.compat.v1.get_variable(
                    f"RNN/MultiRNNCell/Cell{layer}/BasicLSTMCell/Linear/{name}",
                    initializer=numbers.normal(size=shape).astype("float32"),
                )
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(tmp_path / "old" / "model.ckpt"), 1000)
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        if "import torch" not in block:
            exec(block, names)
    return names, capsys.readouterr().out


def test_examples(said):
    names, printed = said
    assert names["left_over"] == []
    assert float(printed) < 1e-5
    np.testing.assert_allclose(names["back"].kernel, names["layer"](0).kernel)


def test_pytorch_example(said, capsys):
    pytest.importorskip("torch")
    names, _ = said
    for block in BLOCKS:
        if "import torch" in block:
            exec(block, names)
    assert float(capsys.readouterr().out) < 1e-5
    np.testing.assert_allclose(names["second"].bias, names["layer"](1).bias, atol=1e-6)
