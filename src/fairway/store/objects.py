"""Objects in an S3 store, by bucket and key: what files and folders do not have is a PUT that refuses to replace.

Two libraries talk to the store. delta-rs and `obstore` are the same Rust client (`object_store`), which knows
conditional PUTs and listing from an offset; Arrow's own client reads and writes Parquet. All three take credentials and
endpoint from the environment:

    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN     or what the machine's role gives
    AWS_REGION                                                      us-east-1 if not set
    AWS_ENDPOINT_URL                                                of a store that is not Amazon's
    AWS_ALLOW_HTTP=true                                             for an endpoint without TLS
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import S3Store

REGION = "us-east-1"
RETRY_S = 30
"""How long a request is tried again before it counts as failed; callers that can wait try again themselves."""


@cache
def bucket_store(bucket: str) -> S3Store:
    """Return the client of a bucket; it keeps connections."""
    from obstore.store import S3Store

    return S3Store(bucket, retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=RETRY_S)})


@cache
def arrow_filesystem() -> Any:
    """Return Arrow's file system for the store."""
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION
    if endpoint is None:
        return fs.S3FileSystem(region=region)
    scheme, _, address = endpoint.rpartition("://")
    return fs.S3FileSystem(region=region, scheme=scheme or "https", endpoint_override=address.rstrip("/"))


def forget() -> None:
    """Drop the clients, so that the next ones are made from the environment as it is then."""
    bucket_store.cache_clear()
    arrow_filesystem.cache_clear()


_MEANT = (
    ("169.254.169.254", "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    (
        "status code: 403",
        "the store refuses this (403): check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what they permit",
    ),
    ("status code: 404", "there is no such bucket: make it, or name another"),
    ("HTTP error", "the store at {endpoint} does not answer: check AWS_ENDPOINT_URL"),
)
"""What the client says, by a part of it, in the words of whoever must mend it. The first is where a machine of Amazon's
has credentials; elsewhere it means that nobody has given any."""


_STEP = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")
"""What delta-rs has between a cause and its own cause."""


def sentence(error: Exception) -> str:
    """Return what an error of one of the clients means, in one line."""
    said = _STEP.sub(": ", str(error)).strip()
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "Amazon")
    return next((meant.format(endpoint=endpoint) for part, meant in _MEANT if part in said), said.splitlines()[0])


@contextmanager
def _as_os_errors(what: str) -> Iterator[None]:
    """Raise `OSError`, in one line, for whatever the client complains about; a missing object already is one."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(errno.EEXIST, "there is an object of that name already", what) from error
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", what) from error
    except BaseError as error:
        raise OSError(errno.EIO, sentence(error), what) from error


def put_new(bucket: str, key: str, content: bytes | Path) -> None:
    """Store an object in one PUT, on condition that there is none of that name; raise `FileExistsError`."""
    import obstore

    with _as_os_errors(f"s3://{bucket}/{key}"):
        obstore.put(bucket_store(bucket), key, content, mode="create", use_multipart=False)


def names(bucket: str, key: str, after: str = "") -> list[str]:
    """List what lies directly below a key, in order; with `after`, only objects behind that name, asked for as such."""
    import obstore

    with _as_os_errors(f"s3://{bucket}/{key}"):
        if after:
            listed = obstore.list(bucket_store(bucket), key, offset=f"{key}/{after}")
            paths = [str(one["path"])[len(key) + 1 :] for chunk in listed for one in chunk]
            return sorted(path for path in paths if "/" not in path)
        found = obstore.list_with_delimiter(bucket_store(bucket), key)
    paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
    return sorted(path.rpartition("/")[2] for path in paths)


def size_and_time(bucket: str, key: str) -> tuple[int, float]:
    """Return the size of an object and when it was stored; raise `FileNotFoundError`."""
    import obstore

    with _as_os_errors(f"s3://{bucket}/{key}"):
        found = obstore.head(bucket_store(bucket), key)
    return found["size"], found["last_modified"].timestamp()


def read(bucket: str, key: str) -> bytes:
    """Return the bytes of an object; raise `FileNotFoundError`."""
    import obstore

    with _as_os_errors(f"s3://{bucket}/{key}"):
        return bytes(obstore.get(bucket_store(bucket), key).bytes())


def remove(bucket: str, key: str) -> None:
    """Remove an object that need not be there."""
    import obstore

    with _as_os_errors(f"s3://{bucket}/{key}"):
        obstore.delete(bucket_store(bucket), key)
