"""The embedded broker: kombu's messages in files, of which nobody ever sees half a one."""

import os
import time
import uuid
from collections.abc import Callable
from json import JSONDecodeError
from pathlib import Path
from typing import Any, TypeVar

from kombu.exceptions import ChannelError
from kombu.transport import filesystem, virtual
from kombu.utils.json import dumps

Read = TypeVar("Read")
TRIES, PAUSE_S = 100, 0.01


class Channel(filesystem.Channel):
    """kombu opens a message's file under its own name and writes it afterwards: a worker that lists the folder in
    between takes an empty file, can't parse it and ends. Here a file gets its name when it is whole."""

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]  # kombu names it twice
        # kombu takes files in the order of their names and of its own queue's ending alone.
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        final = Path(self.data_folder_out) / name
        draft = final.with_name(f"{name}.draft")
        try:
            draft.write_text(dumps(payload))
            os.replace(draft, final)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise ChannelError(f"cannot add the message {final}: {error}") from error

    # Which queues there are stands in a file that is created empty and filled under a lock taken a moment later.
    def get_table(self, exchange: str) -> Any:
        return when_filled(lambda: super(Channel, self).get_table(exchange))

    def _queue_bind(self, *binding: Any) -> None:
        when_filled(lambda: super(Channel, self)._queue_bind(*binding))


def when_filled(read: Callable[[], Read]) -> Read:
    for _ in range(TRIES - 1):
        try:
            return read()
        except JSONDecodeError:
            time.sleep(PAUSE_S)
    return read()


class WholeFiles(filesystem.Transport):
    Channel = Channel
    # Of this class alone: kombu keeps queues on the class, where another transport would share them.
    global_state = virtual.BrokerState()
