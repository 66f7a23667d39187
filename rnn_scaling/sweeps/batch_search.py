"""The runs of a search for the largest batch, each within its memory."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
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
from rnn_scaling.sweeps.conduct import Records, Rounds
from rnn_scaling.sweeps.plan import Run, default_preset, name_of
from rnn_scaling.sweeps.ranks import Starter, spelled
from rnn_scaling.system.machine import system
from rnn_scaling.system.machine.gpus import machine_size
from rnn_scaling.system.processes import tether

# Enough to see how much memory a batch needs.
FEW_BATCHES = {"num_warmup_batches": 1, "num_batches": 3}


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
          lists: The values of each flag of the trainer, one each.
          memory_gib: Memory for all processes of a run, on CPUs; 0: a share.
          memory_share: This share of the free memory.
          trainer: The command of a process.

        Raises:
          FlagErrors: If the flags conflict.
        """
        wrong = []
        for name, values in lists.items():
            if len(values) > 1:
                text = spell(name, ",".join(map(str, values)))
                wrong.append(f"{text} must be one value")
        self._machine = machine_size()
        num_gpus = self._machine["num_gpus"]
        first = {name: values[0] for name, values in lists.items()}
        given = {"num_devices": 0, **first}
        given.setdefault("preset", default_preset(lists, num_gpus))
        self.config = configs.resolve(given, **self._machine)
        given["num_devices"] = self.config.devices.num_devices
        self._flags = {**FEW_BATCHES, **given}
        self._user_flags = frozenset(lists)
        if "global_batch_size" in given:
            wrong.append(
                f"--global_batch_size={given['global_batch_size']} conflicts with --largest_batch, which searches "
                "per device; give --batch_size to choose the first size"
            )
        on_gpus = self.config.devices.device == "gpu"
        if on_gpus and memory_gib:
            wrong.append(
                f"--memory_gib={memory_gib:g} is for CPUs; on GPUs leave it out"
            )
        free = system.available_memory_bytes() or 0
        if memory_gib and 0 < free < memory_gib * system.GIB:
            wrong.append(
                f"--memory_gib={memory_gib:g} must be at most the free memory, {free / system.GIB:.3g} GiB"
            )
        wrong += conflicts.problems(self.config, given, num_gpus=num_gpus)
        if wrong:
            raise flags.FlagErrors(wrong)
        self.start = self.config.training.batch_size
        self.trainer = list(trainer)
        self.limit_bytes = None  # of each process
        if not on_gpus and (memory_gib or free):
            # All processes count as on this machine.
            whole = memory_gib * system.GIB or memory_share * free
            self.limit_bytes = int(whole / self.config.num_processes)
            limit = f"{tether.BYTES}{self.limit_bytes}"
            self.trainer = [
                sys.executable,
                "-I",
                tether.__file__,
                "0",
                limit,
                *trainer,
            ]

    @property
    def limit_words(self) -> str:
        """The memory of a process, as "17.9 GiB"."""
        if self.limit_bytes:
            return f"{self.limit_bytes / system.GIB:.3g} GiB"
        return "the memory of its devices"

    def planned(self) -> list[Run]:
        """Return the first run; the others depend on it."""
        return [self.run(self.start)]

    def run(self, batch_size: int) -> Run:
        """Return the run with this batch."""
        given = {**self._flags, "batch_size": batch_size}
        config = configs.resolve(given, **self._machine)
        read = [name for name in (*NAMED, "batch_size") if is_read(config, name)]
        return Run(name_of({**config.flat(), **given}, read), given, config)

    def tries(self, records: Records) -> list[Try]:
        """Return what each run showed."""
        return [
            largest_batch.outcome(record, self.limit_bytes)
            for record in records.values()
        ]

    def choose(self, rounds: Rounds) -> list[Run]:
        """Return the next run, if there is time for it."""
        batch_size = largest_batch.next_batch(self.start, self.tries(rounds.records))
        if batch_size is None:
            return []
        runs = [self.run(batch_size)]
        return runs if not rounds.records or rounds.has_time_for(runs) else []

    def advice(self, records: Records, launch: str) -> Advice:
        """Return the largest batch that fits, with its command and all tries."""
        tries = self.tries(records)
        found = largest_batch.bounds(tries)
        is_finished = largest_batch.next_batch(self.start, tries) is None
        workload = WORKLOADS[self.config.model.model]
        statements = largest_batch.statements(
            tries, workload.samples, self.limit_bytes, is_finished
        )
        rows: list[list[Any]] = []
        for attempt in tries:
            peak = attempt.peak_bytes
            gib = None if peak is None else peak / system.GIB
            rows.append([attempt.batch_size, attempt.outcome, gib, attempt.rate])
        command = ""
        if found.largest is not None:
            command = self._command(found.largest, launch)
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
                **dataclasses.asdict(found),
                "is_whole": is_finished,
                "tries": [dataclasses.asdict(attempt) for attempt in tries],
            },
        )

    def _command(self, batch_size: int, launch: str) -> str:
        run = self.run(batch_size)
        hidden = {*FEW_BATCHES} - self._user_flags
        shown = {name: value for name, value in run.flags.items() if name not in hidden}
        return Starter(launch=launch).shown(run.config, spelled(shown))
