"""Record the random numbers that a script draws itself, such as the noise of a GAN.

Numbers of dropout and orders of samples do not count. Samplers, gradients and steps are
excluded by the caller.
"""

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rnn_scaling.hooks.sketches import digest

Wrap = Callable[[Any, str, Callable[..., Any]], None]

_FUNCTIONS = (
    "rand",
    "rand_like",
    "randn",
    "randn_like",
    "randint",
    "randint_like",
    "normal",
    "bernoulli",
    "poisson",
    "multinomial",
)
_METHODS = (
    "normal_",
    "uniform_",
    "bernoulli_",
    "bernoulli",
    "exponential_",
    "random_",
    "multinomial",
)


class Draws:
    """The random numbers of one step."""

    def __init__(self) -> None:
        self._is_paused = False
        self.start()

    def start(self) -> None:
        """Forget all numbers; a step begins."""
        self._has_drawn = False
        self._count = 0  # of numbers of torch
        self._content = hashlib.blake2b(digest_size=8)
        self._host_states = _host_states()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore numbers that are drawn for something else."""
        if self._is_paused:
            yield
            return
        self._add_host_numbers()
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._host_states = _host_states()

    def install(self, wrap: Wrap) -> None:
        """Replace the functions of torch that draw random numbers."""
        for name in _FUNCTIONS:
            wrap(torch, name, self._draw)
        for name in _METHODS:
            wrap(torch.Tensor, name, self._draw)

    def describe(self) -> dict[str, Any] | None:
        """Return the count of torch's numbers and a digest of all; None without any."""
        self._add_host_numbers()
        if not self._has_drawn:
            return None
        return {"count": self._count, "digest": self._content.hexdigest()}

    def _add_host_numbers(self) -> None:
        states = _host_states()
        for state, before in zip(states, self._host_states):
            if state != before:
                self._has_drawn = True
                self._content.update(state.encode())
        self._host_states = states

    def _draw(self, original: Any, *args: Any, **options: Any) -> Any:
        values = original(*args, **options)
        if not self._is_paused and isinstance(values, torch.Tensor):
            self._has_drawn = True
            self._count += values.numel()
            self._content.update(digest(values).encode())
        return values


def _host_states() -> tuple[str, str]:
    """Return digests of the global random states of Python and of NumPy."""
    numpy = sys.modules.get("numpy")
    states = [repr(random.getstate()).encode(), b""]
    if numpy is not None:
        _, keys, *rest = numpy.random.get_state()
        states[1] = keys.tobytes() + repr(rest).encode()
    first, second = (hashlib.blake2b(state, digest_size=8) for state in states)
    return first.hexdigest(), second.hexdigest()
