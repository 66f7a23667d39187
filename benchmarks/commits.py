"""Measure whether this tree trains as fast as a commit of this repository.

    python -m benchmarks.commits BEFORE [--pairs=10] [--out=DIR] [trainer flags ...]

Runs the trainer of the commit BEFORE, from a separate worktree, and that of this tree in
the order A B B A, each in a process. Compares the records pair by pair, as `ab` does for
two settings of one tree.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.commands import compare

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> int:
    """Run all pairs; return the status of `compare`."""
    options, trainer_flags = parse_arguments()
    with check_out(options.before) as worktree:
        for pair in range(1, options.pairs + 1):
            sides = [("before", worktree), ("after", REPOSITORY)]
            if pair % 2 == 0:
                sides.reverse()
            name = "run.json" if pair == 1 else f"run.r{pair}.json"
            for side, tree in sides:
                train(tree, options.out.resolve() / side / name, trainer_flags)
            print(f"{pair}/{options.pairs} pairs", file=sys.stderr)
    folders = [str(options.out / "before"), str(options.out / "after")]
    return compare.main([*folders, "--paired", "--max_regression=2%"])


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this benchmark, and the flags of the trainer."""
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
    return parser.parse_known_args()


@contextlib.contextmanager
def check_out(commit: str) -> Iterator[Path]:
    """Yield a worktree of a commit; remove it at the end."""
    git = ["git", "-C", REPOSITORY, "worktree"]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "before")
        words = [*git, "add", "--detach", "--quiet", tree, commit]
        subprocess.run(words, check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def train(tree: Path, record: Path, trainer_flags: Sequence[str]) -> None:
    """Run the trainer of a tree.

    Args:
      tree: The worktree.
      record: File of the record.
      trainer_flags: Further flags.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    words = [
        sys.executable,
        "-m",
        "rnn_scaling.train",
        f"--result_file={record}",
        "--progress=false",
        *trainer_flags,
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
