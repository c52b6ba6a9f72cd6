"""TFRecord files: build them from pictures, count and verify them, write and read records of any kind.

``build`` and ``image_stream`` are for pictures, ``write``, ``read`` and ``stream`` for everything else.
"""

from zoo.data.tfrecord.build import build as build
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
