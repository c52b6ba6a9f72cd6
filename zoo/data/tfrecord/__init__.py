"""TFRecord files: build them from pictures, count and verify them, write and read records of any kind.

``build`` and ``image_stream`` are for pictures, ``write``, ``read`` and ``stream`` for everything else. Names load when
first used: counting records needs no TensorFlow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.data.tfrecord.builder import build as build
    from zoo.data.tfrecord.framing import Damage as Damage
    from zoo.data.tfrecord.framing import DamagedRecordError as DamagedRecordError
    from zoo.data.tfrecord.framing import FileReport as FileReport
    from zoo.data.tfrecord.framing import count_records as count_records
    from zoo.data.tfrecord.framing import verify_file as verify_file
    from zoo.data.tfrecord.manifest import Manifest as Manifest
    from zoo.data.tfrecord.manifest import Shard as Shard
    from zoo.data.tfrecord.manifest import verify_shard as verify_shard
    from zoo.data.tfrecord.pictures import PictureStream as PictureStream
    from zoo.data.tfrecord.pictures import image_stream as image_stream
    from zoo.data.tfrecord.schema import Feature as Feature
    from zoo.data.tfrecord.schema import array as array
    from zoo.data.tfrecord.schema import byte_strings as byte_strings
    from zoo.data.tfrecord.schema import floats as floats
    from zoo.data.tfrecord.schema import integers as integers
    from zoo.data.tfrecord.schema import read as read
    from zoo.data.tfrecord.schema import stream as stream
    from zoo.data.tfrecord.schema import write as write

_NAMES = {
    "builder": ("build",),
    "framing": ("Damage", "DamagedRecordError", "FileReport", "count_records", "verify_file"),
    "manifest": ("Manifest", "Shard", "verify_shard"),
    "pictures": ("PictureStream", "image_stream"),
    "schema": ("Feature", "array", "byte_strings", "floats", "integers", "read", "stream", "write"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"zoo.data.tfrecord.{module}"), name)
    raise AttributeError(f"module 'zoo.data.tfrecord' has no attribute '{name}'")
