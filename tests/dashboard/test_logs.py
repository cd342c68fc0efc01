"""Logs: their last lines, search, following, and names that must not leave their folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import skate
from skate.dashboard._logs import LONGEST_LINE, LineSplitter
from tests.dashboard.support import Page

pytestmark = pytest.mark.usefixtures("session")


@pytest.fixture
def folder() -> Path:
    return Path(skate.get_runtime_context().get_session_dir()) / "logs"


def test_lines_are_split_wherever_the_data_is_cut() -> None:
    data = "first\nzweite Zeile mit Ä\r\n\nlast".encode()
    for size in (1, 2, 3, 7, 100):
        splitter = LineSplitter()
        lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
        assert lines == ["first", "zweite Zeile mit Ä", ""]
        assert splitter.has_rest
        assert splitter.end() == "last"


def test_a_line_of_ten_megabytes_is_cut_and_says_so() -> None:
    splitter = LineSplitter()
    for _ in range(10):
        assert splitter.feed(b"x" * (1 << 20)) == []
        assert len(splitter._kept) <= 4 * LONGEST_LINE
    (line, after) = splitter.feed(b"\nafter\n")
    assert line == "x" * LONGEST_LINE + "… (cut: the line has 10,485,760 bytes)"
    assert after == "after"


def test_invalid_text_is_replaced_and_colors_are_removed() -> None:
    assert LineSplitter().feed(b"\xff\xfe \x1b[31mred\x1b[0m\n") == ["\ufffd\ufffd red"]


async def test_logs_are_listed_with_their_processes(page: Page, folder: Path) -> None:
    @skate.remote
    class Talker:
        def say(self) -> int:
            print("hello")
            return os.getpid()

    talker = Talker.remote()
    pid = skate.get(talker.say.remote())
    found = await page.eventually(
        "/state/logs", lambda data: any(file["pid"] == pid for file in data["files"])
    )
    (file,) = [file for file in found["files"] if file["pid"] == pid]
    assert file["title"] == "actor Talker"
    assert {"name", "size", "modified"} <= file.keys()
    assert any(file["title"] == "node" for file in found["files"])


async def test_the_last_lines_of_a_log_are_read(page: Page, folder: Path) -> None:
    (folder / "long.log").write_text("".join(f"line {n}\n" for n in range(100_000)))
    found = await page.get("/state/logs/long.log?tail=3")
    assert found["lines"] == ["line 99997", "line 99998", "line 99999"]
    assert found["truncated"]
    assert found["size"] == (folder / "long.log").stat().st_size
    everything = await page.get("/state/logs/long.log?tail=10000")
    assert len(everything["lines"]) == 10_000


async def test_a_log_is_searched(page: Page, folder: Path) -> None:
    (folder / "long.log").write_text("".join(f"line {n}\n" for n in range(50_000)) + "the End")
    found = await page.get("/state/logs/long.log?search=LINE 1234&tail=100")
    assert found["lines"] == ["line 1234", *(f"line 1234{n}" for n in range(10))]
    assert not found["truncated"]
    assert (await page.get("/state/logs/long.log?search=end"))["lines"] == ["the End"]


async def test_a_log_with_bad_content_is_readable(page: Page, folder: Path) -> None:
    (folder / "bad.log").write_bytes(b"x" * (10 << 20) + b"\n\xff\xfe\x00\n")
    found = await page.get("/state/logs/bad.log?tail=10")
    assert found["lines"][0].endswith("… (cut: the line has 10,485,760 bytes)")
    assert found["lines"][1] == "\ufffd\ufffd\x00"


@pytest.mark.parametrize(
    "name",
    [
        "../node.sock",
        "..%2Flock",
        "%2e%2e%2flock",
        "....//lock",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "a%00b",
        "%2e",
    ],
)
@pytest.mark.parametrize("suffix", ["", "/follow"])
async def test_a_name_cannot_leave_the_folder(page: Page, name: str, suffix: str) -> None:
    response = await page.client.get(f"/state/logs/{name}{suffix}")
    assert response.status_code == 404
    assert "root:" not in response.text


async def test_a_link_out_of_the_folder_is_not_followed(page: Page, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (folder / "link.log").symlink_to(tmp_path / "secret")
    try:
        await page.get("/state/logs/link.log", status=404)
    finally:
        (folder / "link.log").unlink()


async def test_a_log_is_followed(page: Page, folder: Path) -> None:
    path = folder / "growing.log"
    path.write_text("before\n")
    async with page.stream("/state/logs/growing.log/follow") as client:
        assert await client.next() == ("lines", {"lines": []})
        with path.open("a") as file:
            file.write("one\ntwo\npar")
        assert await client.next() == ("lines", {"lines": ["one", "two"]})
        with path.open("a") as file:
            file.write("t\n")
        assert await client.next() == ("lines", {"lines": ["part"]})
        path.unlink()
        await client.ended()


async def test_a_log_in_a_folder_has_its_path_as_name(page: Page, folder: Path) -> None:
    (folder / "serve").mkdir(exist_ok=True)
    (folder / "serve" / "app.log").write_text("served\n")
    names = [file["name"] for file in (await page.get("/state/logs"))["files"]]
    assert "serve/app.log" in names
    assert (await page.get("/state/logs/serve/app.log"))["lines"] == ["served"]
