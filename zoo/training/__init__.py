"""The training engine: `Trainer`, schedules, averages, step-exact checkpoints, summaries."""

from zoo.training.averages import ExponentialMovingAverage
from zoo.training.checkpoints import (
    Checkpoint,
    Checkpoints,
    CheckpointWriteError,
    DamagedCheckpointError,
    read_checkpoint,
    write_checkpoint,
)
from zoo.training.loop import History, InterruptedRunError
from zoo.training.losses import TaskLoss, softmax_cross_entropy
from zoo.training.lr_finder import RangeTest, find_learning_rate
from zoo.training.memory import MemoryEstimate, estimate_inference, estimate_memory
from zoo.training.optimizers import OPTIMIZERS, make_optimizer
from zoo.training.run_warnings import NonFiniteLossError
from zoo.training.schedules import SCHEDULES, WarmUp, make_schedule
from zoo.training.settings import RunOptions
from zoo.training.state import ConfigChangedError
from zoo.training.trainer import Trainer

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Checkpoint",
    "CheckpointWriteError",
    "Checkpoints",
    "ConfigChangedError",
    "DamagedCheckpointError",
    "ExponentialMovingAverage",
    "History",
    "InterruptedRunError",
    "MemoryEstimate",
    "NonFiniteLossError",
    "RangeTest",
    "RunOptions",
    "TaskLoss",
    "Trainer",
    "WarmUp",
    "estimate_inference",
    "estimate_memory",
    "find_learning_rate",
    "make_optimizer",
    "make_schedule",
    "read_checkpoint",
    "softmax_cross_entropy",
    "write_checkpoint",
]
