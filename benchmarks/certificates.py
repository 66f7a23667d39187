"""Verify every workload in every update mode, and print a table of the verdicts.

    python -m benchmarks.certificates --out=docs/results/certificates
        [--models=resnet20,lm] [--modes=replicated]
    python -m benchmarks.certificates --out=docs/results/certificates --table

Each certificate is `./run.sh verify` with small batches and a few steps on two logical
CPUs. Existing records are kept. Nothing is timed, so other processes may run at the same
time. With --table, only the table of the existing records is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import registry
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.records import record
from rnn_scaling.system.files.markdown import format_table

STEPS = ("--num_warmup_batches=1", "--num_batches=2", "--progress=false")
RECURRENT = (
    "--num_units=32",
    "--embedding_dim=32",
    "--tgt_vocab_size=200",
    "--tgt_max_len=8",
    "--batch_size=5",
)
IMAGES = ("--batch_size=2",)
LIMIT_S = 900
STATUS_REFUSED = 2


def list_flags(model: str, mode: str) -> list[str]:
    """Return the flags of one verification: two towers, in one process or in two."""
    is_distributed = registry.find_mode(mode).is_distributed
    count = "--num_workers=2" if is_distributed else "--num_devices=2"
    sizes = IMAGES if WORKLOADS[model].datasets else RECURRENT
    return [f"--model={model}", f"--variable_update={mode}", count, *sizes, *STEPS]


class Results:
    """The results in a folder: a record, or what was printed when it was refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, model: str, mode: str) -> Path:
        """Return the file of a record."""
        return self._folder / f"{model}-{mode}.json"

    def exists(self, model: str, mode: str) -> bool:
        """Return whether a combination was verified or refused."""
        path = self.path(model, mode)
        return path.exists() or path.with_suffix(".refused").exists()

    def describe(self, model: str, mode: str) -> str:
        """Return the verdict in a word; an empty text if there is no result."""
        if not self.exists(model, mode):
            return ""
        path = self.path(model, mode)
        if not path.exists():
            return "refused"
        certificate = record.read(path).certificate
        return certificate.verdict if certificate else "failed"

    def verify(self, model: str, mode: str) -> None:
        """Verify a combination, and print the last line that `verify` prints."""
        path = self.path(model, mode)
        words = [sys.executable, "-m", "rnn_scaling", "verify"]
        words += [*list_flags(model, mode), f"--result_file={path}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode == STATUS_REFUSED:
            path.with_suffix(".refused").write_text(done.stderr)
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines() or [""]
        print(f"{model}, {mode}: {lines[-1]}", file=sys.stderr, flush=True)

    def make_table(self, models: Sequence[str], modes: Sequence[str]) -> str:
        """Return a row for each model and a column for each mode that have results."""
        used_modes = []
        for mode in modes:
            if any(self.exists(model, mode) for model in models):
                used_modes.append(mode)
        rows = []
        for model in models:
            cells = [self.describe(model, mode) for mode in used_modes]
            if any(cells):
                rows.append([model, *cells])
        return format_table(["--model", *used_modes], rows)


def main() -> None:
    """Run what is missing, and print the table."""
    options = parse_arguments()
    models = options.models.split(",")
    modes = options.modes.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out)
    if not options.table:
        for mode in modes:
            for model in models:
                if not results.exists(model, mode):
                    results.verify(model, mode)
    print(results.make_table(models, modes))


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument(
        "--models", default=",".join(WORKLOADS), help="workloads, separated by commas"
    )
    parser.add_argument(
        "--modes",
        default=",".join(registry.VARIABLE_UPDATES),
        help="update modes, separated by commas",
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="only print the table of the existing records",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
