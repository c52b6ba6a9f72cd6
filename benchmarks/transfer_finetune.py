"""Does fine-tuning add to the head? The same splits with and without it, judged on the test part.

    python benchmarks/transfer_finetune.py stamps --trunk embedded --from Mixed_6b --epochs 8 --splits 4

The data set and the trained Inception-v3 are looked for in the folder named by ZOO_TEST_DATA. The run itself decides
by its validation part whether to keep the fine-tuned model, so "kept" is what a user gets.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from paired import write
from transfer import data_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--trunk", choices=("real", "embedded"), default="real")
    parser.add_argument("--from", dest="first", default="Mixed_6b")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--splits", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    options = parser.parse_args()

    from zoo.transfer import retrain

    real = str(data_folder() / "inception_v3_tfjs" / "model.json")
    how = {"weights": real if options.trunk == "real" else "embedded", "export": False}
    tuning = {"finetune_from": options.first, "epochs": options.epochs, "finetune_rate": options.rate}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + options.splits):
            plain = retrain(data_folder() / options.dataset, Path(folder) / f"{seed}-head", seed=seed, **how)
            tuned = retrain(data_folder() / options.dataset, Path(folder) / f"{seed}", seed=seed, **how, **tuning)
            facts = tuned.facts["finetune"]
            rows.append(
                {
                    "data": options.dataset,
                    "trunk": options.trunk,
                    "split": seed,
                    "from": options.first,
                    "epochs": len(facts["history"]),
                    "rate": options.rate,
                    "validation_head": facts["before"]["accuracy"],
                    "validation_tuned": facts["after"]["accuracy"],
                    "gain_in_cross_entropy": facts["gain"],
                    "standard_error": facts["error"],
                    "kept": facts["kept"],
                    "test_head": plain.evaluation.accuracy,
                    "test_of_the_run": tuned.evaluation.accuracy,
                    "test_pictures": tuned.evaluation.count,
                }
            )
            print(rows[-1], flush=True)
            write(f"transfer_finetune_{options.dataset}_{options.trunk}", rows, ("tensorflow", "keras", "scikit-learn"))
    gain = np.mean([row["test_of_the_run"] - row["test_head"] for row in rows])
    print(f"mean gain on the test part: {gain:+.4f} over {len(rows)} splits")


if __name__ == "__main__":
    main()
