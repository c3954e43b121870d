"""The engine's process group: who is in it, and how it is ended without ever hitting somebody else's process."""

import os
import signal
import time

import psutil

# psutil computes a start time from clock ticks since the machine's boot; the clock may have been set in between.
CLOCK_TOLERANCE_S = 2.0
POLL_S = 0.05


def started_at(pid: int) -> float:
    """When the process started, seconds since 1970: with its id it names a process for good."""
    return psutil.Process(pid).create_time()


def group_members(group: int) -> list[psutil.Process]:
    """The living processes of the group. A zombie holds no memory and no port, so it does not count."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return members


def is_the_recorded_group(group: int, leader_started: float, members: list[psutil.Process]) -> bool:
    """Whether the group's number still means the group that was recorded, and not a later one under the same number.

    While any member lives the kernel gives the number to no new process, so a leader with another start time proves
    that the number was used again; without a leader no member may be older than the recorded one.
    """
    try:
        starts = {member.pid: member.create_time() for member in members}
    except psutil.NoSuchProcess:
        return is_the_recorded_group(group, leader_started, group_members(group))
    if group in starts:
        return abs(starts[group] - leader_started) <= CLOCK_TOLERANCE_S
    before_this_boot = leader_started < psutil.boot_time() - CLOCK_TOLERANCE_S
    return not before_this_boot and all(start >= leader_started - CLOCK_TOLERANCE_S for start in starts.values())


def end_process_group(group: int, leader_started: float, *, grace_s: float = 15.0) -> bool:
    """Ends the recorded group: SIGTERM, ``grace_s`` seconds, SIGKILL. False when nothing of it was left."""
    members = group_members(group)
    if group <= 1 or not members or not is_the_recorded_group(group, leader_started, members):
        return False
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        send(group, number)
        if is_gone_within(group, patience_s):
            return True
    raise ProcessLookupError(f"process group {group} survived SIGKILL: {[one.pid for one in group_members(group)]}")


def send(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def is_gone_within(group: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while group_members(group):
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True
