"""Verifies every workload in every update mode, with a few steps on two logical CPUs, and prints the verdicts.

    .venv/bin/python -m benchmarks.certificates --out=docs/results/certificates [--models=resnet20,lm] [--modes=...]
    .venv/bin/python -m benchmarks.certificates --out=docs/results/certificates --table          prints the table only

Each certificate is `./run.sh verify` with small batches, and existing records are kept. Nothing is timed, so other
processes may run at the same time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
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


def flags(model: str, mode: str) -> list[str]:
    """Flags of one verification: two towers, in one process or in two."""
    places = (
        ["--num_workers=2"]
        if registry.find_mode(mode).is_distributed
        else ["--num_devices=2"]
    )
    own = IMAGES if WORKLOADS[model].datasets else RECURRENT
    return [f"--model={model}", f"--variable_update={mode}", *places, *own, *STEPS]


def verdict(path: Path) -> str:
    """What a record's certificate says, in a word; "refused" or "failed" without one."""
    if not path.exists():
        return "refused"
    certificate = record.read(path).certificate
    return certificate.verdict if certificate else "failed"


def table(out: Path, models: list[str], modes: list[str]) -> str:
    """Markdown: a row a model, a column a mode; "" where it was not run."""
    made = {path.stem for path in out.glob("*.json")} | {
        path.stem for path in out.glob("*.refused")
    }
    used = [
        mode for mode in modes if any(f"{model}-{mode}" in made for model in models)
    ]
    lines = [
        [
            model,
            *(
                verdict(out / f"{model}-{mode}.json")
                if f"{model}-{mode}" in made
                else ""
                for mode in used
            ),
        ]
        for model in models
    ]
    return format_table(["--model", *used], [line for line in lines if any(line[1:])])


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
    options = parser.parse_args()
    models, modes = options.models.split(","), options.modes.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    for mode in modes if not options.table else ():
        for model in models:
            path = options.out / f"{model}-{mode}.json"
            if path.exists() or path.with_suffix(".refused").exists():
                continue
            words = [*flags(model, mode), f"--result_file={path}"]
            done = subprocess.run(
                [sys.executable, "-m", "rnn_scaling", "verify", *words],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
            )
            if done.returncode == 2:
                path.with_suffix(".refused").write_text(done.stderr)
            lines = (done.stdout.strip() or done.stderr.strip()).splitlines() or [""]
            print(f"{model}, {mode}: {lines[-1]}", file=sys.stderr, flush=True)
    print(table(options.out, models, modes))


if __name__ == "__main__":
    main()
