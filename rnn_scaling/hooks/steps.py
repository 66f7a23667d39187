"""Record the steps of a script whose framework has no hooks, from NumPy arrays.

The records have the fields that `observer` writes for PyTorch; what such a script does
not report is empty.
"""

import atexit
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnn_scaling.hooks import arrays, ranks
from rnn_scaling.hooks.arrays import Arrays

# Relative size of one rounding, by type of a weight.
ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-11}
ROUNDING |= {"bfloat16": 2.0**-8}


class StepRecorder:
    """Writes the record of one rank.

    Attributes:
      settings: The conditions of the run.
      num_steps: Steps that have been recorded.
    """

    def __init__(self, settings: Mapping[str, Any], path: str) -> None:
        self.settings = settings
        self.num_steps = 0
        self._file = open(path, "w")  # noqa: SIM115, closed at the end
        self._rounding = 2.0**-52
        self._step: dict[str, Any] | None = None
        self._micro: list[dict[str, Any]] = []
        self._accesses: list[int] = []
        self._has_begun = False
        atexit.register(self._finish, "exit")

    @classmethod
    def from_environment(cls) -> "StepRecorder | None":
        """Return the recorder that `verify` asks for; None outside of `verify`."""
        path = os.environ.get(ranks.FILE_VARIABLE)
        if not path:
            return None
        return cls(json.loads(os.environ[ranks.SETTINGS_VARIABLE]), path)

    def set_weights(self, weights: Arrays, buffers: Arrays) -> None:
        """Record the weights after the last step, or before the first one.

        End the process if that was the last step of the run.
        """
        described = {
            "weights": arrays.describe(weights),
            "buffers": arrays.describe(buffers),
        }
        if not self._has_begun:
            self._has_begun = True
            for array in weights.values():
                rounding = ROUNDING.get(array.dtype.name, 0.0)
                self._rounding = max(self._rounding, rounding)
            names = {name: name for name in weights}
            start = {"names": names, "layers": {}, "broadcasts_buffers": False}
            self._write({"kind": "start", **start, **described})
        if self._step is not None:
            self._write({**self._step, **described})
            self._step = None
            self.num_steps += 1
            if self.num_steps >= self.settings["num_steps"]:
                self._finish("steps")
                ranks.end_after_last_step()

    def add_batch(self, gradients: Arrays, samples: np.ndarray, loss: float) -> None:
        """Record a backward pass: the own gradients of this rank, and its samples."""
        sketches = {name: arrays.sketch(array) for name, array in gradients.items()}
        if samples.ndim == 1:
            self._accesses += samples.tolist()
        self._micro.append(
            {
                "loss": loss,
                "gradients": sketches,
                "rows": arrays.row_digests(samples),
                "criteria": [],
            }
        )

    def add_step(self, gradients: Arrays, rates: list[float]) -> None:
        """Record the gradients that the optimizer gets."""
        self._step = {
            "kind": "step",
            "optimizer": 0,
            "rates": rates,
            "num_states": 0,
            "has_flat_parameters": False,
            "gradients": arrays.describe(gradients),
            "reads": [],
            "accesses": self._accesses,
            "micro": self._micro,
            "clips": [],
            "scheduler_calls": 0,
            "dropout": None,
            "noise": None,
        }
        self._micro = []
        self._accesses = []

    def perturbed(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Return a weight, changed by one rounding if the run asks for it.

        Only the weights after the first step are changed, because a script passes its
        first weights when it has computed with them already.
        """
        perturbation = self.settings.get("perturb")
        if not perturbation or self.num_steps or not self._has_begun:
            return weight
        seed = perturbation["seed"] + zlib.crc32(name.encode())
        return arrays.perturbed(weight, perturbation["size"], seed)

    def _finish(self, reason: str) -> None:
        if self._file.closed:
            return
        if self._step is not None:
            # No later call has shown the weights.
            self._write({**self._step, "weights": {}, "buffers": {}})
        end = {"loaders": [], "rounding": self._rounding, "probes": []}
        self._write({"kind": "end", "reason": reason, **end})
        self._file.close()
        ranks.wait_for_all(self.settings["folder"])

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
