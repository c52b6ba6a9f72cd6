"""Imports TensorFlow without the notes its C++ side writes to the terminal."""

import os
import sys
import tempfile
from pathlib import Path


def import_tensorflow() -> None:
    """Imports TensorFlow and finds its devices; what it says meanwhile is shown only when a GPU is there but not found.

    Its messages go to file descriptor 2 before any setting can silence them, so the descriptor is set aside meanwhile.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    terminal = os.dup(2)
    gpus, finished = [], False
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow as tf

            gpus = tf.config.list_physical_devices("GPU")
            finished = True
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            if not finished or (Path("/dev/nvidia0").exists() and not gpus):
                said.seek(0)
                sys.stderr.write(said.read().decode(errors="replace"))
