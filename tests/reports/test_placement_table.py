"""Placement as tables: bytes by device, copies by direction, each variable with its slots, gradients and updates."""

import dataclasses

import pytest

from rnn_scaling.records.decoding import build
from rnn_scaling.records.step_parts import Graph, Slicing
from rnn_scaling.reports import placement_table
from tests.support.records import make_record

CPU_0, CPU_1 = (
    "/job:localhost/replica:0/task:0/device:CPU:0",
    "/job:localhost/replica:0/task:0/device:CPU:1",
)


def variable(name, tower, device, num_bytes, gradients, slots=2):
    return {
        "name": name,
        "tower": tower,
        "device": device,
        "bytes": num_bytes,
        "slots": [{"device": device, "bytes": num_bytes}] * slots,
        "gradients": [
            {"tower": t, "kind": kind, "device": where, "bytes": b}
            for t, kind, where, b in gradients
        ],
        "update": {"device": device, "types": ["ResourceApplyAdam"]},
    }


def graph(variables, copies=(), by_type=None):
    fields = {
        "python": {"operators": 1},
        "optimized": {"operators": 1},
        "partitions": {
            "operators": 2900,
            "by_type": by_type or {},
            "by_device": {CPU_0: 1500, CPU_1: 1400},
        },
        "placement": {"variables": variables},
        "copies": list(copies),
    }
    return build(Graph, fields)


def test_a_run_that_does_not_train_has_no_updates():
    still = variable("kernel", 0, CPU_0, 1024, [], slots=0)
    still["update"]["types"] = []
    [line, _] = placement_table.devices_grid(graph([still])).lines
    assert line == ["CPU:0", "1 KiB", "0", "0", "0", "0", "1,500"]
    moved = variable("embedding", 0, CPU_0, 1024, [], slots=0)
    [line, _] = placement_table.devices_grid(graph([still, moved])).lines
    assert line[5] == "1 ResourceApplyAdam, 1 of unknown type"


def test_a_device_holds_its_copies_slots_and_gradients():
    found = graph(
        [
            variable("embedding", 0, CPU_0, 2048, [(0, "rows", CPU_0, 100)]),
            variable("kernel", 0, CPU_0, 1024, [(0, "dense", CPU_0, 1024)]),
            variable("embedding", 1, CPU_1, 2048, [(1, "rows", CPU_1, None)]),
        ]
    )
    grid = placement_table.devices_grid(found)
    assert grid.head[0] == "Device" and len(grid.head) == len(grid.lines[0])
    updates = "ResourceApplyAdam"
    assert [line[1:] for line in grid.lines] == [
        ["3 KiB", "6 KiB", "1 KiB", "100 B", f"2 {updates}", "1,500"],
        ["2 KiB", "4 KiB", "0", "1 of unknown size", f"1 {updates}", "1,400"],
    ]
    both = "CPU:0 CPU:1"
    [embedding, kernel] = placement_table.variables_grid(found).lines
    assert embedding[:4] == ["embedding", both, "4 KiB", f"8 KiB on {both}"]
    assert embedding[4].startswith("rows, 100 B + 1 of") and embedding[5] == both
    assert kernel[1:4] == ["CPU:0", "1 KiB", "2 KiB on CPU:0"]


def test_a_variable_in_parts_has_each_towers_gradient_once():
    gradients = [(0, "dense", CPU_0, 2048), (1, "dense", CPU_1, 2048)]
    parts = [
        variable("kernel", None, device, 1024, gradients, slots=0)
        for device in (CPU_0, CPU_1)
    ]
    [line] = placement_table.variables_grid(graph(parts)).lines
    both = "CPU:0 CPU:1"
    assert line == ["kernel", both, "2 KiB", "none", f"dense, 4 KiB on {both}", both]
    lines = placement_table.devices_grid(graph(parts)).lines
    assert [line[3] for line in lines] == ["2 KiB", "2 KiB"]


def test_copies_are_told_by_direction_with_the_largest():
    largest = [{"name": f"t{n}", "bytes": 1000 - n} for n in range(5)]
    there = {"from": CPU_0, "to": CPU_1, "pairs": 7, "bytes": 4990}
    back = {"from": CPU_1, "to": CPU_0, "pairs": 1, "bytes": 0}
    copies = [
        {**there, "of_unknown_size": 2, "largest": largest},
        {**back, "of_unknown_size": 0, "largest": []},
    ]
    [first, second] = placement_table.copies_grid(graph([], copies)).lines
    assert first[:4] == ["CPU:0", "CPU:1", "7", "4.87 KiB + 2 of unknown size"]
    assert first[4].split(", ") == ["t0 1000 B", "t1 999 B", "t2 998 B"]
    assert second == ["CPU:1", "CPU:0", "1", "0", ""]


def test_slices_of_a_batch_are_told_as_predicted_and_as_counted():
    part = {"name": "ids", "bytes": 15360, "read": "lookup"}
    moves = [
        {"from": CPU_0, "to": CPU_1, "predicted": 15360, "counted": 15360},
        {"from": CPU_1, "to": CPU_0, "predicted": None, "counted": 0},
    ]
    traced = dataclasses.replace(
        graph([]),
        slicing=build(
            Slicing,
            {"on": "device", "parts": [part, {**part, "bytes": None}], "moves": moves},
        ),
    )
    section = placement_table.section(
        "run", dataclasses.replace(make_record(), graph=traced), variables=False
    )
    (note,) = [note for note in section.notes if note.kind == "slicing"]
    assert note.values["parts"] == [
        "ids 15,360 B (lookup)",
        "ids of varying size (lookup)",
    ]
    assert section.grids[-1].lines == [
        ["CPU:0", "CPU:1", "15,360 B", "15,360 B"],
        ["CPU:1", "CPU:0", "of varying size", "0 B"],
    ]


@pytest.mark.parametrize(
    "by_type, kind",
    [
        ({"MatMul": 3}, "nothing-sent"),
        ({"CollectiveReduceV2": 4, "_NcclReduceSend": 2}, "collectives-not-counted"),
    ],
)
def test_what_collectives_exchange_is_no_send(by_type, kind):
    run = dataclasses.replace(make_record(), graph=graph([], by_type=by_type))
    assert [note.kind for note in placement_table.section("run", run).notes] == [kind]
