"""What recommend found -> text, Markdown, JSON."""

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Advice, Cell
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.wording import sentence
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import markdown_table
from rnn_scaling.system.files.terminal import three_digits

TITLES = {"recommend": "Recommendation", "largest_batch": "The largest batch"}


def text(advice: Advice) -> str:
    """For the terminal: a line for each statement, and the command."""
    command = ["", f"    {advice.command}"] if advice.command else []
    return "\n".join([*map(sentence, advice.statements), *command, ""])


def markdown(advice: Advice) -> str:
    """The file: the same, and a table of everything that was measured."""
    rows = [
        [_cell(cell, digits) for cell, digits in zip(row, advice.columns.values())]
        for row in advice.rows
    ]
    table = markdown_table([*advice.columns], rows) if rows else ""
    answer = " ".join(map(sentence, advice.statements))
    command = f"\n    {advice.command}\n" if advice.command else ""
    return f"# {TITLES[advice.name]}\n\n{answer}\n{command}\n{table}"


def _cell(cell: Cell, digits: int) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or isinstance(cell, Interval):
        return plus_minus(cell, digits)
    return f"{cell:,}" if isinstance(cell, int) else three_digits(cell)


def to_json(advice: Advice) -> str:
    """Everything, for a program; rates in items/s, shares as ratios."""
    statements = [statement.data() for statement in advice.statements]
    content = {
        "schema": advice.schema,
        "statements": statements,
        "command": advice.command or None,
        **advice.data,
    }
    return input_files.json_text(content)


RENDER = {"text": text, "markdown": markdown, "json": to_json}
