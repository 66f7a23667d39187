"""The views of a summary as tests read them."""

import csv
import io
import json

from rnn_scaling.reports import csv_table, json_report
from rnn_scaling.reports.page import scaling


def csv_lines(summary):
    """Return the lines of the CSV, by column."""
    return list(csv.DictReader(io.StringIO(csv_table.render(summary).decode())))


def render_json(summary):
    return json.loads(json_report.render(summary))


def render_page(summary):
    return scaling.render(summary).decode()
