"""python -m benchmarks.own_history [--commits=12] [--over=400] [--history=DIR]: two kernels over commits of this suite.

Checks out commits of this repository, spread over the last ones, runs `cudnn_lstm` and `dynamic_rnn` on one device with
the trainer of each commit, in rounds over all commits, and adds the records to a history. The same command continues
where it stopped; a commit whose trainer cannot make such a run is left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from rnn_scaling.commands import history

HERE = Path(__file__).resolve().parents[1]
KERNELS = ("cudnn_lstm", "dynamic_rnn")
FLAGS = (
    "--device=cpu",
    "--num_devices=1",
    "--preset=small",
    "--variable_update=independent",
    "--progress=false",
)


def main() -> int:
    """Returns the status of `history add`."""
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
    args = parser.parse_args()
    line = _git(
        "rev-list", "--first-parent", f"--max-count={args.over}", "HEAD"
    ).split()
    places = [
        round(k * (len(line) - 1) / max(1, args.commits - 1))
        for k in range(args.commits)
    ]
    chosen = [line[place] for place in sorted(set(places), reverse=True)]
    flags = [*FLAGS, "--num_warmup_batches=5", f"--num_batches={args.batches}"]
    with tempfile.TemporaryDirectory() as place:
        trees = {commit: Path(place, commit[:12]) for commit in chosen}
        try:
            for commit, tree in trees.items():
                _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
            for turn in range(1, args.processes + 1):
                for commit, tree in (
                    trees.items() if turn % 2 else reversed(trees.items())
                ):
                    for kernel in KERNELS:
                        result = (
                            args.out.resolve()
                            / commit[:12]
                            / f"{kernel}{f'.r{turn}' if turn > 1 else ''}.json"
                        )
                        _run(tree, result, [f"--encoder_type={kernel}", *flags])
                print(f"{turn}/{args.processes} rounds", file=sys.stderr)
        finally:
            for tree in trees.values():
                subprocess.run(
                    ["git", "-C", HERE, "worktree", "remove", "--force", tree],
                    check=False,
                )
    return history.add(
        [
            args.out / commit[:12]
            for commit in chosen
            if (args.out / commit[:12]).is_dir()
        ],
        args.history,
    )


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", HERE, *words], check=True, capture_output=True, text=True
    ).stdout


def _run(tree: Path, result: Path, flags: list[str]) -> None:
    """One run of the trainer of that tree, unless its record is there."""
    if result.exists():
        return
    result.parent.mkdir(parents=True, exist_ok=True)
    words = [
        sys.executable,
        "-m",
        "rnn_scaling.train",
        f"--result_file={result}",
        *flags,
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
        print(
            f"{tree.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
