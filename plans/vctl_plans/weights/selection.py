"""Which files of a directory are the artifact.

The rule belongs to the format: it is fixed per kind, so that two people who scan one directory get
one root. What is not kept is listed with its reason, never dropped silently; weights are never
among what is left out quietly: those that can't be told are refused.

    adapter   adapter_config.json, adapter_model.safetensors, tokenizer and chat-template files
    model     *.safetensors of the top folder, their index, configuration, tokenizer and
              chat-template files
    plain     every file, folders included, whatever its bytes: a prompt or an index, which the
              application reads, and no engine as weights

In no kind: names that begin with a dot, `__pycache__`, manifests.

A pipeline of several models (diffusers: weights only in folders, `unet/`, `vae/`) is refused rather
than guessed at: its models may use one tensor name twice, so they have no content root together.
Each of its folders is a model; kind plain takes the whole as bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, Protocol

from vctl_plans.errors import ArtifactError, NotAllowed
from vctl_plans.phase import Component

from .files import Listed
from .safetensors import SUFFIX

Kind = Literal["adapter", "model", "plain"]

MANIFEST_NAME: Final = "vctl.manifest.json"
MANIFEST_SUFFIX: Final = f".{MANIFEST_NAME}"
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
SHARD_INDEX: Final = "model.safetensors.index.json"

KIND_OF: Final[dict[Component, Kind]] = {
    Component.WEIGHTS: "model",
    Component.ADAPTER: "adapter",
    Component.PROMPT: "plain",
    Component.INDEX: "plain",
}
"""What each component must be: never told from its files, or two machines could differ in it."""

_CHAT_TEMPLATES: Final = "additional_chat_templates"
_MANIFESTS = (MANIFEST_NAME, f"*{MANIFEST_SUFFIX}")
_TOKENIZER = (
    "tokenizer*.json",
    "tokenizer.model*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tekken.json",
    "*.tiktoken",
    "chat_template.json",
    "*.jinja",
)
_OWN: Final[dict[Kind, tuple[str, ...]]] = {
    "adapter": (ADAPTER_CONFIG, ADAPTER_WEIGHTS),
    "model": (
        "config.json",
        "params.json",
        "*_config.json",
        "modules.json",
        f"*{SUFFIX}",
        SHARD_INDEX,
    ),
}
_PICKLE: Final = "a pickle; never served"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
_TRAINING = (
    "training_args.bin",
    "optimizer*",
    "scheduler.*",
    "rng_state*",
    "scaler.pt",
    "trainer_state.json",
    "*.log",
    "events.out.tfevents*",
)


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a source is the artifact.

    Args:
        kind: What the source is.
        files: Paths from the source, with ``/``, ordered by their UTF-8 bytes.
        left_out: (path, reason), in the same order; a folder's path ends with ``/``.
    """

    kind: Kind
    files: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


class Tree(Protocol):
    """A directory, or one file, of which only the names are looked at."""

    @property
    def single(self) -> str:
        """The one file that is meant; empty for the whole directory."""

    def display(self, path: str) -> str:
        """Write a path for errors."""

    def folder(self, path: str) -> list[Listed]:
        """List a folder, by name; empty for the directory itself."""


class _Listing:
    """A directory that is known by its files' paths alone."""

    single = ""

    def __init__(self, paths: Iterable[str], label: str) -> None:
        self._label = label
        self._folders: dict[str, dict[str, Listed]] = {"": {}}
        for path in paths:
            self._add(path, is_folder=False)

    def display(self, path: str) -> str:
        shown = f"{self._label}: {path}" if path else self._label
        return shown if shown.isprintable() else ascii(shown)

    def folder(self, path: str) -> list[Listed]:
        return sorted(self._folders[path].values())

    def _add(self, path: str, *, is_folder: bool) -> None:
        above, _, name = path.rpartition("/")
        if above not in self._folders:
            self._folders[above] = {}
            self._add(above, is_folder=True)
        found = self._folders[above].setdefault(name, Listed(name, is_folder))
        if found.is_folder != is_folder:
            raise NotAllowed(f"{self.display(path)}: is a file and a folder")


def select_paths(paths: Iterable[str], kind: Kind, *, label: str) -> Selection:
    """Decide which files of a listing belong; see `select`.

    Args:
        paths: The files, with ``/``; each a plain path.
        kind: What it must be.
        label: How errors name it.
    """
    return select(_Listing(paths, label), kind)


def select(source: Tree, kind: Kind | None) -> Selection:
    """Decide which files belong.

    Args:
        source: A directory or one file.
        kind: What it must be; told from its files when None.

    Raises:
        NotAllowed: Weights that are not safetensors, links, special files, names that can't be
            kept, files that the kind needs and that are absent, or nothing to keep.
    """
    if source.single:
        return _single(source, kind)
    top = source.folder("")
    is_told = kind is None
    kind = kind or _told(source, {entry.name for entry in top if not entry.is_folder})
    files: list[str] = []
    left_out: list[tuple[str, str]] = []
    for path, is_folder, reason in _walk(source, kind, top):
        if reason:
            shown = path.encode(errors="backslashreplace").decode()
            left_out.append((f"{shown}/" if is_folder else shown, reason))
        else:
            files.append(path)
    if is_told and kind == "plain":
        _refuse_pipeline(source, files)
    _check_complete(source, kind, files, sorted(p for p, why in left_out if why == _PICKLE))
    return Selection(kind, tuple(sorted(files, key=str.encode)), tuple(sorted(left_out)))


def unsafe_path(path: str) -> str:
    """Say why a relative path may not be kept; empty when it may."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if not path.isprintable():
        return "holds a character that can't be shown"
    if "\\" in path or ":" in path:
        return "holds a backslash or a colon"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "is not a plain path below the directory"
    return ""


def _single(source: Tree, kind: Kind | None) -> Selection:
    name = source.single
    _check_path(source, name)
    own: Kind = "model" if name.endswith(SUFFIX) else "plain"
    if kind == "adapter" or (kind == "model" and own == "plain"):
        raise NotAllowed(f"{source.display(name)}: is one file, not {_article(kind)}")
    if kind is None and _matches(name, _PICKLES):
        raise _pickled(source.display(name))
    return Selection(kind or own, (name,), ())


def _told(source: Tree, names: set[str]) -> Kind:
    if names & {ADAPTER_CONFIG, ADAPTER_WEIGHTS}:
        return "adapter"
    if SHARD_INDEX in names or any(name.endswith(SUFFIX) for name in names):
        return "model"
    pickles = sorted(n for n in names if _matches(n, _PICKLES) and not _matches(n, _TRAINING))
    if pickles:
        raise _pickled(source.display(pickles[0]))
    return "plain"


def _walk(source: Tree, kind: Kind, top: list[Listed]) -> Iterable[tuple[str, bool, str]]:
    """Yield (path, is a folder, why it is left out) for each file, and each folder not entered."""
    folders: list[tuple[str, list[Listed]]] = [("", top)]
    while folders:
        folder, entries = folders.pop()
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            reason = _left_out(kind, path, entry)
            if path == MANIFEST_NAME and not entry.is_folder:
                continue  # vctl's own: a manifest that lists itself would not be the same again
            if not reason:
                _check_path(source, path)
            if entry.is_folder and not reason:
                folders.append((path, source.folder(path)))
            else:
                _refuse_stray_weights(source, kind, path, entry=entry, reason=reason)
                yield path, entry.is_folder, reason


def _left_out(kind: Kind, path: str, entry: Listed) -> str:
    """Say why a file or folder does not belong; empty when it does."""
    name = entry.name
    if name.startswith(".") or name == "__pycache__":
        return "hidden or generated"
    if _matches(name, _MANIFESTS):
        return "a manifest"
    if kind == "plain":
        return ""
    if entry.is_folder:
        return "" if path == _CHAT_TEMPLATES else "a folder"
    reasons = (
        ("the trainer's own", _TRAINING),
        (_PICKLE, _PICKLES),
        ("", _TOKENIZER),
        ("", () if "/" in path else _OWN[kind]),
    )
    return next((why for why, names in reasons if _matches(name, names)), "not needed to serve")


def _refuse_stray_weights(
    source: Tree, kind: Kind, path: str, *, entry: Listed, reason: str
) -> None:
    if kind != "plain" and entry.is_folder and path.endswith(SUFFIX):
        raise NotAllowed(f"{source.display(path)}: is a folder, named as weights")
    if reason and kind == "adapter" and "/" not in path and path.endswith(SUFFIX):
        rule = f"weights that do not belong to an adapter, beside {ADAPTER_WEIGHTS}"
        raise NotAllowed(f"{source.display(path)}: {rule}", hint="move the file elsewhere")


def _refuse_pipeline(source: Tree, files: list[str]) -> None:
    inner = [path for path in files if path.endswith(SUFFIX)]
    if inner:
        rule = "weights in a folder, none beside it: a pipeline of several models is no artifact"
        hint = "name one of its folders, or say kind plain to take every file as it is"
        raise NotAllowed(f"{source.display(min(inner))}: {rule}", hint=hint)


def _check_complete(source: Tree, kind: Kind, files: list[str], pickles: list[str]) -> None:
    needed: tuple[str, ...] = ()
    if kind == "adapter":
        needed = (ADAPTER_CONFIG, ADAPTER_WEIGHTS)
    elif kind == "model" and not any(file.endswith(SUFFIX) for file in files):
        needed = (f"*{SUFFIX}",)
    absent = [name for name in needed if name not in files]
    if absent:
        rule = f"{absent[0]} is missing: {_article(kind)} needs it"
        hint = "pickled weights are refused: save them as safetensors"
        if absent[0].endswith(SUFFIX) and pickles:
            rule += f", and {pickles[0]} is a pickle, which is never served"
        raise NotAllowed(
            f"{source.display('')}: {rule}", hint=hint if absent[0].endswith(SUFFIX) else ""
        )
    if not files:
        raise NotAllowed(f"{source.display('')}: holds no file to serve")


def _check_path(source: Tree, path: str) -> None:
    rule = unsafe_path(path)
    if rule:
        raise NotAllowed(f"{source.display(path)}: the path {rule}")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _article(kind: Kind) -> str:
    return f"an {kind}" if kind == "adapter" else f"a {kind}"


def _pickled(path: str) -> ArtifactError:
    return NotAllowed(
        f"{path}: pickled weights are refused, and no safetensors are here",
        hint="save them as safetensors; if this is no model, say kind=plain",
    )
