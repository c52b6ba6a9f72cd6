"""The DenseNet tables: ``zoo bench densenet`` with the settings whose results are kept.

python benchmarks/densenet.py time --peer-python PYTHON_WITH_TORCH
python benchmarks/densenet.py memory | memory_plain | levels | bfloat16 | depth | xla
"""

import argparse
from pathlib import Path

from zoo.cli import main as zoo

RESULTS = Path(__file__).parent / "results"

# Name -> words after ``zoo bench densenet``.
TABLES = {
    "time": "--batches 24 --memory recompute,minimal --peers keras,torchvision --rounds 5 --passes 3",
    "memory": "--batches 8,24 --memory recompute,minimal --peers torchvision,torchvision_memory_efficient --rounds 1",
    "memory_plain": "--batches 8,24 --memory store --peers keras --rounds 1",
    "levels": "--batches 24 --memory recompute,minimal,store --rounds 5 --passes 2",
    "bfloat16": "--batches 8,24 --memory recompute --precisions float32,bfloat16 --peers torchvision --passes 2",
    "depth": "--nets 40x12,100x12,160x12,250x12 --batches 8,16 --memory store,recompute --rounds 1",
    "xla": "--nets 40x12 --batches 8,16 --memory store,recompute --xla both --rounds 5 --passes 2",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--peer-python", default="")
    given = parser.parse_args()
    words = TABLES[given.table].split()
    if given.peer_python:
        words += ["--peer-python", given.peer_python]
    words += ["--device", "auto", "--out", str(RESULTS), "--name", f"densenet_{given.table}", "--overwrite"]
    zoo(["bench", "densenet", *words])


if __name__ == "__main__":
    main()
