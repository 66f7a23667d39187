"""Speedup and efficiency of rings and parameter servers over limited links.

    sudo .venv/bin/python -m benchmarks.netlab_curves --out=docs/results/netlab [--rounds=2] [trainer flags ...]
    .venv/bin/python -m benchmarks.netlab_curves --out=docs/results/netlab --table          prints the table only

Every run is `./run.sh local-cluster --link_mbit=N`, and existing records are kept. The
baselines are one worker alone, and the same number of workers without exchange. The
second one shares its cores in the same way.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rnn_scaling.records import record
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import format_table

RATES = ("1000mbit", "200mbit", "50mbit")
WORKERS = (2, 3, 4)
COMPRESSIONS, COMPRESSED_WORKERS = ("bfloat16", "float16", "int8"), (2, 4)
ALONE = "distributed_independent"
RING, SERVERS = "collective_all_reduce", "distributed_parameter_server"
# Little to compute for what is exchanged: else two cores hide the network behind themselves.
SMALL = (
    *(
        "--model=lm",
        "--num_encoder_layers=1",
        "--num_units=256",
        "--embedding_dim=256",
        "--tgt_vocab_size=1000",
    ),
    *(
        "--batch_size=32",
        "--tgt_max_len=20",
        "--num_warmup_batches=2",
        "--num_batches=10",
        "--progress=false",
    ),
)


@dataclass(frozen=True)
class Setting:
    """One run. servers: parameter servers, 0 with a mode that has none; compressed: --compress_gradients."""

    mode: str
    servers: int
    workers: int
    rate: str
    compressed: str = "none"

    @property
    def name(self) -> str:
        """Of its record, without the round."""
        kind = {ALONE: "alone", RING: "ring", SERVERS: f"ps{self.servers}"}[self.mode]
        ending = "" if self.compressed == "none" else f"-{self.compressed}"
        return f"{kind}-{self.workers}-{self.rate}{ending}"

    def command(self, flags: list[str], result_file: Path) -> list[str]:
        """Return the command that writes the record of a round."""
        mbit = self.rate.removesuffix("mbit")
        words = [sys.executable, "-m", "rnn_scaling", "local-cluster"]
        words += [f"--workers={self.workers}", f"--link_mbit={mbit}"]
        if self.servers:
            words.append(f"--ps={self.servers}")
        words += ["--", f"--variable_update={self.mode}"]
        words += [f"--result_file={result_file}", *SMALL, *flags]
        if self.compressed != "none":
            words.append(f"--compress_gradients={self.compressed}")
        return words


def settings() -> Iterator[Setting]:
    """Those of the table, and what they are divided by."""
    for workers in (1, *WORKERS):
        yield Setting(
            ALONE, 0, workers, RATES[0]
        )  # it sends nothing, so the rate says nothing
    for rate, workers in itertools.product(RATES, WORKERS):
        for mode, servers in ((RING, 0), (SERVERS, 1), (SERVERS, 2)):
            yield Setting(mode, servers, workers, rate)
    yield from compressed_settings()


def compressed_settings() -> Iterator[Setting]:
    """Rings on the slowest network."""
    for workers, kind in itertools.product(COMPRESSED_WORKERS, COMPRESSIONS):
        yield Setting(RING, 0, workers, RATES[-1], kind)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument(
        "--rounds", type=int, default=2, help="number of runs of each configuration"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="only print the table of the existing records",
    )
    own, flags = parser.parse_known_args()
    if not own.table:
        own.out.mkdir(parents=True, exist_ok=True)
        for number, setting in itertools.product(range(1, own.rounds + 1), settings()):
            _run(setting, own.out / f"{setting.name}.r{number}.json", flags)
    print(table(_records(own.out)), end="")


def _run(setting: Setting, path: Path, flags: list[str]) -> None:
    if path.exists():
        return
    print(f"{path.name} ...", file=sys.stderr, flush=True)
    done = subprocess.run(
        setting.command(flags, path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        path.unlink(missing_ok=True)  # a failed run is made again


def _records(folder: Path) -> dict[Setting, list[RunRecord]]:
    """The records of each setting that has any."""
    found = {
        s: [record.read(path) for path in sorted(folder.glob(f"{s.name}.r*.json"))]
        for s in settings()
    }
    whole = {
        setting: [each for each in records if each.status == "ok"]
        for setting, records in found.items()
    }
    return {setting: records for setting, records in whole.items() if records}


def table(records: dict[Setting, list[RunRecord]]) -> str:
    """Markdown: a row for each rate and number of workers, medians over the rounds."""
    rates = {
        setting: statistics.median(_rate(each) for each in runs)
        for setting, runs in records.items()
    }
    one = rates[Setting(ALONE, 0, 1, RATES[0])]
    rows = []
    for rate, workers in itertools.product(RATES, WORKERS):
        row = [rate.replace("mbit", ""), str(workers)]
        alone = rates.get(Setting(ALONE, 0, workers, RATES[0]))
        for mode, servers in ((RING, 0), (SERVERS, 1), (SERVERS, 2)):
            own = rates.get(Setting(mode, servers, workers, rate))
            row += (
                ["n/a", "n/a"]
                if own is None
                else [
                    f"{own / one:.2f}",
                    f"{100 * own / alone:.0f}" if alone else "n/a",
                ]
            )
        rows.append(row)
    header = ["Mbit/s", "workers"]
    for kind in ("ring", "1 server", "2 servers"):
        header += [f"{kind}: speedup", f"{kind}: % of no exchange"]
    return format_table(header, rows) + "\n" + _compressed_table(rates)


def _compressed_table(rates: dict[Setting, float]) -> str:
    rows = []
    for workers in COMPRESSED_WORKERS:
        for kind in ("none", *COMPRESSIONS):
            whole, own = (
                rates.get(Setting(RING, 0, workers, RATES[-1], each))
                for each in ("none", kind)
            )
            cells = [
                f"{own:,.0f}" if own else "n/a",
                f"{own / whole:.2f}" if own and whole else "n/a",
            ]
            rows.append([str(workers), kind, *cells])
    return format_table(
        ["workers", "--compress_gradients", "tokens/s", "times none"], rows
    )


def _rate(run: RunRecord) -> float:
    assert run.throughput is not None  # since it ended well
    return run.throughput.items_per_second


if __name__ == "__main__":
    main()
