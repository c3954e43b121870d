"""The uploads directory: files that wait for their import, under drawn names, readable by this installation alone."""

import os
import secrets
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from django.conf import settings

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600


# What every file system takes in one name, with room to spare.
LONGEST_NAME_BYTES = 200
LONGEST_SUFFIX_BYTES = 40


def safe_name(name: str) -> str:
    """A person's name for a file as one plain component of a path, at most 200 bytes long; the suffixes are kept."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    plain = "".join(one for one in last.encode(errors="ignore").decode() if one.isprintable()).strip(". ")
    stem, dot, suffix = plain.partition(".")
    if len(f"{dot}{suffix}".encode()) > LONGEST_SUFFIX_BYTES:
        stem, dot, suffix = plain, "", ""
    room = LONGEST_NAME_BYTES - len(f"{dot}{suffix}".encode())
    return f"{stem.encode()[:room].decode(errors='ignore')}{dot}{suffix}" or "upload"


def directory() -> Path:
    path = Path(settings.UPLOADS_DIR)
    path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    return path


def keep(upload: Path) -> str:
    """Moves a file here and gives its drawn name; raises OSError where that fails."""
    name = secrets.token_hex(20)
    kept = directory() / name
    # A rename where it lies on the same disk, which is the rule; a copy elsewhere.
    shutil.move(upload, kept)
    os.chmod(kept, PRIVATE_FILE)
    return name


def path_of(name: str) -> Path:
    return directory() / name


def is_here(name: str) -> bool:
    return bool(name) and path_of(name).is_file()


def drop(*names: str) -> None:
    for name in filter(None, names):
        with suppress(FileNotFoundError):
            path_of(name).unlink()


def sweep(kept: Collection[str], *, older_than_s: float) -> list[str]:
    """Removes what nobody waits for any more: the rest of an upload or an import whose process was killed."""
    limit = time.time() - older_than_s
    old = [one for one in directory().iterdir() if one.name not in kept and one.lstat().st_mtime < limit]
    for one in old:
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)
    return [one.name for one in old]
