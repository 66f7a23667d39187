"""Record the random numbers that a script draws itself, such as the noise of a GAN.

`observer` and `loaders` pause a `Draws` while dropout, samplers and data sets draw,
because numbers of data sets often are the data.

Numbers can be fixed: each draw of a step then has equal rows, which depend only on its
place in the step. So one process draws the same rows as several.
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
    "randperm",
    "binomial",
    # torch.distributions calls these, and torchvision's mixup calls the first one.
    "_sample_dirichlet",
    "_standard_gamma",
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
_MAX_PLACES = 1000  # draws of a step that have seeds of their own


class Draws:
    """The random numbers of one step.

    Attributes:
      num_drawn: How many numbers torch has drawn.
    """

    def __init__(self, will_be_fixed: bool) -> None:
        self._will_be_fixed = will_be_fixed
        self._are_fixed = False
        self._is_paused = False
        self._num_steps = 0
        self._generators: list[Any] = []  # of Python and NumPy, made by the script
        self.start()

    def start(self) -> None:
        """Forget all numbers; a step begins."""
        self._place = 0
        self._num_steps += 1
        if self._are_fixed:
            self._seed_host()
        self._has_drawn = False
        self.num_drawn = 0  # of numbers of torch
        self._count = 0  # of those that are not fixed
        self._content = hashlib.blake2b(digest_size=8)
        self._host_states = self._states()

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
            self._host_states = self._states()

    def fix(self) -> None:
        """Fix numbers from now on, if they will be: training begins.

        Earlier numbers are weights and data.
        """
        if self._will_be_fixed and not self._are_fixed:
            self._add_host_numbers()
            self._are_fixed = True
            self._seed_host()
            self._host_states = self._states()

    def _seed_host(self) -> None:
        """Seed the generators of Python and NumPy with the number of the step."""
        random.seed(self._num_steps)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self._num_steps)
        for generator in self._generators:
            if isinstance(generator, random.Random):
                generator.seed(self._num_steps)
            else:
                twin = type(generator.bit_generator)(self._num_steps)
                generator.bit_generator.state = twin.state

    @contextlib.contextmanager
    def resumed(self) -> Iterator[None]:
        """Record numbers again, inside of `paused`."""
        was_paused = self._is_paused
        self._is_paused = False
        self._host_states = self._states()
        try:
            yield
        finally:
            self._add_host_numbers()
            self._is_paused = was_paused

    def install(self, wrap: Wrap) -> None:
        """Replace the functions of torch that draw random numbers."""
        for name in _FUNCTIONS:
            wrap(torch, name, self._draw)
        for name in _METHODS:
            wrap(torch.Tensor, name, self._draw)
        wrap(random.Random, "__init__", self._create_generator)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            wrap(numpy.random, "default_rng", self._create_generator)

    def describe(self) -> dict[str, Any] | None:
        """Return the count of torch's numbers and a digest of all; None without any."""
        self._add_host_numbers()
        if not self._has_drawn:
            return None
        return {"count": self._count, "digest": self._content.hexdigest()}

    def _create_generator(self, original: Any, *args: Any, **options: Any) -> Any:
        """Watch a generator of Python or NumPy that the script gives a seed."""
        created = original(*args, **options)
        # A constructor returns nothing; its first argument is the object.
        generator, seeds = (args[0], args[1:]) if created is None else (created, args)
        has_seed = any(seed is not None for seed in (*seeds, *options.values()))
        if has_seed and not self._is_paused:
            self._add_host_numbers()
            self._generators.append(generator)
            self._host_states = self._states()
        return created

    def _add_host_numbers(self) -> None:
        """Note whether Python or NumPy have drawn since the last call."""
        states = self._states()
        for state, before in zip(states, self._host_states):
            if state != before:
                self._has_drawn = True
                self._content.update(state.encode())
        self._host_states = states

    def _states(self) -> list[str]:
        """Return digests of the random states of Python and NumPy."""
        states = [repr(random.getstate())]
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            _, keys, *rest = numpy.random.get_state()
            states.append(repr((keys.tobytes(), rest)))
        for generator in self._generators:
            if isinstance(generator, random.Random):
                states.append(repr(generator.getstate()))
            else:
                states.append(repr(generator.bit_generator.state))
        return [_short(state) for state in states]

    def _draw(self, original: Any, *args: Any, **options: Any) -> Any:
        """Draw numbers by a function of torch, and add them to the digest."""
        if self._is_paused:
            return original(*args, **options)
        # A fixed order would be the same in each epoch.
        is_order = getattr(original, "__name__", "") == "randperm"
        if self._are_fixed and not is_order:
            values = self._draw_fixed(original, *args, **options)
            self._place += 1
        else:
            values = original(*args, **options)
        if isinstance(values, torch.Tensor):
            self._has_drawn = True
            self.num_drawn += values.numel()
            if self._are_fixed:
                row = values[:1] if values.dim() and not is_order else values
                self._content.update(digest(row).encode())
                return values
            self._count += values.numel()
            self._content.update(digest(values).encode())
        return values

    def _draw_fixed(self, original: Any, *args: Any, **options: Any) -> Any:
        """Draw with a seed of this place in the step, and repeat the first row."""
        generator = options.get("generator") or torch.default_generator
        state = generator.get_state()
        generator.manual_seed(_MAX_PLACES * self._num_steps + self._place)
        try:
            values = original(*args, **options)
        finally:
            generator.set_state(state)
        has_rows = isinstance(values, torch.Tensor) and values.dim() > 0
        if has_rows and len(values):
            with torch.no_grad():
                values.copy_(values[:1].clone().expand_as(values))
        return values


def _short(state: str) -> str:
    return hashlib.blake2b(state.encode(), digest_size=8).hexdigest()
