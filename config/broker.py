"""The embedded broker: kombu's messages and tables in files, of which nobody ever sees half a one."""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem, virtual
from kombu.transport.filesystem import exchange_queue_t
from kombu.utils.json import dumps, loads

Entries = list[exchange_queue_t]


class Channel(filesystem.Channel):
    """kombu opens a file under its own name and writes it afterwards: a worker that lists the folder in between takes
    an empty message, can't parse it and ends, and a process that is killed in between leaves an empty table for ever.
    Here a file gets its name when it is whole."""

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]  # kombu names it twice
        # kombu takes files in the order of their names and of its own queue's ending alone.
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        final = Path(self.data_folder_out) / name
        try:
            put_whole(final, dumps(payload))
        except OSError as error:
            raise ChannelError(f"cannot add the message {final}: {error}") from error

    def _table_file(self, exchange: str) -> Path:
        return Path(self.control_folder) / f"{exchange}.exchange"

    # Which queues an exchange leads to stands in a table of its own.
    def get_table(self, exchange: str) -> Entries:  # type: ignore[override]  # as kombu's own
        found = entries_in(self._table_file(exchange))
        return self._begun_anew(exchange) if found is None else found

    def _begun_anew(self, exchange: str) -> Entries:
        """A table that can't be read is written again from what this process has bound; others bind as they start."""
        for queue, bound_to, routing_key in list(self.state.bindings or ()):
            if bound_to == exchange:
                self._queue_bind(exchange, routing_key, "", queue)
        return entries_in(self._table_file(exchange)) or []

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        entry = exchange_queue_t(routing_key or "", pattern or "", queue or "")
        with self._table(exchange) as table:
            if entry not in table:
                table.insert(0, entry)

    def _delete(self, queue: str, exchange: str, routing_key: str, pattern: str, *args: Any, **kwargs: Any) -> None:
        self._purge(queue)
        entry = exchange_queue_t(routing_key or "", pattern or "", queue or "")
        with self._table(exchange) as table:
            table[:] = [one for one in table if one != entry]

    @contextmanager
    def _table(self, exchange: str) -> Iterator[Entries]:
        """The table, to be changed by one process at a time."""
        file = self._table_file(exchange)
        try:
            file.parent.mkdir(exist_ok=True)
            # The table itself can't be the lock: it is another file after each change.
            with file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = entries_in(file)
                after = list(before or [])
                yield after
                if after != before:
                    put_whole(file, dumps(after))
        except OSError as error:
            raise ChannelError(f"cannot change the table {file}: {error}") from error


def entries_in(file: Path) -> Entries | None:
    """None where what is there is no table: a process was killed while an earlier version of this was writing it."""
    try:
        return [exchange_queue_t(*entry) for entry in loads(file.read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError):
        return None


def put_whole(final: Path, content: str) -> None:
    draft = final.with_name(f"{final.name}.{uuid.uuid4()}.draft")
    try:
        draft.write_text(content)
        os.replace(draft, final)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


class WholeFiles(filesystem.Transport):
    Channel = Channel
    # Of this class alone: kombu keeps queues on the class, where another transport would share them.
    global_state = virtual.BrokerState()
