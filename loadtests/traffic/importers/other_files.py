"""Files that are no text, told by their first bytes, and what to do with them."""

from loadtests.traffic.importers.problems import Unreadable

UNPACK = "unpack it and import the file inside"
EXPORT = "export it as JSON Lines or CSV"
KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive or a spreadsheet", f"{UNPACK}, or save the sheet as CSV"),
    (b"PK\x05\x06", "an empty zip archive", "give the file itself"),
    # Longer than their magic numbers, which could begin the name of a column.
    (b"PAR1\x15", "a Parquet file", EXPORT),
    (b"ARROW1\x00", "an Arrow file", EXPORT),
    (b"Obj\x01", "an Avro file", EXPORT),
    (b"SQLite format 3\x00", "an SQLite database", EXPORT),
    (b"\xd0\xcf\x11\xe0", "an old Office file", "save the sheet as CSV"),
    (b"%PDF-", "a PDF", "give the data itself as JSON Lines or CSV"),
    (b"\xfd7zXZ\x00", "an xz file", UNPACK),
    (b"BZh", "a bzip2 file", UNPACK),
    (b"7z\xbc\xaf", "a 7z archive", UNPACK),
    (b"\x04\x22\x4d\x18", "an lz4 file", UNPACK),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)
# Names that stand together in no file of traffic. A look at the first bytes must do: a report may be one long object.
RESULTS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("GuideLLM", (b'"guidellm_version"',)),
    ("AIPerf", (b'"metrics"', b'"x_request_id"')),
    ("AIPerf", (b'"records"', b'"error_request_count"')),
    ("vllm bench serve", (b'"model_id"', b'"num_prompts"', b'"request_rate"')),
)
TAR_AT, TAR = 257, b"ustar"
LOOKED_AT = 4096
# A text in UTF-8 has next to nothing of either; random bytes have a third, and text in another encoding at least the
# letters that aren't English.
MOST_ODD = 0.1
CONTROLS = {chr(code) for code in range(32)} - set("\t\n\r\f") | {"\ufffd"}


def check_no_result(head: bytes) -> None:
    """Raises Unreadable where a file that is in no format of traffic looks like what a load generator measured."""
    for tool, names in RESULTS:
        if all(name in head for name in names):
            raise Unreadable(
                f"this looks like a result of {tool}, which is no traffic: bring it to a brief, on its tab Imported, "
                "or read it with draftproof import-evidence"
            )


def check_text(head: bytes) -> None:
    """Raises Unreadable, with what it is and what to do, for the first bytes of a file that can't be imported."""
    for start, name, instead in KINDS:
        if head.startswith(start):
            raise Unreadable(f"this looks like {name}: {instead}")
    if head[TAR_AT : TAR_AT + len(TAR)] == TAR:
        raise Unreadable(f"this looks like a tar archive: {UNPACK}")
    text = head[:LOOKED_AT].decode(errors="replace")
    if sum(sign in CONTROLS for sign in text) > MOST_ODD * len(text) + 1:
        raise Unreadable("this is no text in UTF-8: if it is text in another encoding, save it as UTF-8")
