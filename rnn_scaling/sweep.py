"""python -m rnn_scaling.sweep: every combination of some flags' values, each run a process of its own."""

from __future__ import annotations

import dataclasses
import itertools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import config as configs
from rnn_scaling import flags, machine, record, report, rules
from rnn_scaling.config import option
from rnn_scaling.record import RunRecord

USAGE = """\
python -m rnn_scaling.sweep [--out=DIR] [--name=value,value,... ...]    (or ./run.sh sweep; ./run.sh alone is this)

Runs the trainer for every combination of the values; any flag of the trainer takes a list. What is not given:

    --encoder_type=cudnn_lstm,dynamic_rnn --variable_update=independent,parameter_server,replicated
    --num_devices=1,2,...,N    N: the GPUs, or as many CPU devices as there are cores; 1,2,4,... above 8
    --preset=seed on GPUs, small on CPUs

A flag that only some of the runs read goes to those. Prints the tables and writes the records, table.md and
speedup.png to --out. A run that fails is a row that says so; the others go on.

Exit status: 0 all runs done, 1 a run failed, 2 the flags conflict, 130 interrupted."""

RESERVED = ("result_file", "log_dir", "progress")


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records, the table and the plot")


@dataclasses.dataclass(frozen=True)
class Run:
    """One combination: the trainer's flags and a name for its record."""

    name: str
    flags: dict[str, Any]

    def command(self, result_file: Path) -> list[str]:
        """The trainer's command line."""
        words = [rules.spell(name, value) for name, value in self.flags.items()]
        return [sys.executable, "-m", "rnn_scaling.train", *words, f"--result_file={result_file}", "--progress=false"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sweep; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"sweep": SweepOptions}))
        return 0
    num_gpus, num_cores = machine.visible_gpus(), len(machine.available_cores())
    try:
        out, lists = split_lists(words)
        runs = plan(lists, num_gpus=num_gpus, num_cores=num_cores)
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return 2
    try:
        out.mkdir(parents=True, exist_ok=True)
        records = _run_all(runs, out)
    except OSError as e:
        print(f"error: --out={out}: {e.strerror or e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted; finished runs are in {out}", file=sys.stderr)
        return 130
    status = report.main([str(out)])
    failed = [name for name, result in records.items() if result.status != "ok"]
    for name in failed:
        print(f"error: {name}: {records[name].error['message']}", file=sys.stderr)
    return 1 if failed else status


def split_lists(words: Sequence[str]) -> tuple[Path, dict[str, list[Any]]]:
    """Command line -> (output folder, values of each trainer flag that was given).

    Raises:
      FlagErrors: naming every unknown flag and malformed value.
    """
    own = {field.name: field for field in dataclasses.fields(SweepOptions)}
    lists = flags.parse(words, {**own, **configs.OPTIONS}, lists=True)
    out = lists.pop("out", [own["out"].default])
    lines = [f"--{name} is set by the sweep; leave it out" for name in RESERVED if name in lists]
    if len(out) > 1:
        lines.append(f"--out={','.join(out)} must be one folder")
    if lines:
        raise flags.FlagErrors(lines)
    return Path(out[0]), lists


def plan(lists: dict[str, list[Any]], *, num_gpus: int, num_cores: int) -> list[Run]:
    """The runs of a sweep, in order.

    Args:
      lists: values of each trainer flag that was given; the defaults of a sweep are added.
      num_gpus: GPUs that are visible.
      num_cores: CPU cores that there are.

    Raises:
      FlagErrors: naming every conflict of any combination, once.
    """
    lists = {**_defaults(lists, num_gpus, num_cores), **lists}
    varied = [name for name, values in lists.items() if len(values) > 1 or name in _NAMED]
    runs, lines, read = [], [], set()
    for values in itertools.product(*lists.values()):
        given = dict(zip(lists, values))
        config = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
        ignored = rules.unread(config, given)
        given = {name: value for name, value in given.items() if name not in ignored}
        read |= given.keys()
        lines += rules.problems(config, given, num_gpus=num_gpus)
        name = "-".join(_word(given[name], name) for name in varied if name in given)
        runs.append(Run(name, given))
    lines += [
        f"{rules.spell(name, ','.join(map(str, lists[name])))} is read by none of the runs"
        for name in lists.keys() - read
    ]
    if lines:
        raise flags.FlagErrors(list(dict.fromkeys(lines)))
    return list({run.name: run for run in runs}.values())  # runs that differ in flags they do not read are one


_NAMED = ("encoder_type", "variable_update", "num_devices")


def _defaults(lists: dict[str, list[Any]], num_gpus: int, num_cores: int) -> dict[str, list[Any]]:
    on_gpus = num_gpus > 0 and lists.get("device", ["auto"])[0] != "cpu"
    cores_per_device = max(1, lists.get("cpu_cores_per_device", [1])[0])
    return {
        "encoder_type": ["cudnn_lstm", "dynamic_rnn"],
        "variable_update": ["independent", "parameter_server", "replicated"],
        "num_devices": device_counts(num_gpus if on_gpus else num_cores // cores_per_device),
        "preset": ["seed" if on_gpus else "small"],
    }


def device_counts(most: int) -> list[int]:
    """1 to `most` devices; above 8 the powers of two and `most`, since every run takes its time."""
    if most <= 8:
        return list(range(1, most + 1)) or [1]
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def _word(value: Any, name: str) -> str:
    text = str(value).lower() if name in _NAMED else f"{name}={str(value).lower()}"
    return re.sub(r"[^A-Za-z0-9_.=#:]+", "_", text)


def _run_all(runs: Sequence[Run], out: Path) -> dict[str, RunRecord]:
    """Runs everything, one process after the other; shows what is done on stderr."""
    from tqdm import tqdm

    results: dict[str, RunRecord] = {}
    layout = "{desc} |{bar}| {n_fmt}/{total_fmt} runs, {elapsed} passed, {remaining} left{postfix}"
    with tqdm(runs, bar_format=layout, file=sys.stderr, disable=not sys.stderr.isatty()) as bar:
        for number, run in enumerate(bar, 1):
            bar.set_description(run.name)
            result = results[run.name] = _run(run, out / f"{run.name}.json")
            rate = result.throughput.get("words_per_second") if result.status == "ok" else None
            said = f"{rate:,.0f} words/s" if rate else result.status
            bar.set_postfix_str(said)
            if bar.disable:
                print(f"{number}/{len(runs)} {run.name}: {said}", file=sys.stderr, flush=True)
    return results


def _run(run: Run, result_file: Path) -> RunRecord:
    result_file.unlink(missing_ok=True)  # an old result must not pass for this run's
    done = subprocess.run(run.command(result_file), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        return record.read(result_file)
    except (OSError, record.RecordError):
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        failed = RunRecord("failed", {"type": "NoRecord", "message": lines[-1]}, config=dict(run.flags))
        return failed


if __name__ == "__main__":
    sys.exit(main())
