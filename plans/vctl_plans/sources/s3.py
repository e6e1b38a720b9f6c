"""`s3://bucket/prefix`: Amazon's S3, and whatever speaks as it does; needs the extra `s3`.

Region, endpoint and keys are boto3's own to find: variables (`AWS_ENDPOINT_URL_S3`,
`AWS_ACCESS_KEY_ID` ...), `~/.aws`, the machine's role. The artifact is all below the prefix; a
prefix that is itself an object is a single file.
"""

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO
from urllib.parse import unquote

from vctl_plans.errors import (
    FileChanged,
    NotAllowed,
    SourceError,
    SourceMissing,
    SourceRefused,
)
from vctl_plans.location import checked
from vctl_plans.weights.selection import MANIFEST_NAME, MANIFEST_SUFFIX

from .port import CHUNK_BYTES, MAX_MANIFEST_BYTES, Entry, Source, check_path
from .status import kind_of

try:
    import botocore.config
    import botocore.exceptions
except ImportError as cause:
    raise NotAllowed(
        "s3:// sources need boto3, which is not installed: pip install 'vctl-rollout[s3]'"
    ) from cause

_CONFIG = botocore.config.Config(
    connect_timeout=10,
    read_timeout=15,  # of one read on a socket; a read in another thread cannot be broken
    retries={"mode": "standard", "total_max_attempts": 3},
    # Servers other than Amazon's do not all know the newer checksums; the manifest is ours.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
_FORBIDDEN = 403


class S3Source(Source):
    """What is below a prefix of a bucket.

    Args:
        uri: An `s3://` URI.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        import boto3.session  # noqa: PLC0415  slow

        parts = checked(uri)
        self._bucket = parts.netloc
        self._base = unquote(parts.path).strip("/")
        self._folder = self._base
        self._seen: dict[str, str] = {}  # ETag by path
        self._is_aborted = False
        with self._asking(""):
            self._client = boto3.session.Session().client("s3", config=_CONFIG)

    def manifest_document(self) -> bytes | None:
        """See `Source.manifest_document`."""
        refused: SourceRefused | None = None
        beside = self._base + MANIFEST_SUFFIX
        for key in (self._key(self._base, MANIFEST_NAME), *([beside] if self._base else [])):
            try:
                document = self._small(key)
            except SourceMissing:
                continue
            except SourceRefused as error:  # without s3:ListBucket, what is not there is forbidden
                refused = refused or error
                continue
            if key == beside:
                self._folder = self._base.rpartition("/")[0]
            return document
        if refused:
            raise refused
        return None

    def files(self) -> tuple[Entry, ...]:
        """See `Source.files`."""
        prefix = self._key(self._base, "")
        found: list[Entry] = []
        with self._asking(self._base):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for page in pages:
                found += [
                    self._entry(prefix, each)
                    for each in page.get("Contents", ())
                    if not each["Key"].endswith("/")
                ]  # fmt: skip  a console's folder
        if not found and self._base:
            found = [self._single()]
        if not found:
            raise SourceMissing(f"{self.uri}: holds nothing")
        return tuple(sorted(found, key=lambda entry: entry.path))

    def read(self, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """See `Source.read`."""
        key = self._key(self._folder, check_path(file.path, self.uri))
        seen = self._seen.get(file.path) or file.version
        more = {"IfMatch": seen} if seen else {}
        with self._asking(key):
            answer = self._client.get_object(
                Bucket=self._bucket, Key=key, Range=f"bytes={begin}-{end - 1}", **more
            )
            self._seen[file.path] = answer["ETag"]
            self._check_size(key, answer, file.size)
            left = end - begin
            with contextlib.closing(answer["Body"]) as body:
                for piece in body.iter_chunks(CHUNK_BYTES):
                    self._check_not_aborted()
                    left -= len(piece)
                    yield piece
        if left:
            raise SourceError(f"s3://{self._bucket}/{key}: cut, {left} bytes before the end")

    def write(self, path: str, content: BinaryIO, *, size: int) -> None:  # noqa: ARG002
        """See `Source.write`; a large file goes in parts, and is there when all are."""
        key = self._key(self._base, check_path(path, self.uri))
        with self._asking(key):
            self._client.upload_fileobj(content, self._bucket, key)

    def abort(self) -> None:
        """See `Source.abort`; here a read ends at its next piece."""
        self._is_aborted = True

    def close(self) -> None:
        """See `Source.close`."""
        self._client.close()

    def _key(self, folder: str, path: str) -> str:
        return f"{folder}/{path}" if folder else path

    def _entry(self, prefix: str, found: dict[str, Any]) -> Entry:
        path = check_path(found["Key"].removeprefix(prefix), self.uri)
        return Entry(path, found["Size"], found["ETag"])

    def _single(self) -> Entry:
        with self._asking(self._base):
            found = self._client.head_object(Bucket=self._bucket, Key=self._base)
        self._folder, _, name = self._base.rpartition("/")
        return Entry(check_path(name, self.uri), found["ContentLength"], found["ETag"])

    def _small(self, key: str) -> bytes:
        with self._asking(key):
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            with contextlib.closing(answer["Body"]) as body:
                content: bytes = body.read(MAX_MANIFEST_BYTES + 1)
        if len(content) > MAX_MANIFEST_BYTES:
            raise SourceRefused(f"s3://{self._bucket}/{key}: is longer than a manifest may be")
        return content

    def _check_size(self, key: str, answer: dict[str, Any], size: int) -> None:
        said = answer.get("ContentRange", "").rpartition("/")[2]
        if said.isdecimal() and int(said) != size:
            raise FileChanged(f"s3://{self._bucket}/{key}: has {said} bytes, and not {size}")

    def _check_not_aborted(self) -> None:
        if self._is_aborted:
            raise SourceError(f"{self.uri}: ended from here")

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[None]:
        """Turn boto's errors into ours; the answer's status tells whether to try again."""
        where = f"s3://{self._bucket}/{key}"
        try:
            yield
        except botocore.exceptions.ClientError as cause:
            status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", _FORBIDDEN)
            code = cause.response.get("Error", {}).get("Code", "")
            raise kind_of(status)(f"{where}: the server answers {status} {code}") from cause
        except (
            botocore.exceptions.NoCredentialsError,
            botocore.exceptions.PartialCredentialsError,
            botocore.exceptions.CredentialRetrievalError,
            botocore.exceptions.ProfileNotFound,
            botocore.exceptions.ConfigParseError,
        ) as cause:
            raise SourceRefused(
                f"{where}: {type(cause).__name__}: no credentials for it"
            ) from cause
        except (botocore.exceptions.ParamValidationError, ValueError) as cause:
            raise SourceRefused(f"{where}: is no address: {type(cause).__name__}") from cause
        except botocore.exceptions.BotoCoreError as cause:
            raise SourceError(f"{where}: cannot be read: {type(cause).__name__}") from cause
