"""The threads probe as sentences, a table, data and a picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import RATE, common_unit
from rnn_scaling.analysis.steps.dispatch_threads import Probe, Setting
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.reports.numbers import has_interval, plus_minus
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.series_sentence import load_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = "rnn_scaling.threads/1"
TOO_NOISY = 0.2  # a slow-down that runs must show before they say that there is none
SERIAL = 1.05  # towers that compute at once up to which they count as one after another
INK, MUTED, RULE = "#1a1d21", "#5b636d", "#d9dde2"


def markdown(probes: Sequence[Probe]) -> str:
    """The table and what it says, for each configuration."""
    parts = ["# Threads that dispatch operators\n"]
    for title, members in _by_title(probes).items():
        parts += [f"## {title}\n", table(members), _note(members), "".join(f"- {line}\n" for line in lines(members))]
    return "\n".join(part for part in parts if part)


def summary(probes: Sequence[Probe]) -> str:
    """The same for the terminal."""
    parts = []
    for title, members in _by_title(probes).items():
        parts += [f"### {title}\n", table(members), _note(members), "".join(f"- {line}\n" for line in lines(members))]
    return "\n".join(part for part in parts if part)


def _by_title(probes: Sequence[Probe]) -> dict[str, list[Probe]]:
    """The probes of each configuration, by number of devices."""
    titled: dict[str, list[Probe]] = {}
    for probe in probes:
        titled.setdefault(probe.title, []).append(probe)
    return titled


def table(probes: Sequence[Probe]) -> str:
    """A row for each number of devices and threads."""
    head = ["Devices", "Inter-op threads", "Runs", f"{_unit(probes)}/s", "% of the fastest", "Towers at once", ""]
    return markdown_table(head, [_row(probe, setting) for probe in probes for setting in probe.settings])


def _row(probe: Probe, setting: Setting) -> list[str]:
    marks = [word for word, at in (("fastest", probe.best), ("default", probe.default)) if at == setting.threads]
    failed = f", {setting.failed} failed" if setting.failed else ""
    of_best = "100" if setting.threads == probe.best else plus_minus(_percent(setting.of_best), 1)
    concurrency = "n/a" if setting.concurrency is None else f"{setting.concurrency:.2f}"
    cells = [str(probe.num_devices), str(setting.threads), f"{setting.runs}{failed}", plus_minus(setting.rate, 0)]
    return [*cells, of_best, concurrency, ", ".join(marks)]


def _unit(probes: Sequence[Probe]) -> str:
    return common_unit(probe.unit for probe in probes)


def _percent(value: Interval | None) -> Interval | None:
    return value.scaled(100) if value else None


def _note(probes: Sequence[Probe]) -> str:
    rates = [setting.rate for probe in probes for setting in probe.settings if setting.rate]
    kinds = dict.fromkeys(rate.kind for rate in rates if has_interval(rate))
    return "".join(f"± {_unit(probes)}/s: {kind}.\n" for kind in kinds)


def lines(probes: Sequence[Probe]) -> list[str]:
    """What the runs say, a line for each number of devices and matter."""
    return [
        line
        for probe in probes
        for line in (_bound(probe), _failed(probe), _serial(probe), _default(probe), _disturbed(probe))
        if line
    ]


def _disturbed(probe: Probe) -> str:
    """What else than threads is in the numbers: devices that share cores, and other processes."""
    crowded = [disturbance.cores_of(record) for record in probe.runs if record.resolved.oversubscribed]
    shared = (
        f"They share {len(max(crowded, key=len))} cores: these numbers hold for no machine with more."
        if crowded
        else ""
    )
    texts = [text for text in (shared, load_sentence(probe.runs)) if text]
    return f"{_count(probe.num_devices, 'device')}: {' '.join(texts)}" if texts else ""


def _bound(probe: Probe) -> str:
    where = _count(probe.num_devices, "device")
    if probe.best is None:
        return f"{where}: no run measured anything."
    if probe.enough is None:
        return f"{where}: one run of each number of threads cannot tell; give --repeats=3 or more."
    tried = [each.threads for each in probe.settings if each.rate]
    seen = f"{_count(probe.best, 'thread')} {'was' if probe.best == 1 else 'were'} fastest"
    slow = [each for each in probe.settings if each.threads < probe.enough and each.of_best]
    if not slow:
        others = [each for each in probe.settings if each.threads != probe.best and each.against_best]
        seeable = [
            each.against_best.detectable for each in others if each.against_best and each.against_best.detectable
        ]
        least = max(seeable, default=0.0)
        if least > TOO_NOISY:
            return (
                f"{where}: too noisy to tell ({seen}): a slow-down below {100 * least:.0f} % would not be seen; give "
                "more --repeats, or a quieter machine."
            )
        limit = f" (a slow-down below {100 * least:.1f} % would not be)" if seeable else ""
        if probe.best == tried[0]:
            return f"{where}: {seen} already; no bound by dispatch is seen{limit}."
        return (
            f"{where}: even {_count(tried[0], 'thread')} cannot be told from the best ({seen}); no bound by dispatch "
            f"is seen{limit}."
        )
    shares = ", ".join(f"{_count(s.threads, 'thread')} reached {_share(s)}" for s in slow)
    open_ = [each for each in probe.settings if probe.enough <= each.threads < probe.best and _is_open(each)]
    if open_:
        least = max(each.against_best.detectable or 0.0 for each in open_ if each.against_best)
        names = " and ".join(str(each.threads) for each in open_)
        return (
            f"{where}: with {_count(probe.best, 'thread')}, the fastest, dispatch is no longer the bound; {shares} of "
            f"its {probe.unit}/s; {names} cannot be told: a slow-down below {100 * least:.0f} % would not be seen."
        )
    return (
        f"{where}: from {_count(probe.enough, 'thread')} on dispatch is no longer the bound ({seen}); {shares} of its "
        f"{probe.unit}/s."
    )


def _failed(probe: Probe) -> str:
    failed = [each for each in probe.settings if each.rate is None]
    if probe.best is None or not failed:
        return ""
    return f"{_count(probe.num_devices, 'device')}: with {_threads(failed)} no run measured anything."


def _is_open(setting: Setting) -> bool:
    """Whether its runs are too few or too noisy to show even a large slow-down."""
    return setting.against_best is not None and (setting.against_best.detectable or 0.0) > TOO_NOISY


def _serial(probe: Probe) -> str:
    known = [each for each in probe.settings if each.concurrency is not None]
    if probe.num_devices == 1 or not known:
        return ""
    where = _count(probe.num_devices, "device")
    most = max(known, key=lambda each: (each.concurrency_over_runs is not None, each.concurrency or 0.0))
    at_once = f"at most {most.concurrency:.2f} at once with {_count(most.threads, 'thread')}"
    if serial := [each for each in known if _ends(each)[1] <= SERIAL]:
        return f"{where}: with {_threads(serial)} the towers run one after the other; {at_once}."
    if unclear := [each for each in known if _ends(each)[0] <= SERIAL]:
        question = "the runs do not show whether towers run one after the other"
        remedy = "give --repeats=3 or more, on a quiet machine with a core for each device"
        return f"{where}: with {_threads(unclear)} {question}; {remedy}."
    return f"{where}: in no trace did the towers run one after the other; {at_once}."


def _ends(setting: Setting) -> tuple[float, float]:
    """Of the interval of the towers at once; without one everything is possible."""
    over_runs = setting.concurrency_over_runs
    return (over_runs and over_runs.ends) or (1.0, math.inf)


def _threads(settings: Sequence[Setting]) -> str:
    """Their numbers: "1 thread", "1, 2 threads"."""
    numbers = [str(each.threads) for each in settings]
    return f"{', '.join(numbers)} {'thread' if numbers == ['1'] else 'threads'}"


def _default(probe: Probe) -> str:
    where, own = _count(probe.num_devices, "device"), _count(probe.default, "thread")
    setting = probe.find(probe.default)
    if setting is None or setting.rate is None:
        return f"{where}: the trainer's default, {own}, was not measured."
    if probe.default == probe.best:
        return f"{where}: the trainer's default, {own}, was the fastest."
    if setting.against_best is None:
        return f"{where}: the trainer's default, {own}, reached {_share(setting)} of the fastest."
    verdict = "is slower than the fastest" if setting.is_slower else "cannot be told from the fastest"
    return f"{where}: the trainer's default, {own}, {verdict} ({_share(setting)} of it)."


def _share(setting: Setting) -> str:
    return f"{plus_minus(_percent(setting.of_best), 1)} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def to_json(probes: Sequence[Probe]) -> str:
    """The same as data; rates in items/s, shares as ratios."""
    content = {"schema": SCHEMA, "probes": [_probe_data(probe) for probe in probes], "lines": lines(probes)}
    return input_files.json_text(content)


def _probe_data(probe: Probe) -> dict[str, Any]:
    return {
        "title": probe.title,
        "num_devices": probe.num_devices,
        "default": probe.default,
        "best": probe.best,
        "enough": probe.enough,
        "settings": [
            {
                "threads": each.threads,
                "runs": each.runs,
                "failed": each.failed,
                RATE.of(probe.unit).name: _interval(each.rate),
                "of_best": _interval(each.of_best),
                "verdict": each.against_best.verdict if each.against_best else None,
                "concurrency": each.concurrency,
            }
            for each in probe.settings
        ],
    }


def _interval(value: Interval | None) -> dict[str, float | None] | None:
    return None if value is None else {"value": value.value, "low": value.low, "high": value.high}


def picture(probes: Sequence[Probe]) -> bytes:
    """PNG: items/s in % of each number of devices' fastest, and towers at once, over threads.

    Raises:
      ValueError: if no run measured anything.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [probe for probe in probes if probe.best is not None][: figures.MOST_LINES]
    if not shown:
        raise ValueError("expected at least one successful run")
    several = len({probe.title for probe in shown}) > 1
    with figures.style(ink=INK, muted=MUTED, grid=RULE):
        figure = Figure(figsize=(9, 3.6 + 0.16 * len(shown)), layout="constrained")
        left, right = figure.subplots(1, 2)
        for k, probe in enumerate(shown):
            label = _count(probe.num_devices, "device") + (f", {probe.title}" if several else "")
            look = {
                "color": figures.COLOURS[k % len(figures.COLOURS)],
                "marker": figures.MARKERS[k % len(figures.MARKERS)],
            }
            _draw(left, right, probe, label, look, 0.04 * (k - (len(shown) - 1) / 2))
        left.set(
            title=f"{_unit(probes)}/s, % of the fastest (ring: the trainer's default)",
            xlabel="inter-op threads",
            ylim=(0, None),
        )
        right.set(title="towers that compute at once", xlabel="inter-op threads", ylim=(0, None))
        tried = sorted({each.threads for probe in shown for each in probe.settings})
        for axes in (left, right):
            axes.set_xticks(tried)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", frameon=False)
        buffer = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": SCHEMA})
    return buffer.getvalue()


def _draw(left: Axes, right: Axes, probe: Probe, label: str, look: dict[str, Any], shift: float) -> None:
    """One number of devices in both panels; the trainer's default is ringed."""
    rated = [each for each in probe.settings if each.rate]
    known_shares = [(each.threads, share) for each in rated if (share := _share_of_best(each, probe)) is not None]
    at, shares = [threads + shift for threads, _ in known_shares], [100 * share for _, share in known_shares]
    left.plot(at, shares, linewidth=1.4, markersize=4.5, label=label, **look)
    for each in rated:
        value = each.of_best
        if value is not None and value.ends:
            sides = [[100 * abs(end - value.value)] for end in value.ends]
            left.errorbar(each.threads + shift, 100 * value.value, sides, fmt="none", ecolor=look["color"], capsize=2)
    for place, share in zip(at, shares):
        if round(place - shift) == probe.default:
            ring: dict[str, Any] = {
                "marker": "o",
                "markersize": 11,
                "markerfacecolor": "none",
                "markeredgecolor": look["color"],
            }
            left.plot([place], [share], linestyle="none", **ring)
    known = [(each.threads + shift, each.concurrency) for each in rated if each.concurrency is not None]
    if known:
        right.plot(*zip(*known), linewidth=1.4, markersize=4.5, **look)


def _share_of_best(each: Setting, probe: Probe) -> float | None:
    if each.threads == probe.best:
        return 1.0
    return each.of_best.value if each.of_best else None
