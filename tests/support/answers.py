"""The statements of answers, by kind."""

from rnn_scaling.reports import conclusions
from rnn_scaling.reports.series_statements import make_statements
from tests.support.scaling_runs import summarise_records


def state_by_mode(records):
    """Return each mode's statements by kind; later statements of a kind replace earlier ones."""
    return {
        series.title.split(", ")[1]: by_kind(make_statements(series))
        for series in summarise_records(records).series
    }


def by_kind(made):
    return {statement.kind: statement for statement in made}


def lead(summary):
    """Return the statements of the answer by kind."""
    return by_kind(conclusions.state_answer(summary))


def value(statement, name):
    return statement.values[name]["value"]


def list_parts(made):
    """Part -> its points, of the statements of a series."""
    return {each.subject: value(each, "points") for each in made if each.kind == "part"}
