"""An S3 server for tests and torture: SeaweedFS in a process and a folder of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

START_S = 120.0
END_S = 60.0
PORTS = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port",
    "s3.port.grpc",
)  # fmt: skip
KEY, SECRET = "key", "secret"
BUCKET = "bucket"


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables with which everything in this process and below it reaches a server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def serving(folder: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Run a server at a loopback address for the time of the block; return its endpoint."""
    ports = dict(zip(PORTS, _free_ports(host, len(PORTS)), strict=True))
    identities = folder / "identities.json"
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    identities.write_text(
        json.dumps({"identities": [{"name": "test", "credentials": credentials, "actions": ["Admin"]}]})
    )
    command = [
        str(Path(sys.executable).parent / "weed"), "server", f"-dir={folder}", f"-ip={host}",
        f"-ip.bind={host}", "-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=0", "-filer",
        f"-filer.localSocket={folder / 'filer.sock'}", "-s3", f"-s3.config={identities}", "-s3.port.iceberg=0",
        "-s3.port.lance=0", *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with open(folder / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process:
        try:
            endpoint = f"http://{host}:{ports['s3.port']}"
            _wait(process, endpoint, folder / "log")
            yield endpoint
        finally:
            process.kill()
            process.wait(END_S)


def _free_ports(host: str, count: int) -> list[int]:
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]


def _wait(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    """Wait until the server takes an object, which makes the bucket."""
    store = S3Store(
        BUCKET, endpoint=endpoint, access_key_id=KEY, secret_access_key=SECRET, region="us-east-1",
        client_options={"allow_http": True}, retry_config={"max_retries": 0},
    )  # fmt: skip
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            obstore.put(store, "up", b"")
            return
        except BaseError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.1)
