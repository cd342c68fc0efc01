"""A pytest plugin: an S3 server on loopback, one for each module that uses it, and a bucket for each test."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests import leaks
from tests.conftest import LeakWatch

if TYPE_CHECKING:
    import pyarrow.fs as pafs


@pytest.fixture(scope="module")
def server(leak_watch: LeakWatch) -> Iterator[str]:
    """Serve S3 from a process of its own, so that this one holds only the client's sockets."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    address = next(line for line in process.stderr if "Running on" in line).split()[-1]
    drained = threading.Thread(target=process.stderr.read)  # it logs every request
    drained.start()
    leak_watch.before = leaks.Snapshot.take()
    yield address
    process.terminate()
    process.wait()
    drained.join()
    process.stderr.close()


@pytest.fixture
def client_libraries(leak_watch: LeakWatch) -> Iterator[None]:
    """Allow what libraries for stores and tables keep as long as a process lives: event loops and threads."""
    from skate.air import _filesystems as filesystems

    yield
    filesystems._arrow_root.cache_clear()
    filesystems._from_fsspec.cache_clear()
    gc.collect()
    leak_watch.before = leaks.Snapshot.take()


@pytest.fixture
def bucket(server: str, client_libraries: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    owner = filesystem(server, allow_bucket_creation=True, allow_bucket_deletion=True)
    owner.create_dir("data")
    yield "s3://data"
    owner.delete_dir_contents("data")
    owner.delete_dir("data")


def environment(server: str) -> dict[str, str]:
    """Return the variables with which a URI is enough."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server,
    }


def filesystem(server: str, **options: bool) -> pafs.S3FileSystem:
    """Return a filesystem of the server, which needs nothing from the environment."""
    import pyarrow.fs as pafs

    return pafs.S3FileSystem(
        access_key="testing",
        secret_key="testing",
        region="us-east-1",
        endpoint_override=server,
        # No second attempts: the server is on this machine, and does not fail by chance.
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
        # On a busy machine it may be slow.
        connect_timeout=60,
        request_timeout=60,
        **options,
    )


@pytest.fixture
def store(bucket: str, server: str) -> pafs.S3FileSystem:
    return filesystem(server)
