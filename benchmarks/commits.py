"""python -m benchmarks.commits BEFORE [--pairs=10] [--out=DIR] [trainer flags]: is this tree as fast as that commit?

Runs the trainer of the commit BEFORE (from a separate worktree) and of this tree in turns (A B B A ...), each in a
process, and compares the records pair by pair, as `ab` does for two settings of one tree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rnn_scaling.commands import compare

HERE = Path(__file__).resolve().parents[1]


def main() -> int:
    """Returns the status of `compare`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "before", help="commit of this repository that is compared with this tree"
    )
    parser.add_argument("--pairs", type=int, default=10, help="number of pairs of runs")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/commits"),
        help="folder of the records",
    )
    own, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        before = Path(place, "before")
        subprocess.run(
            [
                "git",
                "-C",
                HERE,
                "worktree",
                "add",
                "--detach",
                "--quiet",
                before,
                own.before,
            ],
            check=True,
        )
        try:
            for pair in range(1, own.pairs + 1):
                sides = [("before", before), ("after", HERE)]
                for side, tree in sides if pair % 2 else reversed(sides):
                    _run(
                        tree,
                        own.out.resolve()
                        / side
                        / ("run.json" if pair == 1 else f"run.r{pair}.json"),
                        flags,
                    )
                print(f"{pair}/{own.pairs} pairs", file=sys.stderr)
        finally:
            subprocess.run(
                ["git", "-C", HERE, "worktree", "remove", "--force", before], check=True
            )
    return compare.main(
        [
            str(own.out / "before"),
            str(own.out / "after"),
            "--paired",
            "--max_regression=2%",
        ]
    )


def _run(tree: Path, result: Path, flags: list[str]) -> None:
    """One run of the trainer of that tree."""
    result.parent.mkdir(parents=True, exist_ok=True)
    words = [
        sys.executable,
        "-m",
        "rnn_scaling.train",
        f"--result_file={result}",
        "--progress=false",
        *flags,
    ]
    subprocess.run(
        words,
        cwd=tree,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    sys.exit(main())
