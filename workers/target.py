"""Checkpoints on disk: identified by what they contain, found by digest, never trusted by name."""

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from loadtests import checkpoints
from loadtests.canonical import canonical, digest_of
from loadtests.configurations import Checkpoint

DEMO_TARGET = "SmolLM2-135M-Instruct"
RECORD = checkpoints.RECORD
RECORD_SCHEMA = "draftproof.checkpoint/1"
UNPACK_SCRIPT = Path(__file__).parent / "target_scripts" / "unpack_smollm2.py"
UNPACK_TIMEOUT_S = 900

# The configs belong to the weights: the same tensors under another rope base or temperature answer otherwise.
WEIGHT_FILES = ("*.safetensors", "config.json", "generation_config.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
)


class TargetError(Exception):
    """A checkpoint is missing, changed, or could not be prepared."""


def file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of_files(directory: Path, patterns: Iterable[str]) -> str:
    """One SHA-256 over the sorted [name, SHA-256 of content] list of the files that match."""
    paths = sorted({path for pattern in patterns for path in directory.glob(pattern)})
    return digest_of([[path.name, file_digest(path)] for path in paths])


def checkpoint_digests(directory: Path) -> Checkpoint:
    """Read every byte and say which checkpoint lies in the directory; a drafter may come without a tokenizer."""
    if not any(directory.glob("*.safetensors")):
        raise TargetError(f"{directory}: no *.safetensors file; only safetensors checkpoints can be identified")
    return Checkpoint(
        name=directory.name,
        weights_sha256=digest_of_files(directory, WEIGHT_FILES),
        tokenizer_sha256=digest_of_files(directory, TOKENIZER_FILES),
    )


def record_checkpoint(directory: Path) -> Checkpoint:
    """Write the checkpoint's identity beside its files, where find_checkpoint looks for it."""
    checkpoint = checkpoint_digests(directory)
    (directory / RECORD).write_bytes(canonical({"schema": RECORD_SCHEMA, **checkpoint.model_dump()}) + b"\n")
    return checkpoint


def recorded_checkpoint(directory: Path) -> Checkpoint:
    """The identity written beside the files, unverified."""
    path = directory / RECORD
    try:
        document = json.loads(path.read_bytes())
        if document.pop("schema") != RECORD_SCHEMA:
            raise ValueError(f"schema is not {RECORD_SCHEMA}")
        return Checkpoint.model_validate(document)
    except FileNotFoundError:
        raise TargetError(f"{path} is missing: the checkpoint was never recorded") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TargetError(f"{path} is not a checkpoint record: {error}") from error


def verified_checkpoint(directory: Path) -> Checkpoint:
    """The recorded identity after reading the files again; raises when a file changed since."""
    recorded, found = recorded_checkpoint(directory), checkpoint_digests(directory)
    for part in ("weights_sha256", "tokenizer_sha256"):
        if getattr(recorded, part) != getattr(found, part):
            raise TargetError(
                f"{directory}: {part} is {getattr(found, part)} but {RECORD} says {getattr(recorded, part)}: "
                "the files changed after they were recorded; remove the directory and prepare it again"
            )
    return recorded


def is_same(left: Checkpoint, right: Checkpoint) -> bool:
    # The name is for people; two downloads under two names are one checkpoint.
    return (left.weights_sha256, left.tokenizer_sha256) == (right.weights_sha256, right.tokenizer_sha256)


def find_checkpoint(models_dir: Path, checkpoint: Checkpoint) -> Path:
    """The directory under ``models_dir`` that holds exactly this checkpoint, its files read and verified."""
    seen: list[str] = []
    for record in sorted(models_dir.glob(f"[!.]*/{RECORD}")):
        try:
            recorded = recorded_checkpoint(record.parent)
        except TargetError as error:
            seen.append(str(error))
            continue
        if is_same(recorded, checkpoint):
            verified_checkpoint(record.parent)
            return record.parent
        seen.append(describe(recorded))
    there = "; ".join(seen) or "no recorded checkpoint"
    raise TargetError(f"no checkpoint {describe(checkpoint)} under {models_dir}; there is: {there}")


def describe(checkpoint: Checkpoint) -> str:
    weights, tokenizer = checkpoint.weights_sha256[:12], checkpoint.tokenizer_sha256[:12]
    return f"{checkpoint.name} (weights {weights}…, tokenizer {tokenizer}…)"


def prepare_demo_target(models_dir: Path, engine_python: Path) -> Checkpoint:
    """Unpack the demo target once; later calls verify what is there."""
    directory = models_dir / DEMO_TARGET
    if not directory.exists():
        models_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=models_dir, prefix=f".{DEMO_TARGET}-") as scratch:
            unpacked = Path(scratch) / DEMO_TARGET
            run_unpack(engine_python, unpacked)
            record_checkpoint(unpacked)
            move_into_place(unpacked, directory)
    return verified_checkpoint(directory)


def move_into_place(unpacked: Path, directory: Path) -> None:
    try:
        unpacked.rename(directory)
    except OSError:
        # Somebody else was faster; theirs is verified by the caller.
        if not directory.exists():
            raise


def run_unpack(engine_python: Path, directory: Path) -> None:
    if not engine_python.exists():
        raise TargetError(f"{engine_python} is missing: install the engine environment (requirements/engine-cpu.txt)")
    # Both paths are ours; no shell sees them.
    finished = subprocess.run(  # noqa: S603
        [str(engine_python), str(UNPACK_SCRIPT), str(directory)],
        capture_output=True,
        text=True,
        timeout=UNPACK_TIMEOUT_S,
    )
    if finished.returncode != 0:
        raise TargetError(f"unpacking {DEMO_TARGET} failed ({finished.returncode}):\n{finished.stderr[-2000:]}")
