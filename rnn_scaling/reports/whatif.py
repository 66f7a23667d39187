"""Renders what changes would do, for the terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import escaped
from rnn_scaling.reports.numbers import interval_data, plus_minus
from rnn_scaling.reports.sections import Columns, Section, grid_of, markdown
from rnn_scaling.reports.wording import sentence

SCHEMA = "rnn_scaling.whatif/1"
LEAST = 0.005  # share of the step's time from which on a part is named


def text(answers: Sequence[Sensitivity]) -> str:
    """Of each series the parts of a step, a line for each change, and what that assumes."""
    parts = []
    for found in answers:
        columns: Columns = {
            "Change": lambda effect: effect.title,
            "Gain": lambda effect: plus_minus(effect.gain, 2),
            f"{found.curve.unit.capitalize()}/s": lambda effect: plus_minus(effect.rate, 0),
            "Efficiency (%)": lambda effect: plus_minus(effect.efficiency.scaled(100), 0),
        }
        parts += [sentence(_parts(found)), "", markdown([Section("", (grid_of("", columns, found.effects),))])]
        parts += [*map(sentence, found.statements), ""]
    return escaped("\n".join(parts))


def _parts(found: Sensitivity) -> Statement:
    shares = sorted(found.parts.items(), key=lambda part: -part[1].value)
    parts = [f"{name} {plus_minus(share.scaled(100), 0)} %" for name, share in shares if share.value >= LEAST]
    return Statement("whatif-parts", found.curve.name, {"devices": found.devices, "parts": parts})


def to_json(answers: Sequence[Sensitivity]) -> bytes:
    """All series, changes and statements."""
    return input_files.json_text({"schema": SCHEMA, "series": [*map(_data, answers)]}).encode()


def _data(found: Sensitivity) -> dict[str, Any]:
    names = ("gain", "rate", "efficiency")
    changes = [
        {"change": effect.title, **{name: interval_data(getattr(effect, name)) for name in names}}
        for effect in found.effects
    ]
    parts = {name: interval_data(share) for name, share in found.parts.items()}
    statements = [statement.data() for statement in found.statements]
    named = {"name": found.curve.name, "source": found.curve.source, "unit": found.curve.unit, "devices": found.devices}
    return {**named, "parts": parts, "changes": changes, "statements": statements}
