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
from rnn_scaling.sweeps.conduct import Records, Seconds
from rnn_scaling.sweeps.plan import Run, name_of
from rnn_scaling.sweeps.ranks import Starter, spelled
from rnn_scaling.system.machine import system
from rnn_scaling.system.machine.gpus import machine_size
from rnn_scaling.system.processes import tether

FEW_BATCHES = {
    "num_warmup_batches": 1,
    "num_batches": 3,
}  # enough to see how much memory a batch needs


class BatchSearch:
    def __init__(
        self,
        lists: Mapping[str, Sequence[Any]],
        memory_gib: float,
        memory_share: float,
        trainer: Sequence[str],
    ) -> None:
        """memory_gib: that all processes of a run may use, on CPUs; 0: `memory_share` of the free memory."""
        wrong = [
            f"{spell(n, ','.join(map(str, v)))} must be one value"
            for n, v in lists.items()
            if len(v) > 1
        ]
        given = {
            "num_devices": 0,
            **{name: values[0] for name, values in lists.items()},
        }
        self._machine = machine_size()
        num_gpus = self._machine["num_gpus"]
        given.setdefault(
            "preset", "seed" if num_gpus and given.get("device") != "cpu" else "small"
        )
        self.config = configs.resolve(given, **self._machine)
        given["num_devices"] = self.config.devices.num_devices
        self._flags, self._user_flags = {**FEW_BATCHES, **given}, frozenset(lists)
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
        wrong += conflicts.problems(self.config, given, num_gpus=num_gpus)
        if wrong:
            raise flags.FlagErrors(wrong)
        self.start = self.config.training.batch_size
        self.limit_bytes, self.trainer = self._limited(
            memory_gib, 0.0 if on_gpus else memory_share, trainer
        )

    def _limited(
        self, memory_gib: float, memory_share: float, trainer: Sequence[str]
    ) -> tuple[int | None, list[str]]:
        """(bytes that each process may use, the trainer with that limit); all processes count as on this machine."""
        free, count = system.available_memory_bytes(), self.config.num_processes
        if memory_gib and free and memory_gib * system.GIB > free:
            raise flags.FlagErrors(
                [
                    f"--memory_gib={memory_gib:g} must be at most the free memory, {free / system.GIB:.3g} GiB"
                ]
            )
        limit_bytes = int(
            (memory_gib * system.GIB or memory_share * (free or 0)) / count
        )
        if not limit_bytes:
            return None, list(trainer)
        return limit_bytes, [
            sys.executable,
            "-I",
            tether.__file__,
            "0",
            f"{tether.BYTES}{limit_bytes}",
            *trainer,
        ]

    @property
    def limit_words(self) -> str:
        """ "17.9 GiB"."""
        return (
            f"{self.limit_bytes / system.GIB:.3g} GiB"
            if self.limit_bytes
            else "the memory of its devices"
        )

    def run(self, batch_size: int) -> Run:
        given = {**self._flags, "batch_size": batch_size}
        config = configs.resolve(given, **self._machine)
        read = [name for name in (*NAMED, "batch_size") if is_read(config, name)]
        return Run(name_of({**config.flat(), **given}, read), given, config)

    def tries(self, records: Records) -> list[Try]:
        return [
            largest_batch.outcome(record, self.limit_bytes)
            for record in records.values()
        ]

    def choose(self, records: Records, left_s: float, seconds: Seconds) -> list[Run]:
        """The next run, if there is time for it."""
        batch_size = largest_batch.next_batch(self.start, self.tries(records))
        if batch_size is None or (records and seconds(self.run(batch_size)) > left_s):
            return []
        return [self.run(batch_size)]

    def advice(self, records: Records, launch: str) -> Advice:
        tries = self.tries(records)
        found = largest_batch.bounds(tries)
        is_finished = largest_batch.next_batch(self.start, tries) is None
        workload = WORKLOADS[self.config.model.model]
        return Advice(
            name="largest_batch",
            schema="rnn_scaling.largest_batch/2",
            statements=largest_batch.statements(
                tries, workload.samples, self.limit_bytes, is_finished
            ),
            command=""
            if found.largest is None
            else self._command(found.largest, launch),
            columns={
                "Batch": 0,
                "Outcome": 0,
                "Peak memory, GiB": 0,
                f"{workload.unit}/s, roughly": 0,
            },
            rows=[
                [
                    attempt.batch_size,
                    attempt.outcome,
                    None
                    if attempt.peak_bytes is None
                    else attempt.peak_bytes / system.GIB,
                    attempt.rate,
                ]
                for attempt in tries
            ],
            data={
                "limit_bytes": self.limit_bytes,
                **dataclasses.asdict(found),
                "is_whole": is_finished,
                "tries": [dataclasses.asdict(attempt) for attempt in tries],
            },
        )

    def _command(self, batch_size: int, launch: str) -> str:
        run = self.run(batch_size)
        shown = {
            name: value
            for name, value in run.flags.items()
            if name not in {*FEW_BATCHES} - self._user_flags
        }
        return Starter(launch=launch).shown(run.config, spelled(shown))
