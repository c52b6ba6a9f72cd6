"""How many wrong labels the label review finds: a tenth of a data set's labels flipped at random, five seeds.

    python benchmarks/label_errors.py stamps emoji_twitter --trunks real embedded

Data sets and the real trunk are looked for in the folder named by ZOO_TEST_DATA. Reported are the share of the flipped
labels in the first lines of the ranking (60 of 457 pictures, and as many in proportion), the share of the first lines
that are right (20 of 457), and the same for plain rankings beside zoo's. The ranking was chosen on emoji_twitter.
"""

import argparse
from typing import Any

import numpy as np
from paired import write
from threadpoolctl import threadpool_limits
from transfer import AUTO, TRUNKS, extractor_of, make_trunk, source_of

from zoo.data.scan import scan_images
from zoo.transfer.features import Scaling
from zoo.transfer.regression import flatten_spectrum, held_out, ridge_held_out
from zoo.transfer.review import LEADING, label_errors, margins, review_labels

FLIPPED, LINES, FIRST = 46 / 457, 60 / 457, 20 / 457


def flip(labels: np.ndarray, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a tenth have another class, and the places of those."""
    generator = np.random.default_rng(seed)
    places = generator.choice(len(labels), round(FLIPPED * len(labels)), replace=False)
    flipped = labels.copy()
    for place in places:
        flipped[place] = generator.choice([c for c in range(classes) if c != labels[place]])
    return flipped, places


Rows = dict[str, np.ndarray]


def rankings(features: Rows, mirrored: Rows, labels: np.ndarray, classes: int) -> Any:
    """Name -> a number a picture, the lowest the likeliest to be wrong; and how many confident learning counts."""
    groups = np.arange(len(labels))
    keys = [str(i) for i in groups]
    review = review_labels(keys, features, labels, classes, groups)
    rows = np.array([review.probabilities[key] for key in keys])
    order = np.array([review.order[key] for key in keys])
    confident = label_errors(rows, labels) >= 0
    found = {"zoo": order, "zoo, but only what confident learning counts": np.where(confident, order, np.inf)}

    def z_of(some: dict[str, np.ndarray]) -> np.ndarray:
        x = np.concatenate([Scaling.fit(one)(one) for one in some.values()], 1) / np.sqrt(len(some))
        return x @ flatten_spectrum(x, classes)

    alone = z_of({"Mixed_6e": features["Mixed_6e"]})
    both = z_of({name: (features[name] + mirrored[name]) / 2 for name in AUTO})
    whole = z_of(features)
    own = lambda p: p[groups, labels]  # noqa: E731
    found["one layer, own probability"] = own(held_out(alone[:, -LEADING:], labels, classes, 30.0, groups)[0])
    whole_p = held_out(whole[:, -LEADING:], labels, classes, 3.0, groups)[0]
    found["four layers, own probability"] = own(whole_p)
    found["four layers, margin of probability"] = margins(whole_p, labels)
    p = rows
    found["softmax regression alone"] = margins(np.log(np.maximum(p, 1e-12)), labels)
    found["ridge regression alone"] = margins(ridge_held_out(whole, labels, classes, 1.0, groups), labels)
    found["ridge, mean of picture and mirror image"] = margins(
        ridge_held_out(both, labels, classes, 1.0, groups), labels
    )
    thresholds = np.array([own(p)[labels == c].mean() for c in range(classes)])
    adjusted = p - thresholds + thresholds.max()
    found["confident learning, adjusted margin"] = margins(adjusted / adjusted.sum(1, keepdims=True), labels)
    return found, review.errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--trunks", nargs="*", default=["real", "embedded"], choices=TRUNKS)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for dataset in options.datasets:
        scan = scan_images(source_of(dataset))
        files = {picture.sha256: picture.path for picture in scan.pictures}
        label_of = {picture.sha256: scan.labels.index(picture.label) for picture in scan.pictures}
        labels, classes = np.array([label_of[key] for key in files]), len(scan.labels)
        for trunk in options.trunks:
            extractor = extractor_of(make_trunk(trunk))
            views = [extractor.features(files, AUTO, view=view).read(list(files), AUTO) for view in (0, 1)]
            scores: dict[str, list[tuple[float, float]]] = {}
            counted = []
            for seed in range(options.seeds):
                flipped, places = flip(labels, classes, seed)
                with threadpool_limits(1, "blas"):
                    found, length = rankings(*views, flipped, classes)
                counted.append(length)
                for name, ranking in found.items():
                    order = np.argsort(ranking, kind="stable")
                    many, few = (np.isin(order[: round(share * len(labels))], places) for share in (LINES, FIRST))
                    scores.setdefault(name, []).append((many.sum() / len(places), few.mean()))
            for name, pairs in scores.items():
                line = {
                    "data": dataset,
                    "trunk": trunk,
                    "ranking": name,
                    "flipped": round(FLIPPED * len(labels)),
                    "found_in_first_lines": round(float(np.mean(pairs, 0)[0]), 4),
                    "first_lines_right": round(float(np.mean(pairs, 0)[1]), 4),
                    "standard_deviations": " ".join(f"{value:.3f}" for value in np.std(pairs, 0)),
                    "seeds": options.seeds,
                    "counted_as_wrong": round(float(np.mean(counted)), 1) if name == "zoo" else "",
                }
                lines.append(line)
                print(line, flush=True)
    write("label_errors", lines, ("numpy", "scikit-learn", "tensorflow"))


if __name__ == "__main__":
    main()
