"""A pytest marker and a fixture: a test fails if training scales worse than it should.

    @pytest.mark.scaling(num_devices=2, min_efficiency=0.9)
    def test_my_program_scales(scaling):
        scaling.command(
            "python3 my.py {num_devices}",
            log_format="regex:words/s: {number}",
            unit="words",
        )

    @pytest.mark.scaling(num_devices=2, min_efficiency=0.9)
    def test_my_loop_scales(scaling):
        scaling.function(train, unit="words")  # calls train(num_devices, recorder)

A test fails if the efficiency is below `min_efficiency` by its 95 % interval. If only
the estimate is below, the runs cannot decide, and the test is skipped as inconclusive.
pytest loads this module if the package is installed; otherwise use
`-p rnn_scaling.commands.pytest_plugin`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rnn_scaling.analysis.folder_rows import Rows
    from rnn_scaling.training.recorder import Recorder

_DEFAULT_REPEATS = 3
_MARKER = (
    "scaling(num_devices, min_efficiency, repeats=3): measure on 1 and on num_devices "
    "devices with the fixture `scaling`, and fail below min_efficiency (0 to 1)"
)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Measures a program or a function on one and on several devices.

    Attributes:
      folder: Receives the records.
      num_devices: The larger number of devices.
      min_efficiency: Speedup / devices that is required, 0 to 1.
      repeats: Runs on each number of devices.
    """

    folder: Path
    num_devices: int
    min_efficiency: float
    repeats: int = _DEFAULT_REPEATS

    def command(self, trainer: str, **options: Any) -> None:
        """Measure a program, like `rnn_scaling.sweep(trainer=...)`.

        Args:
          trainer: The command, with the places of `--trainer`.
          **options: Options of the sweep, such as `log_format` and `unit`.
        """
        from rnn_scaling.commands import api

        rows = api.sweep(
            self.folder,
            repeats=self.repeats,
            trainer=trainer,
            num_devices=[1, self.num_devices],
            **options,
        )
        self._judge(rows)

    def function(
        self, train: Callable[[int, Recorder], object], unit: str = "items", **more: Any
    ) -> None:
        """Measure a function of this process.

        Args:
          train: Trains on a number of devices and calls `recorder.step(items=...)`
            after each step.
          unit: The unit of the items, in the plural.
          **more: Other arguments of each `Recorder`, such as `num_warmup_batches`.
        """
        from rnn_scaling.commands import api
        from rnn_scaling.training.recorder import Recorder

        for repeat in range(1, self.repeats + 1):
            for num_devices in (1, self.num_devices):
                file = self.folder / f"{num_devices}.r{repeat}.json"
                recorder = Recorder(file, unit=unit, num_devices=num_devices, **more)
                with recorder:
                    train(num_devices, recorder)
        self._judge(api.load(self.folder))

    def _judge(self, rows: Rows) -> None:
        """Fail, skip or pass by the efficiency of the rows.

        If the sweep has several configurations, such as batch sizes, the worst decides.

        Raises:
          pytest.fail.Exception: If the efficiency is too low, or nothing was measured.
          pytest.skip.Exception: If the runs cannot decide.
        """
        from rnn_scaling.commands import api

        records = rows.to_records()
        compared = [row for row in records if row["num_devices"] == self.num_devices]
        if not compared or any(row["efficiency"] is None for row in compared):
            if _are_hidden_by_load(records):
                pytest.skip(
                    "inconclusive: the load of other programs hides the efficiency; "
                    "repeat the test on a quiet machine"
                )
            pytest.fail(f"nothing was measured on {self.num_devices} devices")
        too_low = [row for row in compared if row["efficiency"] < self.min_efficiency]
        if not too_low:
            return
        certain_rows = [row for row in too_low if not self._is_inconclusive(row)]
        worst = min(certain_rows or too_low, key=lambda row: row["efficiency"])
        high = worst["efficiency_high"]
        ends = "one run each, no interval"
        if high is not None:
            low = worst["efficiency_low"]
            ends = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
        text = (
            f"efficiency on {self.num_devices} devices is "
            f"{100 * worst['efficiency']:.1f} % ({ends}); "
            f"at least {100 * self.min_efficiency:g} % is required. "
            f"{api.answer(self.folder)} Records: {self.folder}"
        )
        if not certain_rows:
            pytest.skip(f"inconclusive: {text}")
        pytest.fail(text)

    def _is_inconclusive(self, row: Mapping[str, Any]) -> bool:
        """Return whether the interval of an efficiency reaches the required one."""
        high = row["efficiency_high"]
        return high is None or high >= self.min_efficiency


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture
def scaling(request: pytest.FixtureRequest, tmp_path: Path) -> Scaling:
    """Return the measuring fixture with the options of the test's marker."""
    marker = request.node.get_closest_marker("scaling")
    if marker is None:
        raise pytest.UsageError(
            "the fixture scaling needs a marker: "
            "@pytest.mark.scaling(num_devices=2, min_efficiency=0.9)"
        )
    marker_options = _read_marker(*marker.args, **marker.kwargs)
    return dataclasses.replace(marker_options, folder=tmp_path / "scaling")


def _read_marker(
    num_devices: int, min_efficiency: float, repeats: int = _DEFAULT_REPEATS
) -> Scaling:
    """Return the requirement of a marker, without a folder.

    Raises:
      pytest.UsageError: If a value is out of range.
    """
    if num_devices < 2 or not 0 < min_efficiency <= 1 or repeats < 1:
        raise pytest.UsageError(
            "scaling needs num_devices >= 2, 0 < min_efficiency <= 1 and repeats >= 1, "
            f"got {num_devices}, {min_efficiency:g} and {repeats}"
        )
    return Scaling(Path(), num_devices, min_efficiency, repeats)


def _are_hidden_by_load(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether all rates are known, and load disturbed some of them."""
    have_rates = all(row["items_per_second"] is not None for row in records)
    return have_rates and any(row["runs_disturbed"] for row in records)
