"""Placement as tables: bytes by device, copies by direction, each variable with its slots, gradients and updates."""

import dataclasses

import pytest

from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import Graph
from rnn_scaling.reports import placement_table
from rnn_scaling.reports.sections import format_markdown
from tests.support.records import make_record

DEVICES = [f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in (0, 1)]
FIRST, SECOND = DEVICES


def variable(name, tower, device, num_bytes, *gradients, slots=2, types=("ApplyAdam",)):
    """Return a variable; a gradient is (tower, kind, device, bytes)."""
    names = ("tower", "kind", "device", "bytes")
    return {
        "name": name,
        "tower": tower,
        "device": device,
        "bytes": num_bytes,
        "slots": [{"device": device, "bytes": num_bytes}] * slots,
        "gradients": [dict(zip(names, gradient)) for gradient in gradients],
        "update": {"device": device, "types": [*types]},
    }


def run_of(variables=(), by_type=None, **parts):
    partitions = {
        "operators": 2900,
        "by_type": by_type or {},
        "by_device": {FIRST: 1500, SECOND: 1400},
    }
    fields = {
        "python": {"operators": 1},
        "optimized": {"operators": 1},
        "partitions": partitions,
        "placement": {"variables": [*variables]},
        "copies": [],
        **parts,
    }
    return dataclasses.replace(make_record(), graph=build(Graph, fields))


def test_the_tables_are_exact(is_golden):
    """Unknown sizes are counted, and variables in parts have each gradient once."""
    whole = [(tower, "dense", DEVICES[tower], 2048) for tower in (0, 1)]
    variables = [
        variable("embedding", 0, FIRST, 2048, (0, "rows", FIRST, 100)),
        variable("embedding", 1, SECOND, 2048, (1, "rows", SECOND, None)),
        variable("kernel", 0, FIRST, 1024, (0, "dense", FIRST, 1024)),
        variable("still", 0, FIRST, 1024, slots=0, types=()),
        *(variable("parts", None, each, 1024, *whole, slots=0) for each in DEVICES),
    ]
    largest = [{"name": f"t{n}", "bytes": 1000 - n} for n in range(5)]
    there = {"from": FIRST, "to": SECOND}
    back = {"from": SECOND, "to": FIRST}
    copies = [
        {**there, "pairs": 7, "bytes": 4990, "of_unknown_size": 2, "largest": largest},
        {**back, "pairs": 1, "bytes": 0, "of_unknown_size": 0, "largest": []},
    ]
    moves = [
        {**there, "predicted": 15360, "counted": 15360},
        {**back, "predicted": None, "counted": 0},
    ]
    sizes = [{"name": "ids", "bytes": size, "read": "lookup"} for size in (15360, None)]
    slicing = {"on": "device", "parts": sizes, "moves": moves}
    run = run_of(variables, copies=copies, slicing=slicing)
    text = format_markdown([placement_table.make_section("run", run)])
    assert is_golden("placement.md", text)


@pytest.mark.parametrize(
    "by_type, kind",
    [
        ({"MatMul": 3}, "nothing-sent"),
        ({"CollectiveReduceV2": 4, "_NcclReduceSend": 2}, "collectives-not-counted"),
    ],
)
def test_what_collectives_exchange_is_no_send(by_type, kind):
    notes = placement_table.make_section("run", run_of(by_type=by_type)).notes
    assert [note.kind for note in notes] == [kind]
