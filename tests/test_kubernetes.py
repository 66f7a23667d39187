"""The manifests of docs/kubernetes: what they ask for agrees with itself and, where a validator is, with the schemas.

The validator: pip install kubernetes-validate.
"""

from __future__ import annotations

import re

import pytest

from rnn_scaling.cluster import launch
from rnn_scaling.settings import conflicts
from tests.support.paths import ROOT

MANIFESTS = sorted((ROOT / "docs" / "kubernetes").glob("*.yaml"))
OLDEST, NEWEST = (
    "1.27",
    None,
)  # an Indexed Job's pods have stable names since 1.24; NEWEST: what the validator knows


def values(text, name):
    """Of every line `name: value`."""
    return re.findall(rf"^ *(?:- )?{name}: ([^#\n]*?) *(?:#.*)?$", text, re.MULTILINE)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_numbers_and_names_agree(path, tmp_path):
    text = path.read_text()
    assert path.relative_to(ROOT).as_posix() in text, "it says how it is applied"
    flags = [
        flag.replace("/results", str(tmp_path))
        for flag in re.findall(r"^ +- (--\S+)$", text, re.MULTILINE)
    ]
    (size,) = re.findall(r'name: RNN_SCALING_SIZE\n +value: "(\d+)"', text)
    (service,) = re.findall(r"name: RNN_SCALING_SERVICE\n +value: (\S+)", text)
    assert values(text, "completions") == values(text, "parallelism") == [size]
    assert values(text, "subdomain") == [service] and service in values(text, "name")
    environment = {
        "JOB_COMPLETION_INDEX": "1",
        "RNN_SCALING_SIZE": size,
        "RNN_SCALING_SERVICE": service,
    }
    told = launch.of(environment, host_name=f"{service}-1")
    assert (told.rank, told.size, told.meeting) == (
        1,
        int(size),
        f"{service}-0.{service}:{launch.KUBERNETES_PORT}",
    )
    (servers,) = [
        flag.removeprefix("--num_ps=") for flag in flags if flag.startswith("--num_ps=")
    ] or ["0"]
    _, config = conflicts.checked([*flags, f"--num_workers={int(size) - int(servers)}"])
    assert config.num_processes == int(size)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_they_follow_the_schemas(path, version):
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    import yaml  # the validator's

    documents = list(yaml.safe_load_all(path.read_text()))
    assert [document["kind"] for document in documents] == [
        "Service",
        "Job",
        "NetworkPolicy",
    ]
    for document in documents:
        validator.validate(document, version or validator.latest_version(), strict=True)
