"""What keeps a gateway from starting, each said in one sentence with its remedy.

FairwayError
└── GatewayError
    ├── ExtraMissing        a package of the extra `gateway` is not installed
    ├── LakeUnusable        the lake's folder cannot be written, or holds something else
    ├── JournalInUse        another process has this journal
    ├── JournalTooNew       a newer Fairway wrote this journal
    ├── JournalFailed       the disk under the journal can no longer be trusted
    ├── WorkersDiffer       the journals belong to another number of workers
    └── WorkerFailed        a worker could not start; it has said why
"""

from __future__ import annotations

from fairway.core.errors import FairwayError


class GatewayError(FairwayError):
    """A gateway cannot start or go on."""


class ExtraMissing(GatewayError):
    """A package of the extra `gateway` is not installed."""


class LakeUnusable(GatewayError):
    """The lake's folder cannot be written, or holds something else."""


class JournalInUse(GatewayError):
    """Another process has this journal."""


class JournalTooNew(GatewayError):
    """A newer Fairway wrote this journal."""


class JournalFailed(GatewayError):
    """The disk under the journal can no longer be trusted."""


class WorkersDiffer(GatewayError):
    """The journals belong to another number of workers."""


class WorkerFailed(GatewayError):
    """A worker could not start."""
