"""Record the random numbers that a script draws itself, such as the noise of a GAN.

`observer` and `loaders` pause a `Draws` while dropout, samplers and data sets draw,
because numbers of data sets often are the data.

Numbers can be fixed: each draw of a step then has equal rows, which depend only on its
place in the step. So one process draws the same rows as several. Numbers that a data set
draws for a sample then depend only on the number of the sample.
"""

import contextlib
import functools
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
_PYTHON = ("random", "getrandbits", "shuffle", "sample")  # other functions call these
# They draw an order of samples: each process may shuffle its share with the same seed.
_ORDERS = ("randperm", "permutation", "permuted", "shuffle", "sample")
_STATES = ("seed", "get_state", "set_state", "spawn")  # of NumPy, which draw nothing
_MAX_PLACES = 1000  # draws of a step that have seeds of their own


class Draws:
    """The random numbers of one step.

    Attributes:
      num_drawn: How many numbers were drawn.
    """

    def __init__(self, first_fixed: list[int] | None) -> None:
        """Watch nothing yet.

        Args:
          first_fixed: The `place` of the first draw that is fixed, unless training has
            begun before; None if nothing will be fixed.
        """
        self._first_fixed = first_fixed
        self._are_fixed = False
        self._is_paused = False
        self._is_sample = False
        self._num_steps = 0
        # Generators of Python; those without a seed may belong to a library.
        self._generators: list[random.Random] = [random._inst]
        self.start()

    def start(self) -> None:
        """Forget all numbers; a step begins."""
        self._num_steps += 1
        self._seed = self._num_steps
        self._place = 0
        if self._are_fixed:
            self._seed_host()
        self.num_drawn = 0
        self._has_drawn = False
        self._count = 0  # of numbers that are not fixed
        self._content = _new_digest()
        self._sum = 0  # of the digests of all draws
        self._by_length: dict[int, Any] = {}

    @contextlib.contextmanager
    def paused(self, is_paused: bool = True) -> Iterator[None]:
        """Ignore numbers that are drawn for something else."""
        was_paused = self._is_paused
        self._is_paused = is_paused
        try:
            yield
        finally:
            self._is_paused = was_paused

    def fix(self) -> None:
        """Fix numbers from now on, if they will be: training begins.

        Earlier numbers are weights and data.
        """
        if self._first_fixed is not None and not self._are_fixed:
            self._are_fixed = True
            self._place = 0
            self._seed_host()

    @property
    def place(self) -> list[int]:
        """The number of the step and of its next draw."""
        return [self._num_steps, self._place]

    def _seed_host(self) -> None:
        """Seed the generators of Python and NumPy."""
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self._seed)
        for generator in self._generators:
            generator.seed(self._seed)

    @contextlib.contextmanager
    def sample(self, number: int) -> Iterator[None]:
        """Draw the numbers of a sample, which may be fixed but are not counted."""
        if self._first_fixed is None:
            with self.paused():
                yield
            return
        outside = (self._seed, self._place, self._is_sample)
        states = random_states()
        self._seed = number + 1
        self._place = 0
        self._is_sample = True
        self._seed_host()
        try:
            with self.paused():
                yield
        finally:
            self._seed, self._place, self._is_sample = outside
            set_random_states(states)

    def install(self, wrap: Wrap) -> None:
        """Replace the functions of torch, NumPy and Python that draw random numbers."""
        for name in _FUNCTIONS:
            wrap(torch, name, self._draw)
        for name in _METHODS:
            wrap(torch.Tensor, name, self._draw)
        wrap(random.Random, "__init__", self._create_generator)
        for name in _PYTHON:
            wrap(random.Random, name, self._draw_python)
            setattr(random, name, getattr(self._generators[0], name))
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            self._watch_numpy(numpy.random, wrap)

    def _watch_numpy(self, module: Any, wrap: Wrap) -> None:
        """Replace the generators of NumPy, whose methods cannot be replaced."""
        module.RandomState = self._watched(module.RandomState)
        module.Generator = self._watched(module.Generator)
        for name in vars(module.RandomState).keys() & vars(module).keys():
            if not name.startswith("_"):
                draw = functools.partial(self._draw_from, module.mtrand._rand)
                wrap(module, name, draw)

        def create(original: Any, *args: Any, **options: Any) -> Any:
            return module.Generator(original(*args, **options).bit_generator)

        wrap(module, "default_rng", create)

    def _watched(self, owner: type) -> type:
        """Return a subclass of a NumPy generator whose numbers are recorded."""
        methods: dict[str, Any] = {}
        for name in dir(owner):
            method = getattr(owner, name)
            if callable(method) and not name.startswith("_") and name not in _STATES:
                methods[name] = self._recorded(method)
        return type(owner.__name__, (owner,), methods)

    def _recorded(self, method: Any) -> Any:
        """Return a method of a NumPy generator that records its numbers."""

        @functools.wraps(method)
        def draw(generator: Any, *args: Any, **options: Any) -> Any:
            return self._draw_from(generator, method, generator, *args, **options)

        return draw

    def _create_generator(self, original: Any, generator: Any, *seeds: Any) -> None:
        """Watch a generator of Python that the script gives a seed."""
        original(generator, *seeds)
        if seeds and not self._is_paused:
            self._generators.append(generator)

    def describe(self) -> dict[str, Any] | None:
        """Return the count and a digest of the numbers; None without any.

        Numbers also have digests by the length of their array, such as a batch's size.
        The sum of the digests shows whether ranks together draw as one process does.
        """
        if not self._has_drawn:
            return None
        by_length = {size: each.hexdigest() for size, each in self._by_length.items()}
        return {
            "count": self._count,
            "digest": self._content.hexdigest(),
            "by_length": by_length,
            "sum": self._sum,
        }

    def _draw_python(
        self, original: Any, generator: Any, *args: Any, **options: Any
    ) -> Any:
        """Draw a number by a method of Python's generator."""
        with self.paused(self._is_paused or original.__name__ in _ORDERS):
            value = original(generator, *args, **options)
            if self._is_paused or not any(generator is own for own in self._generators):
                return value
        self._has_drawn = True
        self.num_drawn += 1
        self._count += not self._are_fixed
        content = _new_digest()
        content.update(repr(value).encode())
        self._add(content.hexdigest())
        return value

    def _add(self, content: str) -> None:
        self._content.update(content.encode())
        self._sum += int(content, 16)

    def _draw(self, original: Any, *args: Any, **options: Any) -> Any:
        """Draw numbers by a function of torch."""
        generator = options.get("generator") or torch.default_generator
        return self._draw_from(generator, original, *args, **options)

    def _draw_from(
        self, generator: Any, original: Any, /, *args: Any, **options: Any
    ) -> Any:
        """Draw numbers from a generator of torch or NumPy, and add them to the digest."""
        if self._is_paused and not self._is_sample:
            return original(*args, **options)
        if self.place == self._first_fixed and not self._is_sample:
            self.fix()
        # A fixed order would be the same in each epoch.
        is_order = original.__name__ in _ORDERS
        self._place += 1
        if self._is_sample or (self._are_fixed and not is_order):
            with _seeded(generator, _MAX_PLACES * self._seed + self._place):
                values = original(*args, **options)
        else:
            values = original(*args, **options)
        tensor = _as_tensor(values)
        if tensor is None or self._is_sample:
            return values
        self._has_drawn = True
        self.num_drawn += tensor.numel() * (not is_order)
        if self._are_fixed and not is_order and tensor.dim() and len(tensor):
            # One row for all samples.
            with torch.no_grad():
                tensor.copy_(tensor[:1].clone().expand_as(tensor))
            tensor = tensor[:1]
        elif not self._are_fixed:
            self._count += tensor.numel() * (not is_order)
        content = digest(tensor)
        self._add(content)
        if tensor.dim():
            of_length = self._by_length.setdefault(len(tensor), _new_digest())
            of_length.update(content.encode())
        return values


@contextlib.contextmanager
def _seeded(generator: Any, seed: int) -> Iterator[None]:
    """Seed a generator of torch or NumPy for one draw."""
    if hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        state = bits.state
        bits.state = type(bits)(seed).state
        yield
        bits.state = state
    else:
        state = generator.get_state()
        getattr(generator, "manual_seed", generator.seed)(seed)
        yield
        generator.set_state(state)


def random_states() -> tuple[Any, ...]:
    """Return the states of the global random generators."""
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy else None
    return torch.get_rng_state(), random.getstate(), numpy_state


def set_random_states(states: tuple[Any, ...]) -> None:
    """Set the states of the global random generators."""
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


def _as_tensor(values: Any) -> torch.Tensor | None:
    """Return numbers as a tensor that shares their memory; None for other results."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return None


def _new_digest() -> Any:
    return hashlib.blake2b(digest_size=8)
