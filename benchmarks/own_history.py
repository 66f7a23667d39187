"""Measure two kernels over commits of this suite, and add the records to a history.

    python -m benchmarks.own_history [--commits=12] [--over=400] [--history=DIR]

Checks out commits of this repository, spread over the latest ones. The trainer of each
commit runs `cudnn_lstm` and `dynamic_rnn` on one device, in rounds over all commits.
The same command continues where it stopped. A commit whose trainer cannot make such a
run is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.commands import history

REPOSITORY = Path(__file__).resolve().parents[1]
KERNELS = ("cudnn_lstm", "dynamic_rnn")
FLAGS = (
    "--device=cpu",
    "--num_devices=1",
    "--preset=small",
    "--variable_update=independent",
    "--progress=false",
    "--num_warmup_batches=5",
)


def main() -> int:
    """Measure the commits; return the status of `history add`."""
    options = parse_arguments()
    commits = choose_commits(options.commits, options.over)
    folders = {commit: options.out / commit[:12] for commit in commits}
    with check_out(commits) as trees:
        for number in range(1, options.processes + 1):
            # The order changes, so that drift of the machine favours no commit.
            order = commits if number % 2 else commits[::-1]
            suffix = f".r{number}" if number > 1 else ""
            for commit in order:
                for kernel in KERNELS:
                    record = folders[commit].resolve() / f"{kernel}{suffix}.json"
                    train(trees[commit], kernel, options.batches, record)
            print(f"{number}/{options.processes} rounds", file=sys.stderr)
    measured = [folder for folder in folders.values() if folder.is_dir()]
    return history.add(measured, options.history)


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--commits", type=int, default=12, help="number of commits to measure"
    )
    parser.add_argument(
        "--over",
        type=int,
        default=400,
        help="number of latest commits of the main line to choose from",
    )
    parser.add_argument(
        "--processes", type=int, default=3, help="number of runs per commit and kernel"
    )
    parser.add_argument(
        "--batches", type=int, default=10, help="number of measured batches per run"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/own_history"),
        help="folder of the records",
    )
    parser.add_argument(
        "--history",
        type=Path,
        default=Path("docs/results/history"),
        help="folder of the history",
    )
    return parser.parse_args()


def choose_commits(count: int, over: int) -> list[str]:
    """Return commits of the main line, evenly spread over the latest ones, oldest first.

    Args:
      count: Number of commits.
      over: Number of latest commits to choose from.
    """
    words = ("rev-list", "--first-parent", f"--max-count={over}", "HEAD")
    latest = run_git(*words).split()
    numbers = set()
    for number in range(count):
        numbers.add(round(number * (len(latest) - 1) / max(1, count - 1)))
    return [latest[number] for number in sorted(numbers, reverse=True)]


@contextlib.contextmanager
def check_out(commits: Sequence[str]) -> Iterator[dict[str, Path]]:
    """Yield the worktree of each commit; remove them at the end."""
    with tempfile.TemporaryDirectory() as folder:
        trees = {commit: Path(folder, commit[:12]) for commit in commits}
        try:
            for commit, tree in trees.items():
                run_git("worktree", "add", "--detach", "--quiet", str(tree), commit)
            yield trees
        finally:
            for tree in trees.values():
                words = ["git", "-C", REPOSITORY, "worktree", "remove", "--force", tree]
                subprocess.run(words, check=False)


def run_git(*words: str) -> str:
    """Return what a git command prints."""
    done = subprocess.run(
        ["git", "-C", REPOSITORY, *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def train(tree: Path, kernel: str, num_batches: int, record: Path) -> None:
    """Run the trainer of a worktree, unless the record exists.

    Args:
      tree: The worktree.
      kernel: Value of --encoder_type.
      num_batches: Measured batches.
      record: File of the record.
    """
    if record.exists():
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    words = [
        sys.executable,
        "-m",
        "rnn_scaling.train",
        f"--result_file={record}",
        f"--encoder_type={kernel}",
        f"--num_batches={num_batches}",
        *FLAGS,
    ]
    done = subprocess.run(
        words,
        cwd=tree,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed"]
        print(f"{tree.name}: {lines[-1]}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
