"""Matrix products that were timed: the rate of each, the best of them; JSON. Pure functions."""

import dataclasses
from typing import Any

from rnn_scaling.links.series import counted, quantile

Shape = tuple[int, int, int]  # m, k, n of [m, k] x [k, n]


@dataclasses.dataclass(frozen=True)
class Product:
    shape: Shape
    seconds: tuple[
        float, ...
    ]  # raw times of one product, each the mean of `calls` in a row
    calls: int = 1  # products in a row


@dataclasses.dataclass(frozen=True)
class Rate:
    """FLOP/s: median over the repeats, and their quartiles."""

    median: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Gemm:
    """Products of one type by devices that compute at once."""

    dtype: str
    num_devices: int
    cores_per_device: int  # of a CPU device; 0 of GPUs
    onednn: bool  # whether TensorFlow multiplied by oneDNN
    products: tuple[Product, ...]
    notes: tuple[str, ...] = ()
    disturbed: bool = False  # other processes used the cores too, so that the rates are too low to relate runs to

    def rate(self, product: Product) -> Rate:
        """Of all devices together."""
        operations = self.num_devices * flops(product.shape)
        median, high, low = (
            operations / quantile(product.seconds, share) for share in (0.5, 0.25, 0.75)
        )
        return Rate(median, low, high)

    @property
    def best(self) -> Rate:
        """The rate of the product that was fastest by its median."""
        return max(map(self.rate, self.products), key=lambda rate: rate.median)

    @property
    def devices(self) -> str:
        """ "1 core", "2 devices of 4 cores", "8 GPUs"."""
        if self.cores_per_device <= 1:
            return counted(self.num_devices, "core" if self.cores_per_device else "GPU")
        cores = f"{self.cores_per_device} cores"
        return (
            cores if self.num_devices == 1 else f"{self.num_devices} devices of {cores}"
        )


def flops(shape: Shape) -> int:
    """Operations of [m, k] x [k, n]: a multiplication and an addition for each of m k n."""
    m, k, n = shape
    return 2 * m * k * n


def title(shape: Shape) -> str:
    """ "960x256 x 256x8000", "2048^3"."""
    m, k, n = shape
    return f"{m}^3" if m == k == n else f"{m}x{k} x {k}x{n}"


def to_json(gemm: Gemm) -> dict[str, Any]:
    """As it stands in links.json, with its best rate."""
    return {**dataclasses.asdict(gemm), "best_flops_per_second": gemm.best.median}
