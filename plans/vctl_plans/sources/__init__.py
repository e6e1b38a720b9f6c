"""Sources: the places that artifacts are read from, and pushed to.

    with connect("https://models.example/v8") as source:
        manifest = source.manifest(root=root)     None where there is none
        source.files()                            what is there
        source.read(file, begin, end)             its bytes
        source.write(path, content, size=size)    for a push; the manifest last

    pinned("hf://org/repo") -> "hf://org/repo@<commit>"

One module a kind, each imported where it is used, and a third-party library only there. Whatever
such a library raises becomes an `ArtifactError` here: `SourceError` where trying again may help,
`SourceMissing`, `SourceRefused` and `NotAllowed` where it will not, `FileChanged` for a source that
does not hold still.
"""

from vctl_plans.errors import NotAllowed, PlanError
from vctl_plans.location import checked

from .credentials import Credentials, TokenFile, from_environment, netrc_of, token_file
from .port import CHUNK_BYTES, MAX_MANIFEST_BYTES, Entry, Source

__all__ = [
    "CHUNK_BYTES",
    "MAX_MANIFEST_BYTES",
    "Credentials",
    "Entry",
    "Source",
    "TokenFile",
    "connect",
    "from_environment",
    "netrc_of",
    "pinned",
    "token_file",
]


def connect(uri: str, credentials: Credentials | None = None) -> Source:
    """Return the source at *uri*; nothing is asked of it yet.

    Args:
        uri: See `vctl_plans.location`.
        credentials: For web servers; none when None.

    Raises:
        NotAllowed: It is no source, or a library that it needs is not installed.
        SourceRefused: A credential cannot be read.
    """
    try:
        scheme = checked(uri).scheme
    except PlanError as cause:
        raise NotAllowed(cause.message, hint=cause.hint) from cause
    if scheme == "file":
        from .file import FileSource  # noqa: PLC0415  each kind where it is used

        return FileSource(uri)
    if scheme == "s3":
        from .s3 import S3Source  # noqa: PLC0415  boto3 is slow to import

        return S3Source(uri)
    if scheme == "hf":
        from .hub import HubSource  # noqa: PLC0415  as is huggingface_hub

        return HubSource(uri)
    from .http import HttpSource  # noqa: PLC0415  httpx is slow to import

    return HttpSource(uri, credentials or Credentials())


def pinned(uri: str) -> str:
    """Return *uri* as it names the same bytes for ever, as far as its kind can say that.

    An `hf://` URI gets the commit that its revision is now; all others are returned as they are.

    Raises:
        ArtifactError: The Hub does not tell.
    """
    if not uri.startswith("hf://"):
        return uri
    from .hub import HubSource  # noqa: PLC0415  huggingface_hub is slow to import

    with connect(uri) as source:
        return source.pinned() if isinstance(source, HubSource) else uri
