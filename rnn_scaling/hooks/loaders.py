"""Record the samples that each `DataLoader` of a script reads, or prescribe them.

An iterator draws the numbers of a batch before it returns the batch, with workers some
batches earlier. So each iterator has a queue of drawn batches, and a batch counts as
read when the script gets it.

`observer` replaces the methods of `DataLoader` by those of a `Loaders`. Needs only
torch.
"""

import collections
import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import data
from torch.utils.data import dataloader

from rnn_scaling.hooks import draws, sketches

MAX_SAMPLES = 20_000  # samples of an epoch that are listed
_MAX_DIGESTS = 4096  # samples of a data set that are recognised by their content
_NUM_PROBED = 4  # samples that are read twice
QUEUE = "_rnn_scaling_queue"
_HELD = "_rnn_scaling_held"  # batches that a library has read but not returned yet


class ReplaySampler:
    """Returns recorded batches, epoch by epoch; in other epochs its own ones."""

    def __init__(self, own: Any, epochs: Mapping[str, Any], length: int) -> None:
        self._own = own
        self._epochs = epochs
        self._length = length
        self.epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._epochs.get(str(self.epoch), self._own))

    def __len__(self) -> int:
        return self._length


class Loaders:
    """All loaders of a script, in the order of their creation."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_create: Callable[[], None],
        random_draws: draws.Draws,
    ) -> None:
        """Store the conditions.

        Args:
          settings: The conditions; see `Observer`.
          on_create: Called when the script creates a loader.
          random_draws: The random numbers of the script; those of samplers do not
            count.
        """
        self._settings = settings
        self._on_create = on_create
        self._draws = random_draws
        self._loaders: list[Any] = []
        self._num_epochs: list[int] = []
        self._reads: list[dict[str, Any]] = []
        self._accesses: list[int] = []
        self._probed: set[int] = set()
        self._probes: list[list[str]] = []
        self._digests: dict[int, list[str] | None] = {}
        self._is_reading = False
        self._num_samples = 0

    def install(self) -> None:
        """Watch each loader that the script creates."""
        self._wrap(data.DataLoader, "__init__", self._create)
        self._wrap(data.DataLoader, "__iter__", self._iterate)
        self._wrap(dataloader._BaseDataLoaderIter, "_next_index", self._draw)
        self._wrap(dataloader._BaseDataLoaderIter, "__next__", self._read)
        self._wrap(data.DataLoader, "__len__", self._length)
        self._watch_data_sets()

    def take_accesses(self) -> list[int]:
        """Return the samples that the script itself read since the last call."""
        accesses = self._accesses
        self._accesses = []
        return accesses

    @property
    def probes(self) -> list[list[str]]:
        """Return digests of the first samples of each data set, read twice."""
        return self._probes

    @property
    def num_samples(self) -> int:
        """The real size of the largest data set; 0 if the script asks for none."""
        return self._num_samples

    def take_reads(self) -> list[dict[str, Any]]:
        """Return the batches read since the last call."""
        reads = self._reads
        self._reads = []
        return reads

    def describe(self) -> list[dict[str, Any]]:
        """Return the length, the next epoch and the samples of each loader."""
        return [self._describe(loader) for loader in self._loaders]

    @staticmethod
    def _wrap(owner: Any, name: str, replacement: Any) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            return replacement(original, *args, **options)

        setattr(owner, name, wrapper)

    def _create(self, original: Any, loader: Any, *args: Any, **options: Any) -> None:
        """Number a new loader, and let it replay samples if the settings say so."""
        original(loader, *args, **options)
        self._on_create()
        number = self._number(loader)
        loader.__dict__["_rnn_scaling_number"] = number
        if loader.num_workers == 0 and loader.collate_fn is not None:
            collate = self._recorded(loader.collate_fn)
            object.__setattr__(loader, "collate_fn", collate)
        replay = self._settings.get("replay")
        if replay and replay["loader"] == number and loader.batch_sampler is not None:
            sampler = ReplaySampler(
                loader.batch_sampler, replay["epochs"], replay["length"]
            )
            # A DataLoader refuses this attribute after its creation.
            object.__setattr__(loader, "batch_sampler", sampler)

    def _recorded(self, collate: Any) -> Any:
        """Return a function that joins samples; its noise, such as masks, counts."""

        @functools.wraps(collate)
        def record(samples: Any) -> Any:
            with self._draws.paused(False):
                return collate(samples)

        return record

    def _number(self, loader: Any) -> int:
        """Return the number of a new loader, and store it.

        DeepSpeed creates a loader per epoch. The loaders have the same sampler, so they
        have the same number.
        """
        for number, other in enumerate(self._loaders):
            is_same = loader.sampler is other.sampler and loader.sampler is not None
            if is_same and loader.dataset is other.dataset:
                self._loaders[number] = loader
                return number
        self._loaders.append(loader)
        self._num_epochs.append(0)
        return len(self._loaders) - 1

    def _iterate(self, original: Any, loader: Any) -> Any:
        """Begin an epoch of a loader."""
        previous = getattr(loader, "_iterator", None)
        if previous is not None:  # persistent workers
            getattr(previous, QUEUE, collections.deque()).clear()
        number = loader.__dict__["_rnn_scaling_number"]
        if isinstance(loader.batch_sampler, ReplaySampler):
            loader.batch_sampler.epoch = self._num_epochs[number]
        if not isinstance(loader.dataset, data.IterableDataset):
            # Scripts often seed their ranks after they have created the loader.
            self._probe(loader.dataset)
            if self._settings.get("describe") and number not in self._digests:
                self._digests[number] = self._read_all(loader.dataset)
        self._draws.fix()
        with self._draws.paused():
            iterator = original(loader)
        iterator.__dict__["_rnn_scaling_epoch"] = (number, self._num_epochs[number])
        iterator.__dict__["_rnn_scaling_reads"] = 0
        self._num_epochs[number] += 1
        return iterator

    def iterate_ahead(self, original: Any, outer: Any) -> Iterator[Any]:
        """Iterate over a loader of a library that reads ahead of what it returns.

        Args:
          original: The `__iter__` of its class.
          outer: The loader; its `base_dataloader` reads the samples.
        """
        held: collections.deque[dict[str, Any]] = collections.deque()
        inner = outer.base_dataloader
        inner.__dict__[_HELD] = held
        try:
            for content in original(outer):
                if held:
                    self._reads.append(held.popleft())
                yield content
        finally:
            inner.__dict__.pop(_HELD, None)

    def _draw(self, original: Any, iterator: Any) -> Any:
        """Queue the numbers of a batch when an iterator draws them."""
        with self._draws.paused():
            batch = original(iterator)
        iterator.__dict__.setdefault(QUEUE, collections.deque()).append(batch)
        return batch

    def _read(self, original: Any, iterator: Any) -> Any:
        """Record a batch when the script gets it."""
        cut = self._settings.get("cut_batches")
        if cut and iterator.__dict__.get("_rnn_scaling_reads", 0) >= cut:
            raise StopIteration
        self._is_reading = True
        try:
            with self._draws.paused():
                content = original(iterator)
        finally:
            self._is_reading = False
        queue = iterator.__dict__.get(QUEUE)
        place = iterator.__dict__.get("_rnn_scaling_epoch")
        if queue and place:
            number, epoch = place
            samples = self._base_numbers(number, queue.popleft())
            iterator.__dict__["_rnn_scaling_reads"] += 1
            # Evaluations read without gradients.
            if torch.is_grad_enabled():
                read = {"loader": number, "epoch": epoch, "samples": samples}
                held = self._loaders[number].__dict__.get(_HELD, self._reads)
                held.append(read)
        return content

    def _base_numbers(self, number: int, batch: Any) -> list[int] | None:
        """Return the numbers of a batch in the data set; None if it has no numbers."""
        samples = batch if isinstance(batch, (list, tuple)) else [batch]
        if not all(isinstance(sample, int) for sample in samples):
            try:
                samples = [int(sample) for sample in samples]
            except (TypeError, ValueError):
                return None
        return list(samples)

    def _describe(self, loader: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {"size": None, "length": None, "epoch": None}
        batches = loader.batch_sampler
        owners = (loader, loader.sampler, batches, getattr(batches, "sampler", None))
        facts["drop_last"] = any(getattr(each, "drop_last", False) for each in owners)
        if isinstance(loader.dataset, data.IterableDataset):
            return facts
        try:
            facts["size"] = len(loader.dataset)
            facts["length"] = len(loader)
            if not self._settings.get("describe"):
                return facts
            self._is_reading = True
            drawn = list(itertools.islice(iter(loader._index_sampler), MAX_SAMPLES))
            facts["epoch"] = [self._base_numbers(0, batch) for batch in drawn]
            number = self._loaders.index(loader)
            facts["digests"] = self._digests.get(number)
        except Exception as e:
            facts["problem"] = f"{type(e).__name__}: {e}"
        return facts

    def _read_all(self, dataset: Any) -> list[str] | None:
        """Return the digest of each sample; None if they are many or random.

        The first epoch begins: later ones may have other samples.
        """
        if not 0 < len(dataset) <= _MAX_DIGESTS:
            return None
        digests = self._read_copy(dataset, [*range(len(dataset)), 0])
        return digests[:-1] if digests and digests[-1] == digests[0] else None

    def _length(self, original: Any, loader: Any) -> int:
        length = original(loader)
        return min(length, self._settings.get("cut_batches") or length)

    def _watch_data_sets(self) -> None:
        """Record which samples the script reads itself, and shorten data sets."""

        def watch(owner: Any) -> None:
            if "__len__" in vars(owner):
                self._wrap(owner, "__len__", self._short_length)
            if "__getitem__" in vars(owner):
                self._wrap(owner, "__getitem__", self._get_item)

        def watch_subclass(owner: Any, **options: Any) -> None:
            super(data.Dataset, owner).__init_subclass__(**options)
            watch(owner)

        data.Dataset.__init_subclass__ = classmethod(watch_subclass)
        for owner in (data.TensorDataset, data.Subset, data.ConcatDataset):
            watch(owner)

    def _short_length(self, original: Any, dataset: Any) -> int:
        length: int = original(dataset)
        self._num_samples = max(self._num_samples, length)
        return min(length, self._settings.get("max_samples") or length)

    def _get_item(self, original: Any, dataset: Any, index: Any) -> Any:
        if not self._is_reading:
            self._probe(dataset)
            if isinstance(index, int):
                self._accesses.append(index)
        if not isinstance(index, int):
            return original(dataset, index)
        with self._draws.sample(index):
            return original(dataset, index)

    def _probe(self, dataset: Any) -> None:
        """Read the first samples of a copy twice, before the script reads any.

        Samples that differ are random; ranks whose random samples are equal draw the
        same numbers.
        """
        if id(dataset) in self._probed:
            return
        self._probed.add(id(dataset))
        numbers = list(range(_NUM_PROBED))
        if hasattr(dataset, "__len__"):
            numbers = numbers[: len(dataset)]
        self._probes.append(self._read_copy(dataset, numbers * 2))

    def _read_copy(self, dataset: Any, numbers: list[int]) -> list[str]:
        """Return digests of samples of a copy; [] if they cannot be read yet."""
        was_reading = self._is_reading
        self._is_reading = True
        states = draws.random_states()
        try:
            twin = copy.deepcopy(dataset)
            with self._draws.paused():
                return [sketches.item_digest(twin[i]) for i in numbers]
        except Exception:  # The script may still change the data set.
            return []
        finally:
            draws.set_random_states(states)
            self._is_reading = was_reading
