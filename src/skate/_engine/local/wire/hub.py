"""Reading sockets: a waiting thread reads them itself; a background thread reads when no thread waits.

A thread that blocks in `get` becomes the reader ("leader") and handles incoming messages until its condition holds;
other waiting threads follow. So a synchronous call needs no switch between threads. When no thread waits, a background
thread reads. To keep it asleep while another thread reads, it polls a poller that contains the leader's poller, and
the leader disables that entry: one cheap system call of epoll.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from skate._engine.common.platform import system
from skate._engine.common.process_limits import start_thread
from skate._engine.local.wire.frames import Closed, Connection
from skate._engine.local.wire.interrupts import critical, waiting

_IN = system.READ
_OUT = system.WRITE
BURST = 0.0002  # seconds between messages of a burst
LINGER = 0.001  # seconds that the first message of a burst is held back at most
QUIET = 3  # number of checks without held-back messages that ends the bursts
ROUNDS = 10  # number of times that the background thread sends bursts before it reads the sockets again
BATCH = 32  # messages of a burst that are sent together
FIRST_PAUSE = 0.001  # seconds that a thread waits for an event loop to read before it reads itself
LAST_PAUSE = 0.05  # the same, after a while
BACKLOG = 32 << 20  # bytes that may wait for a slow receiver before the sender blocks


def _die() -> None:
    """Print the current exception and end the process."""
    import sys
    import traceback

    traceback.print_exc()
    sys.stderr.flush()
    os._exit(70)


class _Follower:
    """A thread that waits while another one reads."""

    __slots__ = ("lock", "until")

    def __init__(self, until: Callable[[], bool]) -> None:
        self.until = until
        self.lock = threading.Lock()
        self.lock.acquire()


class Hub:
    """The sockets of a process and the threads that read them.

    The reading thread calls `on_messages(connection, messages)` and `on_closed(connection)`. Descriptors that are not
    connections, such as a listening socket, have their own callback.
    """

    def __init__(
        self,
        on_messages: Callable[[Connection, list[Any]], None],
        on_closed: Callable[[Connection], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._on_messages = on_messages
        self._on_closed = on_closed
        self._on_idle = on_idle  # called by the background thread after a wake-up
        self._front = system.poller()
        self._back = system.poller()
        self._back.register(self._front, 0)
        self._wakeup = system.wakeup()
        self._wake = self._wakeup.fileno()
        self._front.register(self._wake, _IN)
        self._connections: dict[int, Connection] = {}
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._role = threading.Lock()
        self._leader: int | None = None
        self._followers: list[_Follower] = []
        self.send_lock = threading.Lock()  # held while a message is queued or written
        self.held_back: list[Connection] = []
        self._lingering = False
        self._turn = 0  # number of waits so far
        self._thread: threading.Thread | None = None
        self._armed = False
        self._in_loop = False
        self._reading = threading.RLock()  # held by the reading thread where an event loop leads
        self.closed = False
        self.on_fault: Callable[[], None] = _die

    @property
    def thread(self) -> int:
        """The thread that reads when no other thread waits."""
        return self._thread.ident or 0 if self._thread is not None else 0

    @property
    def descriptor(self) -> int:
        """The file that an event loop watches for the hub."""
        return self._front.fileno()

    # ------------------------------------------------------------ sockets

    def add(self, connection: Connection) -> None:
        """Start reading a connection."""
        self._connections[connection.fileno()] = connection
        self._front.register(connection.fileno(), _IN)

    def add_callback(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the descriptor is readable."""
        self._callbacks[descriptor] = callback
        self._front.register(descriptor, _IN)

    def remove(self, connection: Connection) -> None:
        """Stop reading a connection and close it."""
        descriptor = connection.fileno()
        if self._connections.pop(descriptor, None) is not None:
            self._front.unregister(descriptor)
        connection.close()

    def send(self, connection: Connection, message: Any) -> None:
        """Send a message; never blocks.

        In a burst, that is, when this process sends again before it has waited, messages are sent together, because a
        system call for each would cost more than the messages. The next thread that waits flushes them, or the
        background thread, which the first held-back message wakes.
        """
        with self.send_lock:
            queue = connection.post(message)
            now = time.monotonic()
            since, connection.sent_at = now - connection.sent_at, now
            if (
                since < BURST
                and connection.turn == self._turn  # else it answers a message that came since
                and len(queue) < BATCH
                and self._thread is not None
            ):
                if connection not in self.held_back:
                    self.held_back.append(connection)
                    if not self._lingering:
                        self.wake()
                return
            connection.turn = self._turn
            self.flush_locked(connection)

    def send_held_back(self) -> None:
        """Send the messages that were held back in a burst."""
        with self.send_lock:
            held_back, self.held_back = self.held_back, []
            for connection in held_back:
                self.flush_locked(connection)

    def throttle(self, connection: Connection) -> None:
        """Block while the receiver is far behind. The caller must not hold a lock."""
        if connection.backlog > BACKLOG and self._leader != threading.get_ident():
            self.attend(lambda: connection.backlog < BACKLOG // 2 or connection.fileno() < 0)

    def post(self, connection: Connection, message: Any) -> None:
        """Queue a message that is sent with the next one."""
        with self.send_lock:
            connection.post(message)

    def flush(self, connection: Connection) -> None:
        """Send the queued messages."""
        with self.send_lock:
            self.flush_locked(connection)

    def flush_locked(self, connection: Connection) -> None:
        """Send the queued messages. The caller holds the lock."""
        try:
            if not connection.flush() and not connection.writing:
                connection.writing = True
                self._front.modify(connection.fileno(), _IN | _OUT)
        except (Closed, ValueError, OSError):
            # The reader detects the end of the stream after the last message.
            return

    # ------------------------------------------------------------ waiting

    def attend(self, until: Callable[[], bool], timeout: float | None = None) -> bool:
        """Handle messages until `until()` holds; return whether it does."""
        if until():
            return True
        self._turn += 1
        if self.held_back:
            self.send_held_back()
        me = threading.get_ident()
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._leader == me:  # called from a handler, or from the event loop that leads
            if self._in_loop:
                with self._reading:
                    return self._lead(until, deadline)
            return self._lead(until, deadline)
        while not self.closed:
            if self._role.acquire(blocking=False):
                self._leader = me
                if self._armed:
                    self._armed = False
                    self._back.modify(self._front, 0)
                try:
                    return self._lead(until, deadline)
                finally:
                    self._resign()
            follower = _Follower(until)
            self._followers.append(follower)
            # The condition may have become true before the leader saw this follower.
            if until():
                self._drop(follower)
                return True
            # The leader may have left between the two lines above; then no thread would wake this one.
            if self._role.acquire(blocking=False):
                self._role.release()
                self._drop(follower)
                continue
            try:
                self._follow(follower, deadline)
            finally:
                self._drop(follower)
            if until():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return until()

    def _follow(self, follower: _Follower, deadline: float | None) -> None:
        if self.closed:  # no thread would wake this one
            return
        if self._in_loop:
            self._follow_loop(follower, deadline)
            return
        follower.lock.acquire(timeout=-1.0 if deadline is None else max(0.0, deadline - time.monotonic()))

    def _follow_loop(self, follower: _Follower, deadline: float | None) -> None:
        """Wait for an event loop to read; read here if it does not, because the loop may wait for this thread."""
        pause = FIRST_PAUSE
        while not self.closed:
            left = pause if deadline is None else min(pause, deadline - time.monotonic())
            if left <= 0 or follower.lock.acquire(timeout=left):
                return
            self.read_some()
            pause = min(2 * pause, LAST_PAUSE)

    def _drop(self, follower: _Follower) -> None:
        try:
            self._followers.remove(follower)
        except ValueError:
            return

    def _resign(self) -> None:
        """Stop leading: the next waiting thread or the background thread takes over."""
        self._leader = None
        try:
            if self._thread is not None and not self.closed:
                self._armed = True
                self._back.modify(self._front, _IN)
        finally:
            self._role.release()
            if self._followers:
                self._wake_follower()

    def _wake_follower(self) -> None:
        try:
            follower = self._followers[0]
            follower.lock.release()
        except (IndexError, RuntimeError):  # gone, or awake already
            return

    def _lead(self, until: Callable[[], bool], deadline: float | None) -> bool:
        poll = self._front.poll
        if until():  # the condition may have become true while another thread was reading
            return True
        while True:
            if deadline is None:
                events = poll(-1, 64)
            else:
                left = deadline - time.monotonic()
                if left <= 0:
                    self._handle(poll(0, 64))
                    return until()
                events = poll(left, 64)
            self._handle(events)
            if until():
                return True
            if self.closed:
                return False

    def _handle(self, events: list[tuple[int, int]]) -> None:
        for descriptor, event in events:
            connection = self._connections.get(descriptor)
            if connection is None:
                if descriptor == self._wake:
                    self._wakeup.clear()
                    if self.held_back:
                        self.send_held_back()
                    self._on_idle()
                else:
                    callback = self._callbacks.get(descriptor)
                    if callback is not None:
                        callback()
                continue
            if event & _OUT:
                self._continue_writing(connection)
            if event & ~_OUT:
                try:
                    messages = connection.receive()
                except Closed:
                    self.remove(connection)
                    self._on_closed(connection)
                    continue
                if messages:
                    self._on_messages(connection, messages)
        if self._followers:
            for follower in list(self._followers):
                if follower.until():
                    try:
                        follower.lock.release()
                    except RuntimeError:  # awake already
                        continue

    def _continue_writing(self, connection: Connection) -> None:
        with self.send_lock:
            try:
                if connection.flush():
                    connection.writing = False
                    self._front.modify(connection.fileno(), _IN)
            except (Closed, ValueError, OSError):
                connection.writing = False

    # ------------------------------------------------------------ background

    def start_thread(self) -> None:
        """Start the thread that reads when no other thread waits.

        Raises:
            OSError: The system allows no further thread.
        """
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="skate-io", daemon=True)
            start_thread(thread)
            self._thread = thread
            if self._role.acquire(blocking=False):
                self._leader = threading.get_ident()
                self._resign()

    def _is_closed(self) -> bool:
        return self.closed

    def _run(self) -> None:
        try:
            while not self._is_closed():  # checked here too, because the wake-up of `close` may be read below
                self._back.poll(-1, 1)
                if self._is_closed():
                    return
                if self.held_back:
                    self._linger()
                if self._role.acquire(blocking=False):
                    self._read_in_background()
        except Exception:
            # Without this thread the process would hang, so it fails visibly.
            self.on_fault()

    def _read_in_background(self) -> None:
        self._leader = threading.get_ident()
        self._armed = False
        try:
            self._back.modify(self._front, 0)
            self._handle(self._front.poll(0, 64))
        except Exception:
            self.on_fault()  # before the threads that wait are woken: they check whether the channel is closed
        finally:
            self._resign()

    def _linger(self) -> None:
        """Let bursts grow for a short time and send them; return after a while to read again.

        Waking up and taking the lead for each burst would take the interpreter from the sending thread.
        """
        self._lingering = True
        quiet = 0
        for _ in range(ROUNDS):
            time.sleep(LINGER)
            quiet = 0 if self.held_back else quiet + 1
            if self.held_back:
                self.send_held_back()
            elif quiet == QUIET or self.closed:
                break
        self._lingering = False
        if self.held_back:  # a thread relied on another check
            self.send_held_back()

    def wake(self) -> None:
        """Make the reading thread call `on_idle` soon."""
        if self._wake < 0:
            return  # closed; the number may belong to another file now
        try:
            self._wakeup.set()
        except OSError:
            return

    # ------------------------------------------------------------ event loops

    def join_loop(self, loop: Any) -> None:
        """Make an event loop of this thread the reader."""
        self._role.acquire()
        self._leader = threading.get_ident()
        self._in_loop = True
        if self._armed:
            self._armed = False
            self._back.modify(self._front, 0)
        loop.add_reader(self._front.fileno(), self.read_some)

    def read_some(self) -> None:
        """Handle messages that have arrived, without blocking; do nothing if another thread is reading."""
        if self._reading.acquire(blocking=False):
            try:
                self._turn += 1
                self._handle(self._front.poll(0, 64))
            finally:
                self._reading.release()

    def close(self) -> None:
        """Close all sockets; waiting threads return."""
        self.closed = True
        self.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # The thread polls the back poller, which must show the wake-up.
            self._back.modify(self._front, _IN)
            thread.join(5)
        for follower in list(self._followers):
            try:
                follower.lock.release()
            except RuntimeError:
                continue
        # The leader was woken and will stop; it must not use closed descriptors.
        leads = self._leader == threading.get_ident()
        stopped = leads or self._role.acquire(timeout=5)
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        self._close_descriptors()
        if stopped and not leads:
            self._role.release()

    def _close_descriptors(self) -> None:
        self._front.close()
        self._back.close()
        self._wake = -1
        self._wakeup.close()

    def abandon(self) -> None:
        """Close the sockets in a forked child, where the other threads of the parent do not exist."""
        if self.closed:
            return
        self.closed = True
        self._thread = None
        self._leader = None
        self._followers = []
        self.held_back = []
        self._role = threading.Lock()
        self._reading = threading.RLock()
        self.send_lock = threading.Lock()
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        self._close_descriptors()


critical(
    Hub.add,
    Hub.add_callback,
    Hub.remove,
    Hub.send,
    Hub.send_held_back,
    Hub.post,
    Hub.flush,
    Hub.attend,
    Hub._resign,
    Hub._handle,
    Hub.start_thread,
    Hub.close,
)
waiting(Hub._lead, Hub._follow)
