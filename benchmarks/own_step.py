"""The training step of this suite on one CPU device, for benchmarks against others."""

from __future__ import annotations

from typing import Any

import numpy as np

from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.models import workloads
from rnn_scaling.models.workload import Workload, make_first_values
from rnn_scaling.training import benchmark
from rnn_scaling.training.engines.local import Request


class OwnStep:
    """One training step of this suite on one device, on a constant batch."""

    def __init__(self, settings: dict[str, Any], num_cores: int) -> None:
        """Build the step.

        Args:
          settings: Options of the trainer, in addition to those of every benchmark.
          num_cores: Cores of the device.
        """
        settings = {
            "data_source": "constant",
            "num_devices": 1,
            "variable_update": "independent",
            **settings,
        }
        self.config = configs.resolve(settings, num_gpus=0, num_cores=num_cores)
        mode = registry.VARIABLE_UPDATES[self.config.update.variable_update]
        request = Request(
            "cpu",
            num_devices=1,
            inter_op_threads=2 if num_cores > 1 else 1,
            intra_op_threads=num_cores,
            xla=self.config.model.xla,
        )
        self._engine = registry.load(registry.ENGINES, mode.engine).start(request)
        self._step = benchmark.build(self.config, self._engine)

    def run(self) -> float:
        """Make one step and return its loss."""
        return self._step().loss

    def build_workload(self) -> Workload:
        """Return the network of the step."""
        model = self.config.model
        return workloads.load(model.model).build(model, self._engine.device_type)

    def read_batch(self, workload: Workload) -> Any:
        """Return the batch of every step."""
        import tensorflow as tf

        feed = benchmark.build_feed(self.config, self._engine, workload)
        source = registry.load(registry.DATA_SOURCES, "constant").build(feed)
        [batch] = source.next_batches(tf.constant(0, tf.int64))
        return batch

    def first_values(self, variables: Any) -> dict[str, np.ndarray]:
        """Return the values of variables before the first step, by name."""
        return make_first_values(variables, self.config.training.seed)
