"""Beginnings that titles share are headings, and every title is still complete."""

import pytest

from rnn_scaling.reports.shared_names import split_titles


@pytest.mark.parametrize(
    "titles, beginnings",
    [
        ([], []),
        (["a"], [""]),
        (["a, x", "b, x"], ["", ""]),
        (["a, x", "a, y", "b, x", "b, y"], ["a", "a", "b", "b"]),
        (["a, x, t=1", "a, x, t=2"], ["a, x", "a, x"]),
        # Each title keeps a name of its own.
        (["a", "a, x"], ["", ""]),
        (["a, x", "a, x, t=2"], ["a", "a"]),
        # Only neighbours share a heading.
        (["a, x", "b, x", "a, y"], ["", "", ""]),
        # A beginning consists of whole parts.
        (["ab, x", "ac, x"], ["", ""]),
    ],
)
def test_neighbours_share_whole_parts(titles, beginnings):
    names = split_titles(titles)
    assert [beginning for beginning, _ in names] == beginnings
    for title, (beginning, rest) in zip(titles, names):
        assert rest
        assert title == (f"{beginning}, {rest}" if beginning else rest)
