"""Trains networks for three steps in a task of a cluster; the chief writes what came out.

Usage: python launched_nets.py multiworker|ps FILE NAME,NAME,...
"""

import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))


def main(kind, out, names):
    from zoo.parallel import cluster, make_strategy
    from zoo.parallel.strategies import is_chief

    if kind == "ps" and cluster.serve(30):
        return
    cluster.watch(kind, 60)
    strategy = make_strategy(kind)
    from parallel.nets import CASES, IDS, train

    found = {}
    for case, name in zip(CASES, IDS, strict=True):
        if name not in names.split(","):
            continue
        values, losses, _ = train(case, strategy, case.data(), steps=3, sync_batch_norm=case.norm and kind != "ps")
        assert np.isfinite(losses).all()
        found |= {f"{name}:{key}": value for key, value in values.items()}
    if is_chief():
        np.savez(out, **found)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
