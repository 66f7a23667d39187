"""Facts about commits from git, which are unknown without it."""

import pytest

from rnn_scaling.system.machine import commits
from tests.support import histories


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commits.count_commits.cache_clear()


def test_order_is_that_of_history_not_of_dates(tmp_path):
    hashes = histories.repository(tmp_path, 4)
    known = commits.find([*reversed(hashes), "0" * 40, "-n", "HEAD"])
    assert sorted(known, key=lambda name: known[name].place) == hashes
    assert known[hashes[0]].date == "2033-05-18T03:33:20Z"
    assert known[hashes[3]].subject == "change 3"
    assert commits.count_commits(hashes[0], hashes[3]) == 3
    assert commits.count_commits("0" * 40, hashes[3]) is None
    assert commits.resolve("HEAD") == hashes[3]
    assert commits.resolve("no-such-branch") is None


def test_nothing_is_known_without_git(tmp_path, monkeypatch):
    hashes = histories.repository(tmp_path, 1)
    monkeypatch.setenv("PATH", "")
    assert commits.find(hashes) == {} and commits.find_commit_page() == ""
    assert commits.count_commits(hashes[0], hashes[0]) is None
    assert commits.resolve("HEAD") is None


@pytest.mark.parametrize(
    "remote, page",
    [
        ("git@github.com:owner/name.git", "https://github.com/owner/name/commit/"),
        (
            "https://user:secret@gitlab.example.org/group/sub/name",
            "https://gitlab.example.org/group/sub/name/-/commit/",
        ),
        (
            "ssh://git@github.com:22/owner/name.git",
            "https://github.com/owner/name/commit/",
        ),
        ("/srv/git/github", ""),
    ],
)
def test_address_of_a_commit(remote, page, tmp_path):
    histories.repository(tmp_path, 1)
    histories.run_git(tmp_path, "remote", "add", "origin", remote)
    assert commits.find_commit_page() == page
