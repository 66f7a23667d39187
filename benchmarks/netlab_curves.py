"""Measure speedup and efficiency of rings and parameter servers over limited links.

    sudo .venv/bin/python -m benchmarks.netlab_curves --out=docs/results/netlab
        [--rounds=2] [trainer flags ...]
    python -m benchmarks.netlab_curves --out=docs/results/netlab --table

Every run is `./run.sh local-cluster --link_mbit=N`. Existing records are kept; with
--table, only the table of the existing records is printed. The baselines are one worker
alone, and the same number of workers without exchange, which share their cores in the
same way.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rnn_scaling.records import record
from rnn_scaling.system.files.markdown import format_table

MBITS = (1000, 200, 50)
WORKERS = (2, 3, 4)
COMPRESSIONS = ("bfloat16", "float16", "int8")
COMPRESSED_WORKERS = (2, 4)
ALONE = "distributed_independent"
RING = "collective_all_reduce"
SERVERS = "distributed_parameter_server"
# Mode and number of servers, by heading.
EXCHANGES = {"ring": (RING, 0), "1 server": (SERVERS, 1), "2 servers": (SERVERS, 2)}
# A step computes little for what it exchanges. Otherwise the computation on two cores
# takes so long that the network hardly matters.
SMALL = (
    "--model=lm",
    "--num_encoder_layers=1",
    "--num_units=256",
    "--embedding_dim=256",
    "--tgt_vocab_size=1000",
    "--batch_size=32",
    "--tgt_max_len=20",
    "--num_warmup_batches=2",
    "--num_batches=10",
    "--progress=false",
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is measured in each round.

    Attributes:
      mode: Value of --variable_update.
      servers: Number of parameter servers, 0 with a mode that has none.
      workers: Number of workers.
      mbit: Rate of the links in Mbit/s.
      compression: Value of --compress_gradients.
    """

    mode: str
    servers: int
    workers: int
    mbit: int
    compression: str = "none"

    @property
    def name(self) -> str:
        """Name of its records, without the round."""
        kind = {ALONE: "alone", RING: "ring", SERVERS: f"ps{self.servers}"}[self.mode]
        ending = "" if self.compression == "none" else f"-{self.compression}"
        return f"{kind}-{self.workers}-{self.mbit}mbit{ending}"

    def list_command(
        self, trainer_flags: Sequence[str], result_file: Path
    ) -> list[str]:
        """Return the command that writes the record of a round."""
        words = [
            sys.executable,
            "-m",
            "rnn_scaling",
            "local-cluster",
            f"--workers={self.workers}",
            f"--link_mbit={self.mbit}",
        ]
        if self.servers:
            words.append(f"--ps={self.servers}")
        words += [
            "--",
            f"--variable_update={self.mode}",
            f"--result_file={result_file}",
            *SMALL,
            *trainer_flags,
        ]
        if self.compression != "none":
            words.append(f"--compress_gradients={self.compression}")
        return words

    def run(self, trainer_flags: Sequence[str], result_file: Path) -> None:
        """Run unless the record exists. A failed run leaves none, so it is repeated."""
        if result_file.exists():
            return
        print(f"{result_file.name} ...", file=sys.stderr, flush=True)
        done = subprocess.run(
            self.list_command(trainer_flags, result_file),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            result_file.unlink(missing_ok=True)

    def read_rate(self, folder: Path) -> float | None:
        """Return the median rate of the good runs; None if there is none."""
        rates = []
        for path in sorted(folder.glob(f"{self.name}.r*.json")):
            run = record.read(path)
            if run.status == "ok" and run.throughput is not None:
                rates.append(run.throughput.items_per_second)
        return statistics.median(rates) if rates else None


def make_baseline(workers: int) -> Setting:
    """Return the setting without exchange. Its rate does not depend on the links."""
    return Setting(ALONE, 0, workers, MBITS[0])


def list_settings() -> Iterator[Setting]:
    """Yield the settings of both tables and their baselines."""
    for workers in (1, *WORKERS):
        yield make_baseline(workers)
    for mbit, workers in itertools.product(MBITS, WORKERS):
        for mode, servers in EXCHANGES.values():
            yield Setting(mode, servers, workers, mbit)
    for workers, compression in itertools.product(COMPRESSED_WORKERS, COMPRESSIONS):
        yield make_compressed(workers, compression)


def make_compressed(workers: int, compression: str) -> Setting:
    """Return the setting of a ring over the slowest links."""
    return Setting(RING, 0, workers, MBITS[-1], compression)


def main() -> None:
    """Run what is missing, and print both tables."""
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
    options, trainer_flags = parser.parse_known_args()
    if not options.table:
        options.out.mkdir(parents=True, exist_ok=True)
        for number in range(1, options.rounds + 1):
            for setting in list_settings():
                path = options.out / f"{setting.name}.r{number}.json"
                setting.run(trainer_flags, path)
    rates = {}
    for setting in list_settings():
        rate = setting.read_rate(options.out)
        if rate is not None:
            rates[setting] = rate
    print(make_table(rates))
    print(make_table_of_compressed(rates), end="")


def make_table(rates: Mapping[Setting, float]) -> str:
    """Return a row for each rate of the links and number of workers.

    Args:
      rates: Tokens/s of each setting.
    """
    one = rates[make_baseline(1)]
    rows = []
    for mbit, workers in itertools.product(MBITS, WORKERS):
        row = [str(mbit), str(workers)]
        without_exchange = rates.get(make_baseline(workers))
        for mode, servers in EXCHANGES.values():
            rate = rates.get(Setting(mode, servers, workers, mbit))
            row.append(format_ratio(rate, one, ".2f"))
            percent = 100 * rate if rate else None
            row.append(format_ratio(percent, without_exchange, ".0f"))
        rows.append(row)
    head = ["Mbit/s", "workers"]
    for exchange in EXCHANGES:
        head += [f"{exchange}: speedup", f"{exchange}: % of no exchange"]
    return format_table(head, rows)


def make_table_of_compressed(rates: Mapping[Setting, float]) -> str:
    """Return a row for each number of workers and compression over the slowest links."""
    rows = []
    for workers in COMPRESSED_WORKERS:
        uncompressed = rates.get(make_compressed(workers, "none"))
        for compression in ("none", *COMPRESSIONS):
            rate = rates.get(make_compressed(workers, compression))
            shown = f"{rate:,.0f}" if rate else "n/a"
            ratio = format_ratio(rate, uncompressed, ".2f")
            rows.append([str(workers), compression, shown, ratio])
    head = ["workers", "--compress_gradients", "tokens/s", "times none"]
    return format_table(head, rows)


def format_ratio(value: float | None, base: float | None, spec: str) -> str:
    """Return value / base, or "n/a" if one is unknown."""
    return f"{value / base:{spec}}" if value and base else "n/a"


if __name__ == "__main__":
    main()
