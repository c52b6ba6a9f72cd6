"""How long ``import zoo`` and ``zoo --help`` take, each in a fresh process, and that neither imports TensorFlow.

    python benchmarks/startup.py [--runs 15]

Writes results/startup.csv. Goals: 0.15 s for the import (less what an empty Python takes), 0.5 s for the help.
"""

import argparse
import subprocess
import sys
import time

from paired import median, write

CASES = {
    "python -c pass": ("pass", None),
    "import zoo": ("import zoo", 0.15),
    "zoo --help": ("import sys; sys.argv = ['zoo', '--help']; from zoo.cli import main; main()", 0.5),
}


def seconds(code: str) -> float:
    """Returns the wall time of one fresh process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return time.perf_counter() - started


def modules(code: str) -> int:
    """Returns how many modules of TensorFlow are loaded once the code has run."""
    count = "sum(name.split('.')[0] == 'tensorflow' for name in sys.modules)"
    check = f"import atexit, sys; atexit.register(lambda: print({count}))\n"
    said = subprocess.run([sys.executable, "-c", check + code], check=True, capture_output=True, text=True)
    return int(said.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    times = {case: [] for case in CASES}
    for _ in range(runs):
        for case, (code, _) in CASES.items():
            times[case].append(seconds(code))
    rows = [
        {
            "what": case,
            "seconds": median(times[case]),
            "fastest": min(times[case]),
            "slowest": max(times[case]),
            "goal": goal or "",
            "tensorflow_modules": modules(code),
            "runs": runs,
        }
        for case, (code, goal) in CASES.items()
    ]
    write("startup", rows, ["typer", "rich"])


if __name__ == "__main__":
    main()
