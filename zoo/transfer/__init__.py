"""From a folder of pictures to a model that can be trusted: ``retrain`` does the whole, each stage is a function.

Scan and split are ``zoo.data.scan.scan_images`` and ``zoo.data.split.split_scan``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.transfer.evaluation import Evaluation as Evaluation
    from zoo.transfer.evaluation import evaluate as evaluate
    from zoo.transfer.features import Extractor as Extractor
    from zoo.transfer.finetune import fine_tune as fine_tune
    from zoo.transfer.head import Head as Head
    from zoo.transfer.head import assemble as assemble
    from zoo.transfer.head import calibrate as calibrate
    from zoo.transfer.head import fit_head as fit_head
    from zoo.transfer.head import train_head as train_head
    from zoo.transfer.judging import judge as judge
    from zoo.transfer.pipeline import retrain as retrain
    from zoo.transfer.reader import Reader as Reader
    from zoo.transfer.report import write_report as write_report
    from zoo.transfer.review import find_suspicious as find_suspicious
    from zoo.transfer.run import load_predictor as load_predictor
    from zoo.transfer.settings import Settings as Settings
    from zoo.transfer.trunk import load_trunk as load_trunk

# Public name -> module that defines it; loaded when first used.
_NAMES = {
    "Evaluation": "evaluation",
    "Extractor": "features",
    "Head": "head",
    "Reader": "reader",
    "Settings": "settings",
    "assemble": "head",
    "calibrate": "head",
    "evaluate": "evaluation",
    "find_suspicious": "review",
    "fine_tune": "finetune",
    "fit_head": "head",
    "judge": "judging",
    "load_predictor": "run",
    "load_trunk": "trunk",
    "retrain": "pipeline",
    "train_head": "head",
    "write_report": "report",
}
__all__ = sorted(_NAMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name not in _NAMES:
        raise AttributeError(f"module 'zoo.transfer' has no attribute '{name}'; dir(zoo.transfer) lists its names")
    value = getattr(import_module(f"zoo.transfer.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
