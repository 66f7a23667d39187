"""The reader of lists agrees with json.loads, and returns the items before a fault."""

import json

import pytest

from rnn_scaling.records.importers.json_stream import JsonFault, read_items

VALUES = [1, -2.5e-7, "a\n\"]},", None, True, {"b": [1, {"c": []}]}, [], "\u00e9", 123456789]  # fmt: skip


@pytest.mark.parametrize("indent", [None, 1])
def test_values(indent):
    assert [
        value for _, value in read_items(json.dumps(VALUES, indent=indent), 1)
    ] == VALUES


def test_lines():
    text = '{\n"a": 1,\n"results": [\n{"x": 1},\n\n{"x": 2}\n]\n}'
    assert list(read_items(text, text.index("[") + 1)) == [(4, {"x": 1}), (6, {"x": 2})]


@pytest.mark.parametrize(
    "text, count, line, between",
    [
        ("[1, 2", 2, 1, True),
        ("[1,\n2,\n", 2, 3, True),
        ('[1,\n{"a": [1, 2', 1, 2, False),
        ('[1,\n"abc', 1, 2, False),
        ("[1,\n2 3]", 2, 2, False),
        ("[1,\n2}\n]", 2, 2, False),
        ('[{"a":\n1},\n[\n2],\n3}', 3, 5, False),
        ("[1, tru", 1, 1, False),
        ("", 0, 1, True),
    ],
)
def test_faults(text, count, line, between):
    seen = []
    with pytest.raises(JsonFault) as caught:
        for _, value in read_items(text, 1):
            seen.append(value)
    assert (len(seen), caught.value.line, caught.value.is_between_values) == (
        count,
        line,
        between,
    )


def test_deep_nesting_is_a_fault():
    with pytest.raises(JsonFault, match="too deep|not JSON|ends within"):
        list(read_items("[" * 200_000, 1))
