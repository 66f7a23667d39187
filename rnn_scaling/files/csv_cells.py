"""Cells of CSV that open in a spreadsheet as what they are: a text from outside is never a formula."""

import re

from rnn_scaling import entry

# What a spreadsheet takes for the beginning of a formula (OWASP, "CSV Injection"); the full-width signs as well.
_FORMULA = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def cell(value: object) -> object:
    """A value as a cell: nothing for None, numbers as they are, texts without control characters and formulas.

    >>> cell("=1+1"), cell("-3.5e2"), cell(None)
    ("'=1+1", '-3.5e2', '')
    """
    if value is None or value == "":
        return ""
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    is_formula = bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + entry.printable(text)
