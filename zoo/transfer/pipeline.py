"""The whole job: from a folder of pictures to a run folder with a model, its evaluation and a report.

Every stage writes what it made under a temporary name and renames it; every stage is deterministic. So a run that was
killed is simply started again: what is expensive (features, fine-tuning) is found again, the rest is recomputed to
the same bits.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo.data.scan import Scan
from zoo.transfer.features import default_cache, extract, load_backbone
from zoo.transfer.finetune import check_end_point, tune
from zoo.transfer.head import choose_head
from zoo.transfer.judging import judge_model
from zoo.transfer.review import review
from zoo.transfer.run import (
    Run,
    begin,
    check_folders,
    claim,
    earlier_run,
    found_run,
    is_as_before,
    replace_run,
    writing,
)
from zoo.transfer.scan import scan_pictures, write_scan
from zoo.transfer.settings import Job, Settings, silent
from zoo.transfer.split import deal, previous_split
from zoo.transfer.write import finish


def retrain(  # noqa: PLR0913 - a user's options
    images: Any,
    out: str | Path,
    *,
    cache: str | Path | None = None,
    labels: Any = None,
    batch_size: int = 16,
    workers: int | None = None,
    export: bool = True,
    accept_changes: bool = False,
    say: Callable[[str], None] | None = None,
    on_scan: Callable[[Scan], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **settings: Any,
) -> Run:
    """Retrains a network on pictures, evaluates it, and writes models and a report to a run folder.

    Args:
        images: A folder with a folder a class, a CSV of path,label, an array [N, H, W, 3] uint8 with ``labels``, a
            ``tf.data`` set of (picture, label) pairs; or a function that gives one of these, called when all else
            has been checked.
        out: The run folder. A killed run that is there is gone on with. A finished one stays as it is when nothing has
            changed; when pictures, labels or corrections have, the new run takes its place in one step, at its end.
        cache: Folder of the bottleneck caches; see ``zoo.transfer.features.default_cache``.
        labels: Labels of an array, names or numbers.
        batch_size: Pictures at a time in the trunk.
        workers: Threads that read pictures.
        export: Writes the SavedModel and the ``.keras`` file too.
        accept_changes: Replace the finished run that is there although the settings are others.
        say: Called with a line of text at each stage.
        on_scan: Called with the scan before anything is refused.
        progress: Called with (stage, done, total).
        **settings: The fields of ``Settings``.

    Returns:
        The run; ``run.model`` is trunk and head as one ``zoo.Model``.

    Raises:
        TypeError: There is no such setting.
        ValueError: The pictures cannot be trained on, or a setting is out of its range: nothing was written.
        ConfigChangedError: The finished run in the folder has other settings.
        FileNotFoundError: The pictures are not there.
        FileExistsError: Something else lies in the run folder.
        BlockingIOError: Another process retrains in the run folder.
        PermissionError: A folder cannot be written.
    """
    known = [field.name for field in dataclasses.fields(Settings)]
    if unknown := sorted(set(settings) - set(known)):
        raise TypeError(f"retrain has no setting {', '.join(unknown)}; there are {', '.join(known)}")
    job = Job(
        Settings(**settings),
        Path(out),
        Path(cache) if cache is not None else default_cache(),
        batch_size,
        workers,
        export,
        accept_changes,
        say or silent,
        progress or silent,
    )
    check_folders(images, job.folder, job.cache)
    with writing(job.folder):
        return _retrain(job, images, labels, on_scan)


def _retrain(job: Job, images: Any, labels: Any, on_scan: Callable[[Scan], None] | None) -> Run:
    """Goes through the stages, with settings and folders that are checked."""
    replace_run(job.folder)
    before, previous = earlier_run(job), previous_split(job)
    backbone = load_backbone(job)
    check_end_point(job, backbone.trunk)
    images = images() if callable(images) else images
    if before is None and not isinstance(images, str | os.PathLike):
        claim(job)  # the pictures are written to the run folder
    scanned = scan_pictures(job, images, labels, on_scan)
    if is_as_before(job, before, scanned, backbone.trunk):
        job.tell(f"nothing changed since the finished run in {job.folder}: nothing to do")
        return found_run(job, backbone, scanned.scan)
    job = begin(job, before)
    write_scan(job, scanned)
    extracted = extract(job, backbone, scanned)
    dealt = deal(job, backbone, scanned, extracted, previous)
    fitted = choose_head(job, backbone, scanned, dealt, extracted)
    fitted, tuned = tune(job, backbone, scanned, dealt, fitted)
    judged = judge_model(scanned, dealt, fitted)
    reviewed = review(backbone, scanned, dealt, extracted, fitted)
    facts = {
        "near_pairs": dealt.similar.pairs_across(dealt.keys, scanned.label_of),
        "near_groups": len(dealt.similar.groups),
        "near": dealt.similar.threshold,
        **({"finetune": tuned} if tuned else {}),
        "judged": judged.part,
        "trunk": backbone.trunk.describe(),
        "validation_accuracy": judged.accuracies["validation"],
        "train_accuracy": judged.accuracies["train"],
        "held_out": None if judged.held_out is None else judged.held_out.to_dict(),
    }
    run = Run(
        job.folder,
        job.settings,
        backbone.reader,
        scanned.scan,
        dealt.split,
        fitted.head,
        fitted.choices,
        fitted.model,
        judged.evaluation,
        fitted.probabilities,
        fitted.held_out,
        facts,
        job.made_in,
    )
    return finish(job, run, before, scanned, reviewed)
