"""What a file that is not safetensors really is, told by its first bytes.

The reference parser calls all of these "header too large"; a person wants to hear that the git-lfs
pointer was never resolved. Only asked once a header has been refused: it never decides about a good
file.
"""

import re
from typing import Final

SNIFF_BYTES: Final = 512

_MAGICS: Final = (
    (b"PK\x03\x04", "a zip archive, as torch.save writes (.pt, .bin)"),
    (b"version https://git-lfs", "a git-lfs pointer whose file was never fetched"),
    (b"GGUF", "a GGUF file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x93NUMPY", "a NumPy file"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_HTML = re.compile(rb"\s*<(?:!doctype html|html|\?xml)", re.IGNORECASE)


def foreign_kind(start: bytes) -> str:
    """Name the kind of file that begins with these bytes; empty when it is none that we know."""
    if start and not start.strip(b"\0"):
        return "zeros (preallocated, or a download that was interrupted)"
    if _PICKLE.match(start):
        return "a pickle"
    if _HTML.match(start):
        return "an HTML or XML page (an error page of a download?)"
    return next((kind for magic, kind in _MAGICS if start.startswith(magic)), "")
