"""Which files are images and which are ignored, by name."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

__all__ = ["IMAGE_SUFFIXES", "count_unread", "is_ignored", "is_image"]

IMAGE_SUFFIXES = frozenset(
    {
        ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif",
        ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".avif", ".tga", ".pcx",
    }
)  # fmt: skip
"""Extensions of images, in lower case."""

_SYSTEM_NAMES = frozenset(
    {
        "thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini", "$recycle.bin", "system volume information",
        "__macosx", "icon\r", "network trash folder", "temporary items",
        "lost+found",
        "@eadir", "@sharebin", "@recycle", "@recently-snapshot", "#recycle", "#snapshot", "~snapshot",
    }
)  # fmt: skip
"""Files and folders that Windows, macOS, Linux and network storage create, in lower case."""


def is_ignored(name: str) -> bool:
    """Returns whether a file or folder is hidden or belongs to the system, such as thumbnails or a recycle bin."""
    return name.startswith(".") or name.lower() in _SYSTEM_NAMES


def is_image(name: str) -> bool:
    """Returns whether a file is an image, by its extension."""
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def count_unread(files: Sequence[str]) -> str:
    """Counts files that are not read, such as `3 files are not read: 2 .heic, 1 .txt`, and says what to do."""
    counts = Counter(Path(file).suffix.lower() or "without an extension" for file in files)
    kinds = ", ".join(f"{count:,} {extension}" for extension, count in counts.most_common(5))
    more = f" and {len(counts) - 5} other kinds" if len(counts) > 5 else ""
    are = "file is" if len(files) == 1 else "files are"
    return f"{len(files):,} {are} not read: {kinds}{more} (convert images of such kinds, for example to PNG or JPEG)"
