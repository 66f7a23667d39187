"""The runs of a search for the largest batch, each within its memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.machine import memory
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.processes import memory_limit
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.settings.naming import NAMED
from rnn_scaling.settings.read_when import is_read
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps import largest_batch
from rnn_scaling.sweeps.largest_batch import Tried
from rnn_scaling.sweeps.plan import Run, name_of
from rnn_scaling.sweeps.ranks import Starter
from rnn_scaling.sweeps.rounds import Records, Seconds

FEW_BATCHES = {"num_warmup_batches": 1, "num_batches": 3}  # that show how much memory a batch takes


class BatchSearch:
    """The runs of a search for the largest batch, each within its memory."""

    def __init__(self, lists: Mapping[str, Sequence[Any]], memory_gib: float, trainer: Sequence[str]) -> None:
        """memory_gib: that all processes of a run may use, on CPUs; 0: a share of what is free."""
        wrong = [f"{spell(n, ','.join(map(str, v)))} must be one value" for n, v in lists.items() if len(v) > 1]
        given = {"num_devices": 0, **{name: values[0] for name, values in lists.items()}}
        num_gpus, num_cores = visible_gpus(), len(available_cores())
        given.setdefault("preset", "seed" if num_gpus and given.get("device") != "cpu" else "small")
        self.config = configs.resolve(given, num_gpus=num_gpus, num_cores=num_cores)
        given["num_devices"] = self.config.devices.num_devices
        self._given, self._told = {**FEW_BATCHES, **given}, frozenset(lists)
        if "global_batch_size" in given:
            wrong.append(
                f"--global_batch_size={given['global_batch_size']}: the largest batch is searched a device; "
                "give --batch_size, where to begin"
            )
        on_gpus = self.config.devices.device == "gpu"
        if on_gpus and memory_gib:
            wrong.append(f"--memory_gib={memory_gib:g} is for CPUs; a GPU's memory is its own limit")
        wrong += conflicts.problems(self.config, given, num_gpus=num_gpus)
        if wrong:
            raise flags.FlagErrors(wrong)
        self._machine = (num_gpus, num_cores)
        self.start = self.config.training.batch_size
        self.limit_bytes, self.trainer = (None, list(trainer)) if on_gpus else self._limited(memory_gib, trainer)

    def _limited(self, memory_gib: float, trainer: Sequence[str]) -> tuple[int | None, list[str]]:
        """(bytes that each process may use, the trainer that is held to them); all are taken to be on this machine."""
        free, count = memory.available_bytes(), self.config.num_processes
        if memory_gib and free and memory_gib * memory.GIB > free:
            raise flags.FlagErrors(
                [f"--memory_gib={memory_gib:g} must be at most what is free, {free / memory.GIB:.3g} GiB"]
            )
        limit_bytes = int((memory_gib * memory.GIB or largest_batch.SHARE * (free or 0)) / count)
        if not limit_bytes:
            return None, list(trainer)
        return limit_bytes, [sys.executable, "-I", memory_limit.__file__, str(limit_bytes), *trainer]

    @property
    def limit_words(self) -> str:
        """ "17.9 GiB"."""
        return f"{self.limit_bytes / memory.GIB:.3g} GiB" if self.limit_bytes else "what its devices have"

    def run(self, batch_size: int) -> Run:
        """The run of a batch size."""
        given = {**self._given, "batch_size": batch_size}
        config = configs.resolve(given, num_gpus=self._machine[0], num_cores=self._machine[1])
        read = [name for name in (*NAMED, "batch_size") if is_read(config, name)]
        return Run(name_of({**config.flat(), **given}, read), given, config)

    def tries(self, records: Records) -> list[Tried]:
        """What the runs say, in their order."""
        return [largest_batch.tried(record, self.limit_bytes) for record in records.values()]

    def choose(self, records: Records, left_s: float, seconds: Seconds) -> list[Run]:
        """The next run, if there is time for it.

        Args:
          left_s: seconds that are left.
        """
        batch_size = largest_batch.next_batch(self.start, self.tries(records))
        if batch_size is None or (records and seconds(self.run(batch_size)) > left_s):
            return []
        return [self.run(batch_size)]

    def command(self, batch_size: int, launch: str) -> str:
        """What a person types to train with a batch size, started by a launcher if there is one."""
        run = self.run(batch_size)
        shown_flags = {
            name: value for name, value in run.flags.items() if name not in FEW_BATCHES or name in self._told
        }
        return Starter(launch=launch).shown(run.config, [spell(name, value) for name, value in shown_flags.items()])
