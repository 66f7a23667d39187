"""Search the largest batch that fits in memory.

Programs of users read the JSON, schema "rnn_scaling.largest_batch/2". Keys are
the field names of `Bounds` and `Try` in `analysis.largest_batch`: never rename one.

`recommend --largest_batch` runs a `BatchSearch`. `analysis.largest_batch` decides the
next size.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import largest_batch
from rnn_scaling.analysis.largest_batch import Try
from rnn_scaling.analysis.statements import Advice
from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.naming import NAMED
from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps.command_lines import format_flags, make_suite_command
from rnn_scaling.sweeps.conduct import Records, SweepProgress
from rnn_scaling.sweeps.plan import Run, choose_default_preset, run_name
from rnn_scaling.system.machine import system
from rnn_scaling.system.machine.gpus import describe_machine_size
from rnn_scaling.system.processes import parent_death_launcher

# Enough to see how much memory a batch needs.
_FEW_BATCHES = {"num_warmup_batches": 1, "num_batches": 3}


class BatchSearch:
    """Doubles the batch until it does not fit, and then halves the gap."""

    def __init__(
        self,
        lists: Mapping[str, Sequence[Any]],
        memory_gib: float,
        memory_share: float,
        trainer: Sequence[str],
    ) -> None:
        """Plan a search.

        Args:
          lists: The value of each flag of the trainer, as a list.
          memory_gib: Memory for all processes of a run on CPUs; 0 for a share of the
            free memory.
          memory_share: Share of the free memory, from 0 to 1.
          trainer: The command of a process.

        Raises:
          FlagErrors: If the flags conflict.
        """
        self._machine = describe_machine_size()
        num_gpus = self._machine["num_gpus"]
        options: dict[str, Any] = {"num_devices": 0}
        options |= {name: values[0] for name, values in lists.items()}
        options.setdefault("preset", choose_default_preset(lists, num_gpus))
        self.config = configs.resolve(options, **self._machine)
        options["num_devices"] = self.config.devices.num_devices
        self._flags = {**_FEW_BATCHES, **options}
        self._user_flags = frozenset(lists)
        on_gpus = self.config.devices.device == "gpu"
        free_bytes = system.find_available_memory_bytes() or 0
        mistakes = [
            *_find_mistakes(lists, memory_gib, free_bytes, on_gpus),
            *conflicts.find_problems(self.config, options, num_gpus=num_gpus),
        ]
        if mistakes:
            raise flags.FlagErrors(mistakes)
        self.start = self.config.training.batch_size
        self.trainer = list(trainer)
        self.limit_bytes = None  # memory of each process
        if not on_gpus and (memory_gib or free_bytes):
            # All processes count as on this machine.
            run_bytes = memory_gib * system.GIB or memory_share * free_bytes
            self.limit_bytes = int(run_bytes / self.config.num_processes)
            self.trainer = [
                sys.executable,
                "-I",
                parent_death_launcher.__file__,
                "0",
                f"{parent_death_launcher.BYTES}{self.limit_bytes}",
                *trainer,
            ]

    @property
    def limit_text(self) -> str:
        """The memory of a process, such as "17.9 GiB"."""
        if self.limit_bytes:
            return f"{self.limit_bytes / system.GIB:.3g} GiB"
        return "the memory of its devices"

    def plan_first_runs(self) -> list[Run]:
        """Return the first run; the others depend on it."""
        return [self.run(self.start)]

    def run(self, batch_size: int) -> Run:
        """Return the run with this batch."""
        values = {**self._flags, "batch_size": batch_size}
        config = configs.resolve(values, **self._machine)
        named_options = [
            name for name in (*NAMED, "batch_size") if is_read(config, name)
        ]
        name = run_name({**config.flat(), **values}, named_options)
        return Run(name, values, config)

    def list_tries(self, records: Records) -> list[Try]:
        """Return the outcome of each run."""
        return [
            largest_batch.judge_run(record, self.limit_bytes)
            for record in records.values()
        ]

    def choose(self, progress: SweepProgress) -> list[Run]:
        """Return the next run, if there is time for it."""
        batch_size = largest_batch.choose_next_batch(
            self.start, self.list_tries(progress.records)
        )
        if batch_size is None:
            return []
        runs = [self.run(batch_size)]
        return runs if not progress.records or progress.has_time_for(runs) else []

    def make_advice(self, records: Records, launch: str) -> Advice:
        """Return the largest batch that fits, with its command and all tries."""
        tries = self.list_tries(records)
        bounds = largest_batch.find_bounds(tries)
        is_finished = largest_batch.choose_next_batch(self.start, tries) is None
        workload = WORKLOADS[self.config.model.model]
        statements = largest_batch.make_statements(
            tries, workload.samples, self.limit_bytes, is_finished
        )
        rows: list[list[Any]] = []
        for attempt in tries:
            peak = attempt.peak_bytes
            gib = None if peak is None else peak / system.GIB
            rows.append([attempt.batch_size, attempt.outcome, gib, attempt.rate])
        command = ""
        if bounds.largest is not None:
            command = self._run_command(bounds.largest, launch)
        return Advice(
            name="largest_batch",
            schema="rnn_scaling.largest_batch/2",
            statements=statements,
            command=command,
            columns={
                "Batch": 0,
                "Outcome": 0,
                "Peak memory, GiB": 0,
                f"{workload.unit}/s, roughly": 0,
            },
            rows=rows,
            data={
                "limit_bytes": self.limit_bytes,
                **dataclasses.asdict(bounds),
                "is_whole": is_finished,
                "tries": [_try_data(attempt) for attempt in tries],
            },
        )

    def _run_command(self, batch_size: int, launch: str) -> str:
        run = self.run(batch_size)
        options = dict(run.flags)
        for name in _FEW_BATCHES:
            if name not in self._user_flags:
                del options[name]
        return make_suite_command(run.config, format_flags(options), launch=launch).text


def _find_mistakes(
    lists: Mapping[str, Sequence[Any]],
    memory_gib: float,
    free_bytes: int,
    on_gpus: bool,
) -> Iterator[str]:
    """Yield an error for each flag that a search cannot use.

    Args:
      lists: The values of each flag of the trainer.
      memory_gib: Memory that the user gave, or 0.
      free_bytes: The free memory; 0 if unknown.
      on_gpus: Whether the devices are GPUs.
    """
    for name, values in lists.items():
        if len(values) > 1:
            text = spell(name, ",".join(map(str, values)))
            yield f"{text} must be one value"
    if "global_batch_size" in lists:
        yield (
            f"--global_batch_size={lists['global_batch_size'][0]} conflicts with "
            "--largest_batch, which searches per device; give --batch_size to "
            "choose the first size"
        )
    if on_gpus and memory_gib:
        yield f"--memory_gib={memory_gib:g} applies only to CPUs; leave it out on GPUs"
    if 0 < free_bytes < memory_gib * system.GIB:
        yield (
            f"--memory_gib={memory_gib:g} must be at most the free memory, "
            f"{free_bytes / system.GIB:.3g} GiB"
        )


def _try_data(attempt: Try) -> dict[str, Any]:
    """Return a try for JSON, whose error has the name "words" there."""
    data = dataclasses.asdict(attempt)
    data["words"] = data.pop("message")
    return data
