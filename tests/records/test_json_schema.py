"""The published JSON schema accepts every record that the suite reads."""

import copy
import json

import jsonschema
import pytest

from rnn_scaling.records import json_schema, record
from tests.support.paths import ROOT
from tests.support.records import make_record

FILES = sorted((ROOT / "docs/results").glob("**/*.json"))
RECORDS = [path for path in FILES if record.find(path) is not None]
VALIDATOR = jsonschema.Draft202012Validator(json_schema.build())


def test_the_published_schema_is_the_one_of_the_types():
    jsonschema.Draft202012Validator.check_schema(json_schema.build())
    published = (ROOT / "docs/run.schema.json").read_text()
    assert json_schema.format_schema() == published, (
        "python -m rnn_scaling.records.json_schema"
    )


@pytest.mark.parametrize("path", RECORDS[::12], ids=lambda path: path.stem)
def test_records_fit_the_schema(path):
    VALIDATOR.validate(json.loads(path.read_text()))


@pytest.mark.parametrize(
    "path, value",
    [
        (("status",), "fine"),
        (("schema",), "rnn_scaling.run/0"),
        (("config",), None),
        (("batches", "seconds"), [-1.0]),
        (("throughput", "items"), "many"),
        (("environment", "load"), {"others": 0.5}),
        (("unit",), 3),
        (("flops_per_item",), 0),
    ],
)
def test_a_record_that_is_refused_does_not_fit_the_schema(path, value):
    fields = json.loads(make_record().to_json())
    VALIDATOR.validate(fields)
    broken = copy.deepcopy(fields)
    part = broken
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(record.RecordError):
        record.from_json(json.dumps(broken))
    assert not VALIDATOR.is_valid(broken)
