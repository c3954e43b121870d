"""The uploads directory: files that wait for their import, under drawn names, and what an import works with; readable
by this installation alone."""

import fcntl
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

from loadtests.evidence.store import write_durably

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
# In a workplace: locked while its process lives, and the digests that it is about to store.
LOCK, INTENDED = ".held", ".intended"


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


@contextmanager
def workplace(prefix: str) -> Iterator[Path]:
    """A directory of its own for one process, which the kernel lets go when that process dies, however it does."""
    place = Path(tempfile.mkdtemp(prefix=prefix, dir=directory()))
    # Locked before it has its name: whoever looks for abandoned places never finds a lock that isn't taken yet.
    drafted = place / f"{LOCK}-draft"
    with drafted.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        drafted.rename(place / LOCK)
        try:
            yield place
        finally:
            clear(place)


def clear(place: Path) -> None:
    """All of it, except where files were stored that nobody could take away again: then their digests stay."""
    for one in place.iterdir():
        if one.name in (LOCK, INTENDED):
            continue
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)
    if not (place / INTENDED).exists():
        shutil.rmtree(place, ignore_errors=True)


def abandoned() -> Iterator[Path]:
    """Workplaces whose process has died. Each is held while the caller looks at it, and gone afterwards."""
    for lock in directory().glob(f"*/{LOCK}"):
        with suppress(FileNotFoundError), lock.open("r+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield lock.parent
            shutil.rmtree(lock.parent, ignore_errors=True)


def intend(place: Path, digests: Collection[str]) -> None:
    """On the disk before any of them is: so a kill at any point leaves nothing that nobody knows of."""
    write_durably(place / INTENDED, json.dumps(sorted(digests)).encode(), PRIVATE_FILE)


def intended(place: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return [str(one) for one in json.loads((place / INTENDED).read_bytes())]
    return []


def settled(place: Path) -> None:
    (place / INTENDED).unlink(missing_ok=True)
