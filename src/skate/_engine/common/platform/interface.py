"""The interface of a platform layer: a module with these functions and constants."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol


class HasFileno(Protocol):
    """A file, a socket or a poller."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Poller(Protocol):
    """Waits for descriptors, with the methods of `select.epoll`.

    A poller may watch another poller. Any thread may change what is watched, also while another one waits.
    """

    def register(self, fd: int | HasFileno, eventmask: int, /) -> None:
        """Start watching a descriptor, or another poller."""

    def modify(self, fd: int | HasFileno, eventmask: int, /) -> None:
        """Watch a registered descriptor for other events."""

    def unregister(self, fd: int | HasFileno, /) -> None:
        """Stop watching a descriptor."""

    def poll(self, timeout: float | None = None, maxevents: int = -1, /) -> list[tuple[int, int]]:
        """Wait for `timeout` seconds, or without a limit if negative; return descriptors and their events."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while the poller has events."""

    def close(self) -> None:
        """Close the descriptors of the poller itself."""


class Wakeup(Protocol):
    """A flag that another thread, or a signal handler, sets to end a wait for descriptors."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while the flag is set."""

    def set(self) -> None:
        """Set the flag.

        Raises:
            OSError: It was closed.
        """

    def clear(self) -> None:
        """Clear the flag."""

    def close(self) -> None:
        """Close its descriptors."""


class Platform(Protocol):
    """A platform layer: `skate._engine.common.platform.linux` or `.portable`."""

    NAME: str
    READ: int  # events of a poller
    WRITE: int
    SHARED_MEMORY: str  # a file system in memory, "" if there is none
    LONGEST_SOCKET_PATH: int  # bytes
    # Whether the processes that called `lead` become the parents of descendants whose parents die, and so find all
    # descendants by their parents, and learn of their end.
    ADOPTS_ORPHANS: bool
    # Whether a process may fork after it has imported modules of the user. The frameworks of macOS do not survive that.
    FORKS_AFTER_IMPORTS: bool
    # Whether a process can find the threads and descriptors that imports have left in it. Otherwise it may fork after
    # the imports that an environment names, but not after those that workers report.
    CHECKS_FORKS: bool

    # ------------------------------------------------------------ waiting

    def poller(self) -> Poller:
        """Return a new poller."""

    def wakeup(self) -> Wakeup:
        """Return a new flag."""

    def pipe(self) -> tuple[int, int]:
        """Return the ends of a new pipe: neither blocks, and neither is inherited by other programs."""

    # ------------------------------------------------------------ sockets

    def message_pair(self) -> tuple[socket.socket, socket.socket]:
        """Return two connected sockets that preserve the boundaries of messages, and may pass descriptors."""

    def message_socket(self, descriptor: int) -> socket.socket:
        """Return the socket of an inherited descriptor from `message_pair`."""

    def short_path(self, folder: str) -> AbstractContextManager[str]:
        """Return a context with a short path of a folder, for the address of a socket."""

    def listener_pid(self, sock: socket.socket, recorded: int) -> int:
        """Return the pid of the process at the other end, in the namespace of this process; `recorded` is its own."""

    # ------------------------------------------------------------ parents and children

    def lead(self) -> None:
        """Prepare this process to have children that end with it, and to end all its descendants."""

    def die_with_parent(self, parent: int) -> None:
        """Kill this process when its parent dies, which has called `lead`; kill it now if the parent is dead."""

    def survive_parent(self) -> None:
        """Revoke `die_with_parent`."""

    def prepare_to_fork(self) -> None:
        """End the threads of this layer, in a process that detects the end of its parent by itself from now on."""

    def input_of_child(self) -> int:
        """Return the descriptor that a child with a new interpreter gets as its standard input."""

    def adopt_input(self) -> None:
        """Accept the standard input that the parent gave this process, before `die_with_parent`."""

    def close_others(self, kept: Iterable[int]) -> None:
        """Close all descriptors but the standard streams, those in `kept`, and those of this layer."""

    def reap(self) -> tuple[int, int] | None:
        """Collect a child that has ended, and kill the process group that it led; return its pid and exit code."""

    def descendants(self, top: int, spare: int) -> list[int]:
        """Return the pids of all descendants of a process except its child `spare` and the descendants of that."""

    def members(self, variable: str, value: str) -> list[int]:
        """Return the pids of other processes of this user that have an environment variable with this value."""

    def exit_descriptor(self, pid: int) -> int:
        """Return a new descriptor that is readable once a process has ended; -1 if there is none.

        Raises:
            ProcessLookupError: There is no such process.
        """

    def wait_for_end(self, pid: int, timeout: float) -> bool:
        """Wait for the end of any process; return False after the timeout."""

    def process_memory(self) -> Iterable[tuple[int, int, int]]:
        """Yield the pid, the process group and the memory of all processes, in bytes that they do not share."""

    def command_of(self, pid: int) -> str:
        """Return the name of the program of a process."""

    def prefer_in_oom_kill(self) -> None:
        """Make the kernel end this process rather than others when memory is full, if it has a choice."""

    def command_line_memory(self) -> tuple[int, int]:
        """Return the address and the size of the memory that holds the command line; 0 and 0 if unknown."""

    # ------------------------------------------------------------ files

    def reserve(self, descriptor: int, size: int) -> None:
        """Extend a file to `size` bytes that are allocated, so that a mapping of it can be written to.

        Raises:
            OSError: The file system is full.
        """

    def copy(self, write: int, read: int, position: int, size: int) -> int:
        """Copy up to `size` bytes from a position of one file to the end of another; return how many."""
