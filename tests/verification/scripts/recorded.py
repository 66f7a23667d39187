"""Literal records of small runs, without torch: two ranks, a few steps, two parameters."""

from __future__ import annotations

import copy
import itertools

import numpy as np

from rnn_scaling.verification.scripts.judge import judge

NUM_STEPS = 3
SIZE = 8
KEYS = ("0.0.0", "0.0.1")
TOKENS = np.array([[3.0, 5.0], [6.0, 2.0]])  # [rank][micro-batch]


def tensors(values, is_sparse=False):
    return {
        key: {
            "sketch": value.tolist(),
            "digest": str(hash(value.tobytes())),
            "is_sparse": is_sparse,
            "norm": float(np.linalg.norm(value)),
        }
        for key, value in values.items()
    }


class Recorded:
    """The runs of a right script, whose parts a test can replace.

    Attributes:
      local: The gradient sum over the tokens of each micro-batch, [step][rank][micro][key].
      weights: How each rank weights the local gradients, [rank of result][rank][micro].
    """

    def __init__(self, num_micro: int = 1) -> None:
        generator = np.random.default_rng(1)
        self.num_micro = num_micro
        tokens = TOKENS[:, :num_micro]
        self.right = np.full((2, num_micro), 1 / tokens.sum()) * tokens
        self.weights = np.stack([self.right, self.right])
        self.local = []
        for _ in range(NUM_STEPS):
            self.local.append(self._random_gradients(generator))
        self.noise = generator.normal(size=(NUM_STEPS, SIZE))
        self.initial = {key: generator.normal(size=SIZE) for key in KEYS}
        self.decay = 0.0
        self.added = [{key: np.zeros(SIZE) for key in KEYS} for _ in range(NUM_STEPS)]
        self.operation = "SUM"
        self.scale = dict.fromkeys(KEYS, 1.0)
        self.batches = [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]

    def _random_gradients(self, generator):
        return [
            [self._random_gradient(generator) for _ in range(self.num_micro)]
            for _ in range(2)
        ]

    @staticmethod
    def _random_gradient(generator):
        return {key: generator.normal(size=SIZE) for key in KEYS}

    def gradient(self, step, weights):
        total = {key: np.zeros(SIZE) for key in KEYS}
        places = itertools.product(range(2), range(self.num_micro))
        for rank, micro in places:
            for key in KEYS:
                term = self.local[step][rank][micro][key]
                total[key] = total[key] + weights[rank, micro] * term
        return total

    def run(self, num_ranks, weights, noise=0.0, is_parallel=False):
        ranks = []
        for rank in range(num_ranks):
            steps = []
            for step in range(NUM_STEPS):
                gradient = self.gradient(step, weights[rank])
                for key in KEYS:
                    gradient[key] = gradient[key] + noise * self.noise[step]
                    if is_parallel:
                        gradient[key] = gradient[key] * self.scale[key]
                        gradient[key] += self.decay * self.initial[key]
                        gradient[key] += self.added[step][key]
                steps.append(self._step(rank, step, gradient, num_ranks))
            ranks.append(self._rank(rank, steps, num_ranks))
        return {"timed_out": False, "seconds": 1.0, "ranks": ranks, "settings": {}}

    def _step(self, rank, step, gradient, num_ranks):
        batch = self.batches[rank][step]
        if num_ranks == 1:
            batch = self.batches[0][step] + self.batches[1][step]
        passes = []
        for micro in self.local[step][rank]:
            values = {key: value.tolist() for key, value in micro.items()}
            passes.append({"loss": 1.0, "gradients": values})
        read = {"loader": 0, "epoch": 0, "samples": batch}
        return {
            "optimizer": 0,
            "rates": [0.1 * 0.9**step],
            "num_states": 2 if step else 0,
            "gradients": tensors(gradient),
            "reads": [read],
            "accesses": [],
            "micro": passes,
            "clips": [],
            "reduced": {self.operation: 2 * SIZE},
            "scheduler_calls": int(step > 0),
            "dropout": f"state of rank {rank}",
            "noise": None,
            "weights": tensors(self.initial),
            "buffers": {},
        }

    def _rank(self, rank, steps, num_ranks):
        epoch = [step["reads"][0]["samples"] for step in steps]
        loader = {"size": 12, "length": 3, "epoch": epoch, "digests": None}
        return {
            "status": 0,
            "log": [],
            "start": {
                "names": {"0.0.0": "embedding", "0.0.1": "output"},
                "layers": {},
                "broadcasts_buffers": False,
                "weights": tensors(self.initial),
                "buffers": {},
            },
            "steps": steps,
            "end": {"reason": "steps", "loaders": [loader], "rounding": 2**-23},
        }

    def runs(self):
        one = self.right[None]
        return copy.deepcopy(
            {
                "serial": self.run(1, one),
                "parallel": self.run(2, self.weights, 1e-8, is_parallel=True),
                "reference": self.run(1, one),
                "repeated": self.run(1, one),
                "perturbed0": self.run(1, one, 1e-7),
            }
        )

    def verdict(self):
        return judge(self.runs())
