"""Compact, comparable summaries of tensors: sketches and digests.

A sketch is a vector of SIZE numbers. Element i of the tensor is added to a random entry
with a random sign; both depend only on i and on the number of elements. So sketches are
linear, and their squared length estimates that of the tensor with a relative standard
error of sqrt(2 / SIZE) (Charikar, Chen and Farach-Colton, "Finding frequent items in
data streams", 2002).

`verification.numbers` compares them, so SIZE must be equal in all runs of a script.
"""

import ctypes
import functools
import hashlib
from typing import Any

import torch

SIZE = 32
CHUNK = 1 << 20  # elements that share one table; later chunks rotate and flip it
SEED = 20141


@functools.lru_cache(maxsize=8)
def _table(num_elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the entry and the sign of each element of a chunk."""
    generator = torch.Generator().manual_seed(SEED + num_elements)
    entries = torch.randint(SIZE, (num_elements,), generator=generator)
    signs = torch.randint(2, (num_elements,), generator=generator).double()
    return entries, signs * 2 - 1


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor; the parts of a sharded one come from all ranks."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def sketch(tensor: torch.Tensor) -> list[float]:
    """Return the sketch of a tensor."""
    tensor = plain(tensor)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1)
    total = torch.zeros(SIZE, dtype=torch.float64)
    for number, chunk in enumerate(flat.split(CHUNK)):
        entries, signs = _table(chunk.numel())
        part = torch.zeros(SIZE, dtype=torch.float64)
        part.index_add_(0, entries, chunk.to("cpu", torch.float64) * signs)
        total += part.roll(number) * (-1) ** (number // SIZE)
    return [float(f"{value:.9g}") for value in total.tolist()]


def digest(tensor: torch.Tensor) -> str:
    """Return a digest of the bytes of a tensor."""
    tensor = plain(tensor)
    return hashlib.blake2b(_bytes(tensor.cpu().contiguous()), digest_size=8).hexdigest()


def _bytes(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a contiguous tensor on the host, without numpy."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def row_digests(tensor: torch.Tensor) -> list[list[str]]:
    """Return two digests of each row [B, ...] of an input, without zeros at its end.

    The second digest leaves out the last number. The inputs of a language model are
    often all tokens except the last column, and only the longest row fills this column.
    """
    rows = []
    for row in tensor.detach().cpu().reshape(len(tensor), -1):
        used = row.nonzero()
        end = int(used[-1]) + 1 if len(used) else 0
        rows.append([digest(row[:end].clone()), digest(row[: max(0, end - 1)].clone())])
    return rows


def item_digest(item: Any) -> str:
    """Return a digest of a sample of a data set: tensors, arrays, texts and containers."""
    content = hashlib.blake2b(digest_size=8)
    _add(item, content)
    return content.hexdigest()


def _add(item: Any, content: Any) -> None:
    if isinstance(item, torch.Tensor):
        content.update(repr((item.dtype, tuple(item.shape))).encode())
        content.update(digest(item.clone()).encode())
    elif isinstance(item, dict):
        for name in sorted(item, key=str):
            content.update(str(name).encode())
            _add(item[name], content)
    elif isinstance(item, (list, tuple)):
        content.update(b"(")
        for part in item:
            _add(part, content)
    elif hasattr(item, "tobytes"):
        content.update(item.tobytes())
    else:
        content.update(repr(item).encode())
