"""The whole job: from a folder of pictures to a run folder with a model, its evaluation and a report.

Every stage writes what it made under a temporary name and renames it; every stage is deterministic. So a run that was
killed is simply started again: what is expensive (features, fine-tuning) is found again, the rest is recomputed to
the same bits.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.scan import Scan, scan_images
from zoo.data.split import SETS, split_scan
from zoo.data.words import pluralize
from zoo.files import remove, replacing
from zoo.transfer.assembly import assemble
from zoo.transfer.changes import what_changed
from zoo.transfer.evaluation import Evaluation, evaluate
from zoo.transfer.extract import Extractor, Features, Rows, default_cache
from zoo.transfer.head import Head, calibrate, fit_head
from zoo.transfer.pictures import Reader
from zoo.transfer.prepare import (
    check_end_points,
    check_folders,
    check_settings,
    claim,
    earlier_run,
    found_run,
    is_as_before,
    leaving_nothing,
    previous_split,
)
from zoo.transfer.report import write_report
from zoo.transfer.run import NEXT, Run, finish_replacing, save_run, write_predictions
from zoo.transfer.settings import Settings
from zoo.transfer.similar import near_duplicates
from zoo.transfer.sources import as_files
from zoo.transfer.steps_head import train_head
from zoo.transfer.suspicious import Decision, apply_decisions, find_suspicious, read_decisions, write_suspicious
from zoo.transfer.trunk import load_trunk

EXPORT_CHECKED = 16  # pictures on which the exported model is compared with the training path
ROWS_AT_A_TIME = 4096


def retrain(
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
        cache: Folder of the bottleneck caches; see ``zoo.transfer.extract.default_cache``.
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
        PermissionError: A folder cannot be written.
    """
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(Settings)})
    if unknown:
        known = ", ".join(field.name for field in dataclasses.fields(Settings))
        raise TypeError(f"retrain has no setting {', '.join(unknown)}; there are {known}")
    chosen = Settings(**settings)
    if batch_size < 1 or (workers is not None and workers < 1):
        raise ValueError(f"batch_size and workers must be 1 or more. Received: {batch_size} and {workers}")
    folder, cache = Path(out), Path(cache) if cache is not None else default_cache()
    check_folders(images, folder, cache)
    with leaving_nothing(folder):
        return _retrain(
            images,
            chosen,
            folder,
            cache,
            labels=labels,
            batch_size=batch_size,
            workers=workers,
            export=export,
            accept_changes=accept_changes,
            say=say,
            on_scan=on_scan,
            progress=progress,
        )


def _retrain(
    images: Any,
    chosen: Settings,
    folder: Path,
    cache: Path,
    *,
    labels: Any,
    batch_size: int,
    workers: int | None,
    export: bool,
    accept_changes: bool,
    say: Callable[[str], None] | None,
    on_scan: Callable[[Scan], None] | None,
    progress: Callable[[str, int, int], None] | None,
) -> Run:
    """Does what `retrain` says, with settings and folders that are checked."""
    tell = say or (lambda text: None)
    count = progress or (lambda stage, done, total: None)
    finish_replacing(folder)
    before = earlier_run(folder)
    check_settings(folder, before, chosen, accept_changes)
    earlier = previous_split(folder, chosen)
    trunk = load_trunk(chosen.net, chosen.weights, size=chosen.size, options=chosen.net_options, seed=chosen.seed)
    candidates = check_end_points(chosen, trunk)
    reader = Reader(trunk.preprocessing, chosen.background, chosen.orient, chosen.fit)

    images = images() if callable(images) else images
    if before is None and not isinstance(images, str | os.PathLike):
        claim(folder, chosen)
    scan = scan_images(
        as_files(images, labels, folder),
        layout=chosen.layout,
        background=chosen.background,
        orient=chosen.orient,
        workers=workers,
        progress=lambda done, total: count("scan", done, total),
    )
    if on_scan:
        on_scan(scan)
    decisions = read_decisions(folder / "suspicious.csv", scan.labels)
    scan = apply_decisions(scan, decisions)
    scan.check(chosen.max_bad)
    classes = scan.labels
    label_of = {p.sha256: classes.index(p.label) for p in scan.pictures}
    if len(set(label_of.values())) < 2:
        raise ValueError("All classes hold the same files, so there is nothing to tell them apart by.")
    if is_as_before(folder, before, chosen, scan, decisions, trunk, export):
        tell(f"nothing changed since the finished run in {folder}: nothing to do")
        return found_run(folder, chosen, reader, scan, trunk, chosen.train_batch_norm)
    place = folder if before is None else folder / NEXT
    if before is not None:
        remove(place)  # what is left of a new run that was killed
    claim(place, chosen)
    scan.save(place / "scan.json")
    scan.write_bad(place / "bad_files.csv")
    tell(_scan_line(scan, decisions))

    about = f"{trunk.net}, {trunk.source}, {trunk.model.count_params():,} parameters"
    tell(f"trunk: {about}, pictures of {trunk.size[0]} x {trunk.size[1]}")
    end_points = list(dict.fromkeys([name for group in candidates for name in group] + [trunk.detail]))
    extractor = Extractor(trunk, reader, cache, batch_size=batch_size, workers=workers)
    files = {p.sha256: p.path for p in scan.pictures}
    rows = extractor.features(files, end_points, progress=lambda done, total: count("bottlenecks", done, total))
    tell(f"bottlenecks: {pluralize(len(files), 'picture')}, {len(files) - rows.computed} found in the cache")

    keys = list(files)
    similar = near_duplicates(rows.read(keys, [trunk.detail])[trunk.detail], keys, chosen.near)
    split = split_scan(
        scan,
        validation=chosen.validation,
        test=chosen.test,
        seed=chosen.seed,
        similar=[[keys[i] for i in group] for group in similar.groups],
        previous=earlier,
    )
    split.save(place / "split.json")
    sets = {name: [key for key in keys if split.sets[key] == name] for name in SETS}
    dealt = ", ".join(f"{len(sets[name])} {name}" for name in SETS)
    tell(f"split: {dealt}; {pluralize(len(similar.groups), 'group of near-duplicates')} kept together")

    def labels_of(name: str) -> np.ndarray:
        return np.array([label_of[key] for key in sets[name]], np.int64)

    train = rows.read(sets["train"], end_points)
    if chosen.views:
        train = _with_views(extractor, sets["train"], files, end_points, chosen.views, train, count)
    group_of = {keys[i]: number for number, group in enumerate(similar.groups) for i in group}
    groups = np.array([group_of.get(key, len(group_of) + i) for i, key in enumerate(sets["train"])])
    held = rows.read(sets["validation"], end_points)
    how: dict[str, Any] = {"candidates": candidates, "groups": groups, "balance": chosen.balance, "seed": chosen.seed}
    if chosen.head == "softmax":
        head, choices = fit_head(train, labels_of("train"), classes, **how)
    else:
        how |= {"optimizer": chosen.head, "hidden": chosen.hidden, "dropout": chosen.dropout}
        validation = (held, labels_of("validation"))
        head, choices = train_head(train, labels_of("train"), classes, validation=validation, **how)
    del train
    head = calibrate(head, held, labels_of("validation"))
    head.save(place / "head.safetensors")
    kind = f"C = {head.penalty:g}" if head.penalty else chosen.head
    tell(f"head: reads {' + '.join(head.end_points)}, {kind}, temperature {head.temperature:.2f}")

    model = assemble(trunk, head, dropout_keep_prob=1.0, train_batch_norm=chosen.train_batch_norm)
    probabilities = _probabilities(rows, keys, head)
    facts: dict[str, Any] = {"near_pairs": similar.pairs_across(keys, label_of), "near_groups": len(similar.groups)}
    if chosen.finetune_from:
        from zoo.transfer.finetune import fine_tune

        tuned = fine_tune(trunk, head, reader, files, sets, label_of, chosen, folder, progress=count)
        facts["finetune"] = tuned.facts
        tell(tuned.facts["sentence"])
        if tuned.model is not None:
            model, probabilities = tuned.model, tuned.probabilities
    majority = max(classes, key=lambda label: (split.labels.get(label, {}).get("train", 0), label))
    judged = "test" if sets["test"] else "train"
    table = np.stack([probabilities[key] for key in sets[judged]])
    evaluation = evaluate(table, labels_of(judged), classes, majority_class=majority)
    facts |= {
        "judged": judged,
        "trunk": trunk.describe(),
        "validation_accuracy": _accuracy(probabilities, sets["validation"], label_of),
        "train_accuracy": _accuracy(probabilities, sets["train"], label_of),
    }
    facts["changes"] = what_changed(before, scan, chosen, evaluation)
    run = Run(folder, chosen, reader, scan, split, head, choices, model, evaluation, probabilities, facts, place)
    _finish(run, decisions, export, tell)
    return run


def _finish(run: Run, decisions: Sequence[Decision], export: bool, tell: Callable[[str], None]) -> None:
    """Writes everything a finished run has; ``run.json`` last, as it says that the run is finished."""
    for name in ("model.keras", "saved_model"):
        remove(run.place / name)  # of a run that was killed: it knows other classes and weights
    suspects = find_suspicious(run.scan, run.split, run.probabilities, run.classes, run.facts["near_pairs"])
    write_suspicious(run.place / "suspicious.csv", suspects, decisions)
    decided = {(decision.sha256, decision.path) for decision in decisions}
    run.facts["suspicious"] = [dataclasses.asdict(s) for s in suspects if (s.sha256, s.path) not in decided]
    run.facts["decisions"] = [dataclasses.asdict(decision) for decision in decisions]
    write_predictions(run)
    if export:
        run.facts["export"] = _export(run)
        tell(f"export: largest difference from the training path {run.facts['export']['largest_difference']:.1e}")
    write_report(run)
    save_run(run)
    finish_replacing(run.folder)
    run.made_in = None
    for line in run.facts["changes"]:
        tell(f"since the last run: {line}")
    tell(_result_line(run.evaluation, run.facts["judged"]))


def _with_views(
    extractor: Extractor,
    keys: Sequence[str],
    files: Mapping[str, str],
    end_points: Sequence[str],
    views: int,
    plain: Features,
    count: Callable[[str, int, int], None],
) -> Features:
    """Returns end point -> [N, 1 + views, C]: the plain features of training pictures and those of their views."""
    chosen = {key: files[key] for key in keys}
    all_views = {name: [plain[name]] for name in end_points}
    for view in range(1, views + 1):
        report = functools.partial(count, f"view {view}")
        rows = extractor.features(chosen, end_points, view=view, progress=report).read(keys, end_points)
        for name in end_points:
            all_views[name].append(rows[name])
    return {name: np.stack(rows, 1) for name, rows in all_views.items()}


def _probabilities(rows: Rows, keys: Sequence[str], head: Head) -> dict[str, np.ndarray]:
    """Returns content hash -> [K] for every picture, reading a few thousand features at a time."""
    found: dict[str, np.ndarray] = {}
    for start in range(0, len(keys), ROWS_AT_A_TIME):
        some = keys[start : start + ROWS_AT_A_TIME]
        found.update(zip(some, head.probabilities(rows.read(some, head.end_points)), strict=True))
    return found


def _accuracy(
    probabilities: Mapping[str, np.ndarray], keys: Sequence[str], label_of: Mapping[str, int]
) -> float | None:
    if not keys:
        return None
    return sum(int(probabilities[key].argmax()) == label_of[key] for key in keys) / len(keys)


def _export(run: Run) -> dict[str, Any]:
    """Writes ``model.keras`` and ``saved_model``; compares the latter with the training path on some pictures."""
    from zoo.inference.export import compare_export, export_pictures

    with replacing(run.place / "model.keras", ".keras") as temporary:
        run.model.save(temporary)
    export_pictures(
        run.model,
        run.place / "saved_model",
        classes=run.classes,
        read=run.reader.read_in_graph,
        prepare=run.reader.prepare,
    )
    places = np.unique(np.linspace(0, len(run.scan.pictures) - 1, EXPORT_CHECKED).round().astype(int))
    pictures = [run.scan.pictures[i] for i in places]
    return compare_export(
        run.place / "saved_model",
        [Path(picture.path).read_bytes() for picture in pictures],
        np.stack([run.probabilities[picture.sha256] for picture in pictures]),
        background=run.reader.background,
        orient=run.reader.orient,
    )


def _scan_line(scan: Scan, decisions: Sequence[Decision]) -> str:
    parts = [f"scan: {pluralize(len(scan.pictures), 'picture')} in {pluralize(len(scan.labels), 'class')}"]
    for number, *words in (
        (len(scan.bad), "bad file (bad_files.csv)", "bad files (bad_files.csv)"),
        (len(scan.duplicates), "group of equal pictures"),
        (len(scan.conflicts), "picture in two classes (suspicious.csv)"),
        (len(decisions), "decision read from suspicious.csv"),
    ):
        parts += [pluralize(number, *words)] if number else []
    return ", ".join(parts) + f"; fingerprint {scan.fingerprint[:12]}"


def _result_line(evaluation: Evaluation, judged: str) -> str:
    if evaluation.accuracy is None:
        return "no pictures to judge by"
    text = f"{judged} {evaluation.in_words}"
    text += f"; always saying {evaluation.majority_class!r} would give {evaluation.majority:.1%}"
    if judged == "train":
        text += "; too few pictures for a test part: this says nothing about new pictures"
    elif not evaluation.beats_majority:
        text += "; the model is not clearly better than that"
    return text
