"""`hf://org/repo@revision/folder`: the Hugging Face Hub; needs the extra `hf`.

Endpoint and token are the library's own to find (`HF_ENDPOINT`, `HF_TOKEN`, its login). A revision
is resolved to a commit once, so that one try reads one version; `pinned` says it for ever. The
library lists and resolves; bytes are read by range as from any web server, and not into its cache.
"""

import contextlib
import os
import re
from collections.abc import Generator, Iterator
from typing import BinaryIO, NoReturn
from urllib.parse import quote

from vctl_plans.errors import NotAllowed, SourceError, SourceMissing, SourceRefused
from vctl_plans.location import checked, hub_parts
from vctl_plans.weights.selection import MANIFEST_NAME, MANIFEST_SUFFIX

from .http import RangedFiles
from .port import MAX_MANIFEST_BYTES, Entry, Source, check_path
from .status import kind_of
from .web import Web

try:
    import huggingface_hub as library
    import huggingface_hub.errors as library_errors
    from huggingface_hub.hf_api import RepoFile, RepoFolder
except ImportError as cause:
    raise NotAllowed(
        "hf:// sources need huggingface_hub, which is not installed: pip install 'vctl-rollout[hf]'"
    ) from cause

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NO_STATUS = 503


class HubSource(Source):
    """A repository of the Hub, or a folder or file in one.

    Args:
        uri: An `hf://` URI.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._hub = hub_parts(checked(uri))
        self._folder = self._hub.folder
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        token = library.get_token()
        self._api = library.HfApi(endpoint=self._endpoint, token=token)
        self._web = Web(f"Bearer {token}" if token else "")
        self._files = RangedFiles(self._web)
        is_commit = _COMMIT.fullmatch(self._hub.revision)
        self._commit = self._hub.revision if is_commit else ""

    @property
    def commit(self) -> str:
        """The commit that the revision is now; asked for once."""
        if not self._commit:
            with self._asking():
                found = self._api.repo_info(
                    self._hub.repository,
                    revision=self._hub.revision or None,
                    repo_type=self._hub.kind,
                )
            self._commit = found.sha or ""
        return self._commit

    def pinned(self) -> str:
        """Return the URI with the commit in the place of the revision."""
        kind = "datasets/" if self._hub.kind == "dataset" else ""
        folder = f"/{quote(self._hub.folder)}" if self._hub.folder else ""
        return f"hf://{kind}{self._hub.repository}@{self.commit}{folder}"

    def manifest_document(self) -> bytes | None:
        """See `Source.manifest_document`."""
        base = self._hub.folder
        document = self._web.get(self._url(base, MANIFEST_NAME), limit=MAX_MANIFEST_BYTES)
        if document is None and base:
            beside = self._url("", base + MANIFEST_SUFFIX)
            document = self._web.get(beside, limit=MAX_MANIFEST_BYTES)
            if document is not None:
                self._folder = base.rpartition("/")[0]
        return document

    def files(self) -> tuple[Entry, ...]:
        """See `Source.files`."""
        base = self._hub.folder
        try:
            with self._asking():
                found = list(
                    self._api.list_repo_tree(
                        self._hub.repository,
                        path_in_repo=base or None,
                        recursive=True,
                        revision=self.commit,
                        repo_type=self._hub.kind,
                    )
                )
            self._folder = base
        except SourceMissing:
            found = self._single()
            self._folder = base.rpartition("/")[0]
        prefix = f"{self._folder}/" if self._folder else ""
        return tuple(
            Entry(check_path(each.path.removeprefix(prefix), self.uri), each.size, each.blob_id)
            for each in sorted(found, key=lambda each: each.path)
            if isinstance(each, RepoFile)
        )

    def read(self, file: Entry, begin: int, end: int) -> Generator[bytes]:
        """See `Source.read`."""
        url = self._url(self._folder, check_path(file.path, self.uri))
        return self._files.read(url, file, begin, end)

    def has_ranges(self, file: Entry) -> bool:
        """See `Source.has_ranges`."""
        return self._files.has_ranges(self._url(self._folder, check_path(file.path, self.uri)))

    def write(self, path: str, content: BinaryIO, *, size: int) -> NoReturn:  # noqa: ARG002
        """Refuse: the Hub has its own way of commits."""
        raise NotAllowed(f"{self.uri}: is not written to by vctl; use `hf upload`")

    def abort(self) -> None:
        """See `Source.abort`."""
        self._web.abort()

    def close(self) -> None:
        """See `Source.close`."""
        self._web.close()

    def _single(self) -> list[RepoFile | RepoFolder]:
        with self._asking():
            found = self._api.get_paths_info(
                self._hub.repository,
                [self._hub.folder],
                revision=self.commit,
                repo_type=self._hub.kind,
            )
        if not found:
            raise SourceMissing(f"{self.uri}: holds no such folder or file")
        return found

    def _url(self, folder: str, path: str) -> str:
        return library.hf_hub_url(
            self._hub.repository,
            f"{folder}/{path}" if folder else path,
            revision=self.commit,
            repo_type=self._hub.kind,
            endpoint=self._endpoint,
        )

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the library's errors into ours; none of its words, which may be long."""
        try:
            yield
        except library_errors.HfHubHTTPError as cause:
            status = getattr(cause.response, "status_code", _NO_STATUS)
            raise kind_of(status)(f"{self.uri}: the Hub answers {status}") from cause
        except library_errors.HFValidationError as cause:
            raise SourceRefused(f"{self.uri}: names no repository") from cause
        except Exception as cause:  # its HTTP client, and so what that raises, differs by version
            raise SourceError(f"{self.uri}: the Hub: {type(cause).__name__}") from cause
