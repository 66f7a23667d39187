"""The advice of `recommend` as text, Markdown or JSON.

Programs of users read the JSON, whose schema is in the `Advice`: keys may be added, but
never rename one or change its meaning.
"""

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Advice, Cell
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.wording import format_interval, write_sentence
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.files.terminal import format_three_digits

_TITLES = {"recommend": "Recommendation", "largest_batch": "The largest batch"}


def format_text(advice: Advice) -> str:
    """Return a line for each statement, and the command."""
    lines = [write_sentence(statement) for statement in advice.statements]
    if advice.command:
        lines += ["", f"    {advice.command}"]
    return "\n".join([*lines, ""])


def format_markdown(advice: Advice) -> str:
    """Return the statements, the command, and a table of all measurements."""
    table = ""
    if advice.rows:
        digits = advice.columns.values()
        rows = [list(map(_format_cell, row, digits)) for row in advice.rows]
        table = format_table([*advice.columns], rows)
    answer = " ".join(map(write_sentence, advice.statements))
    command = f"\n    {advice.command}\n" if advice.command else ""
    return f"# {_TITLES[advice.name]}\n\n{answer}\n{command}\n{table}"


def _format_cell(cell: Cell, digits: int) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or isinstance(cell, Interval):
        return format_interval(cell, digits)
    return f"{cell:,}" if isinstance(cell, int) else format_three_digits(cell)


def to_json(advice: Advice) -> str:
    """Return the advice as JSON; rates are in items/s, and shares are ratios."""
    content = {
        "schema": advice.schema,
        "statements": advice.statements,
        "command": advice.command or None,
        **advice.data,
    }
    return format_plain_json(content)


RENDER = {"text": format_text, "markdown": format_markdown, "json": to_json}
