"""Weight decay of foreign layers: TensorFlow's legacy layers, on which tf_slim stands, keep it to themselves."""

from __future__ import annotations

import functools
import sys
from typing import Any


@functools.cache
def hook_legacy_layers() -> None:
    """Lets the regularizers of TensorFlow's legacy layers reach the model or store that runs, and so its losses.

    Called when foreign code first asks a frame for a variable: the layers' module is loaded then, if it is used at all.
    """
    from zoo.scoping.frames import current_frame

    module = sys.modules.get("tensorflow.python.keras.engine.base_layer")
    if module is None:
        return
    original = module.Layer._handle_weight_regularization

    @functools.wraps(original)
    def handle(layer: Any, name: str, variable: Any, regularizer: Any) -> None:
        frame = current_frame()
        if frame is None:
            original(layer, name, variable, regularizer)
        else:
            frame.store.regularize(frame.last, regularizer)

    module.Layer._handle_weight_regularization = handle
