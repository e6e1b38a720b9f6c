"""What an HTTP status means: whether trying again may help, as the type of the error."""

from vctl_plans.errors import (
    ArtifactError,
    FileChanged,
    SourceError,
    SourceMissing,
    SourceRefused,
)

MISSING = {404, 410}
_TEMPORARY = {408, 421, 425, 429}  # RFC 9110, 8470, 6585: ask again later
_CHANGED = {412, 416}  # the ETag, or the size, is another now
_SERVER_ERROR = 500


def kind_of(status: int) -> type[ArtifactError]:
    """Return the error that a status other than success means."""
    if status in MISSING:
        return SourceMissing
    if status in _CHANGED:
        return FileChanged
    if status >= _SERVER_ERROR or status in _TEMPORARY:
        return SourceError
    return SourceRefused
