"""Rates of timed matrix products, the best of them, and JSON. Pure functions.

`to_json` writes all fields of `Gemm` and `Product` to links.json: never rename one.
"""

import dataclasses
from typing import Any

from rnn_scaling.links.series import quantile
from rnn_scaling.system.files.terminal import format_count

Shape = tuple[int, int, int]  # m, k, n of [m, k] x [k, n]


@dataclasses.dataclass(frozen=True)
class Product:
    shape: Shape
    seconds: tuple[float, ...]  # raw times of a product, each the mean of `calls`
    calls: int = 1  # products in a row


@dataclasses.dataclass(frozen=True)
class Rate:
    """FLOP/s: the median of the repeats, and their quartiles."""

    median: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Gemm:
    """Products of one type by devices that compute at once."""

    dtype: str
    num_devices: int
    cores_per_device: int  # cores of a CPU device; 0 for GPUs
    onednn: bool  # whether TensorFlow used oneDNN
    products: tuple[Product, ...]
    notes: tuple[str, ...] = ()
    disturbed: bool = False  # whether rates are too low because of other processes

    def rate(self, product: Product) -> Rate:
        """Return the total rate of all devices."""
        operations = self.num_devices * count_flops(product.shape)
        return Rate(
            median=operations / quantile(product.seconds, 0.5),
            low=operations / quantile(product.seconds, 0.75),
            high=operations / quantile(product.seconds, 0.25),
        )

    @property
    def best(self) -> Rate:
        """The rate of the product with the highest median."""
        return max(map(self.rate, self.products), key=lambda rate: rate.median)

    @property
    def devices(self) -> str:
        """The devices, such as "1 core", "2 devices of 4 cores", "8 GPUs"."""
        if self.cores_per_device <= 1:
            return format_count(
                self.num_devices, "core" if self.cores_per_device else "GPU"
            )
        cores = f"{self.cores_per_device} cores"
        if self.num_devices == 1:
            return cores
        return f"{self.num_devices} devices of {cores}"


def count_flops(shape: Shape) -> int:
    """Return the operations of [m, k] x [k, n]: m k n multiplications and additions."""
    m, k, n = shape
    return 2 * m * k * n


def format_shape(shape: Shape) -> str:
    """Return a title such as "960x256 x 256x8000" or "2048^3"."""
    m, k, n = shape
    return f"{m}^3" if m == k == n else f"{m}x{k} x {k}x{n}"


def to_json(gemm: Gemm) -> dict[str, Any]:
    """Return the entry of links.json, with the best rate."""
    return {**dataclasses.asdict(gemm), "best_flops_per_second": gemm.best.median}
