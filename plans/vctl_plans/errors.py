"""Every error that vctl raises on purpose.

    VctlError
    +- PlanError                a document that does not validate
    +- TransitionError          not allowed in this phase
    +- StoreError
    |  +- StoreUnavailable      certainly not applied, or a read
    |  +- Conflict              a transaction's comparison failed
    |  +- NotFound
    |  +- LeaseLost
    |  +- Indeterminate         a write that may or may not have been applied
    |  +- Rejected              the server (or our own limit check) said no
    |  +- ForkedProcess
    |  +- RestoredBackup        another cluster, or one whose revision went back
    +- ArtifactError
    |  +- RootMismatch
    |  +- FileChanged           it did not hold still: trying again later may help
    |  +- MalformedWeights
    |  +- NotAllowed
    |  +- NoRoom                on this disk: trying again helps once something went
    |  +- SourceError           a source that cannot be read, or written, now
    |     +- SourceMissing      it answers, and holds no such thing
    |     +- SourceRefused      it answers, and does not let us
    +- EngineError
    |  +- TemporaryEngineError
    |  +- PermanentEngineError
    |     +- SuspectEngineError
    +- SettingsError            a configuration that does not validate
    +- InvariantError           a bug in vctl

A foreign exception never crosses a port: it is raised again as one of these, `from` its cause.
Whether to retry is decided by the type, never by the text.
"""


class VctlError(Exception):
    """A message for a person, and the next thing to try.

    Args:
        message: What was wrong, and where.
        hint: What to do next; empty when there is nothing useful to say.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class PlanError(VctlError):
    """A plan (or another document) that does not validate.

    Args:
        path: The field, as in ``steps[2].weight``; empty for the document itself.
    """

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message, hint=hint)
        self.path = path


class SettingsError(VctlError):
    """A configuration with problems; all of them are named at once."""

    def __init__(self, problems: list[str], *, hint: str = "") -> None:
        super().__init__("; ".join(problems), hint=hint)
        self.problems = problems


class TransitionError(VctlError):
    """An event that the present phase does not allow; nothing changed."""


class StoreError(VctlError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):  # noqa: N818  the design's word
    """The operation was certainly not applied, or was a read."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Conflict(StoreError):  # noqa: N818
    """Something read before has changed: read again and decide again."""


class NotFound(StoreError):  # noqa: N818
    """No such key."""


class LeaseLost(StoreError):  # noqa: N818
    """The lease is gone, or could be gone as far as others can see."""


class Indeterminate(StoreError):  # noqa: N818
    """A write whose outcome is unknown: read again, find one's own id, never repeat blindly."""


class Rejected(StoreError):  # noqa: N818
    """The server, or our own limit check before it, refused.

    Args:
        code: gRPC's status name, for example ``PERMISSION_DENIED``.
    """

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class ForkedProcess(StoreError):  # noqa: N818
    """A connection made before a fork was used after it; gRPC would hang."""


class RestoredBackup(StoreError):  # noqa: N818
    """The store is not the one that was known, or its revision went back: advance nothing."""


class ArtifactError(VctlError):
    """Bytes that may not be served."""


class RootMismatch(ArtifactError):  # noqa: N818
    """The bytes are not those that the root names.

    Args:
        tensors: The tensors (or files) that differ, where a manifest tells.
    """

    def __init__(self, message: str, *, tensors: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.tensors = tensors


class MalformedWeights(ArtifactError):  # noqa: N818
    """A file that breaks a rule of its format.

    Args:
        path: The file.
        offset: The byte at which the rule is broken, from the file's start.
    """

    def __init__(self, message: str, *, path: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(f"{path}: byte {offset}: {message}", hint=hint)
        self.path = path
        self.offset = offset


class MalformedPrompt(ArtifactError):  # noqa: N818
    """A prompt whose `prompt.yaml` cannot be applied."""


class FileChanged(ArtifactError):  # noqa: N818
    """A file or folder that was written, replaced or removed while it was read.

    Nothing is known of its bytes; reading it again, once its writer is done, may succeed.
    """


class NotAllowed(ArtifactError):  # noqa: N818
    """A file of a kind, or in a place, that is refused."""


class NoRoom(ArtifactError):  # noqa: N818
    """The disk is full, or would be: trying again helps once something has gone."""


class SourceError(ArtifactError):
    """A source that cannot be read, or written, now; trying again later may help."""


class SourceMissing(SourceError):  # noqa: N818
    """The source answers that there is no such thing; trying again will not help."""


class SourceRefused(SourceError):  # noqa: N818
    """The source answers, and refuses: credentials, or a request that it will never serve."""


class EngineError(VctlError):
    """The engine did not do what was asked."""


class TemporaryEngineError(EngineError):
    """Trying again later may help."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class PermanentEngineError(EngineError):
    """Trying again will not help."""


class SuspectEngineError(PermanentEngineError):
    """Nobody can know what the engine would answer: it must serve nothing until it is restarted."""


class InvariantError(VctlError):
    """A bug in vctl; never caught but at the top."""
