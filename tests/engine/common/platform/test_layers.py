"""What every platform layer does."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skate._engine.common.platform import portable
from skate._engine.common.platform.interface import Platform, Poller

LAYERS: list[Platform] = [portable]
if sys.platform == "linux":
    from skate._engine.common.platform import linux

    LAYERS.append(linux)


@pytest.fixture(params=LAYERS, ids=lambda layer: layer.NAME)
def layer(request: pytest.FixtureRequest) -> Platform:
    found: Platform = request.param
    return found


@pytest.fixture
def poller(layer: Platform) -> Iterator[Poller]:
    poller = layer.poller()
    yield poller
    poller.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def run_in_child(program: str, layer: Platform) -> str:
    """Run a program in another process, with `system` as the layer."""
    head = f"import os, signal, sys\nfrom skate._engine.common.platform import {layer.NAME} as system\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout


# ---------------------------------------------------------------- waiting


def test_a_poller_shows_what_is_ready(
    layer: Platform, poller: Poller, ends: tuple[socket.socket, ...]
) -> None:
    one, other = ends
    poller.register(one.fileno(), layer.READ)
    assert poller.poll(0) == []
    other.send(b"x")
    assert poller.poll(-1, 1) == [(one.fileno(), layer.READ)]
    poller.modify(one.fileno(), layer.WRITE)
    assert poller.poll(5) == [(one.fileno(), layer.WRITE)]
    poller.unregister(one.fileno())
    assert poller.poll(0.001) == []


def test_a_poller_shows_the_end_of_a_peer(
    layer: Platform, poller: Poller, ends: tuple[socket.socket, ...]
) -> None:
    one, other = ends
    poller.register(one.fileno(), layer.READ)
    other.close()
    ((descriptor, event),) = poller.poll(5)
    assert descriptor == one.fileno()
    assert event & ~layer.WRITE


def test_a_poller_drops_a_descriptor_that_was_closed(layer: Platform, poller: Poller) -> None:
    read, write = layer.pipe()
    poller.register(read, layer.READ)
    os.write(write, b"x")
    os.close(read)
    assert poller.poll(0.001) == []
    os.close(write)


def test_only_what_is_registered_can_be_changed(layer: Platform, poller: Poller) -> None:
    read, write = layer.pipe()
    with pytest.raises(FileNotFoundError):
        poller.modify(read, layer.READ)
    with pytest.raises(FileNotFoundError):
        poller.unregister(read)
    os.close(read)
    os.close(write)


def test_a_thread_that_waits_sees_what_another_one_registers(
    layer: Platform, poller: Poller, ends: tuple[socket.socket, ...]
) -> None:
    one, other = ends
    other.send(b"x")
    found: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: found.extend(poller.poll(30)))
    thread.start()
    poller.register(one.fileno(), layer.READ)
    thread.join(30)
    assert found == [(one.fileno(), layer.READ)]


def test_a_poller_that_watches_another_one_sees_its_events_while_they_are_enabled(
    layer: Platform, poller: Poller, ends: tuple[socket.socket, ...]
) -> None:
    one, other = ends
    outer = layer.poller()
    outer.register(poller, 0)
    found: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: found.extend(outer.poll(30, 1)))
    thread.start()
    poller.register(one.fileno(), layer.READ)
    other.send(b"x")
    thread.join(0.05)  # it does not end, however long this takes
    assert thread.is_alive()
    outer.modify(poller, layer.READ)
    thread.join(30)
    assert len(found) == 1
    assert poller.poll(0) == [(one.fileno(), layer.READ)]
    outer.modify(poller, 0)
    assert outer.poll(0, 1) == []
    outer.close()


def test_the_descriptor_of_a_poller_is_readable_while_it_has_events(
    layer: Platform, poller: Poller, ends: tuple[socket.socket, ...]
) -> None:
    one, other = ends
    poller.register(one.fileno(), layer.READ)
    descriptor = poller.fileno()
    for _ in range(3):
        assert poller.poll(0) == []
        assert not is_readable(descriptor)
        other.send(b"x")
        assert select.select([descriptor], [], [], 30)[0]
        assert poller.poll(0) == [(one.fileno(), layer.READ)]
        assert one.recv(10) == b"x"


def test_a_flag_is_readable_until_it_is_cleared(layer: Platform) -> None:
    flag = layer.wakeup()
    assert not is_readable(flag.fileno())
    for _ in range(100_000 if layer is portable else 3):  # more than a pipe holds
        flag.set()
    assert is_readable(flag.fileno())
    flag.clear()
    assert not is_readable(flag.fileno())
    flag.clear()
    flag.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        flag.set()


def test_a_pipe_blocks_nobody_and_is_not_inherited(layer: Platform) -> None:
    for end in layer.pipe():
        assert not os.get_blocking(end)
        assert not os.get_inheritable(end)
        os.close(end)


# ---------------------------------------------------------------- sockets


def test_messages_keep_their_boundaries_and_bring_descriptors(layer: Platform) -> None:
    one, other = layer.message_pair()
    read, write = os.pipe()
    with one, other:
        one.send(b"first")
        socket.send_fds(one, [b"sec", b"ond"], [write])
        one.sendall(b"third")
        assert other.recv(1 << 20) == b"first"
        message, descriptors, _, _ = socket.recv_fds(other, 1 << 20, 2)
        assert message == b"second"
        os.write(descriptors[0], b"x")
        assert os.read(read, 1) == b"x"
        assert socket.recv_fds(other, 1 << 20, 2)[:2] == (b"third", [])
        with pytest.raises(BlockingIOError):
            other.recv(1 << 20, socket.MSG_DONTWAIT)
        one.close()
        assert other.recv(1 << 20) == b""
    for each in (read, write, *descriptors):
        os.close(each)


def test_a_large_message_arrives_whole(layer: Platform) -> None:
    one, other = layer.message_pair()
    message = os.urandom(100_000)  # more than the buffer of a socket on some systems
    with one, other:
        sender = threading.Thread(target=one.send, args=(message,))
        sender.start()
        assert other.recv(1 << 20) == message
        sender.join()


def test_a_message_of_which_the_sender_died_halfway_never_arrives() -> None:
    one, other = portable.message_pair()
    with other:
        raw = socket.socket(fileno=one.detach())
        raw.send(b"\x05\0\0\0abc")
        raw.close()
        assert other.recv(100) == b""


def test_a_socket_can_have_a_long_path(layer: Platform, tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with layer.short_path(str(folder)) as short:
            listener.bind(f"{short}/socket")
        assert (folder / "socket").is_socket()
        assert not os.path.exists(short)
        listener.listen()
        with layer.short_path(str(folder)) as short:
            client.connect(f"{short}/socket")
        assert layer.listener_pid(client, os.getpid()) == os.getpid()


# ---------------------------------------------------------------- parents and children


def test_a_child_dies_with_its_parent(layer: Platform) -> None:
    program = """
system.lead()
read, write = os.pipe()
if not os.fork():  # a parent that is killed once its child lives
    system.lead()
    me = os.getpid()
    if not os.fork():
        system.die_with_parent(me)
        os.write(write, b"ready")
        signal.pause()
    os.close(write)
    os.read(read, 5)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os.close(write)
print(os.read(read, 5))  # the end: of the grandchild too
"""
    assert run_in_child(program, layer) == "b''\n"


def test_a_child_whose_parent_is_dead_already_dies(layer: Platform) -> None:
    program = """
pid = os.fork()
if not pid:
    system.die_with_parent(1 << 30)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_in_child(program, layer) == "-9\n"


def test_a_child_survives_its_parent_after_it_has_said_so(layer: Platform) -> None:
    program = """
system.lead()
read, write = os.pipe()
over, end = os.pipe()
if not os.fork():
    system.lead()
    me = os.getpid()
    if not os.fork():
        system.die_with_parent(me)
        system.survive_parent()
        os.write(write, b"ready")
        os.close(end)
        os.read(over, 1)  # until the first process has seen that the parent is dead
        os.write(write, b"alive")
        os._exit(0)
    os.read(read, 5)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os.close(write)
os.close(end)
print(os.read(read, 5))
"""
    assert run_in_child(program, layer) == "b'alive'\n"


def test_a_new_interpreter_dies_with_the_process_that_started_it(layer: Platform) -> None:
    program = """
import subprocess
child = "from skate._engine.common.platform import NAME as system; import os, signal; system.adopt_input(); "
child += "system.die_with_parent(os.getppid()); os.write(1, b'ready'); signal.pause()"
read, write = os.pipe()
if not os.fork():
    system.lead()
    command = [sys.executable, "-c", child]
    child = subprocess.Popen(command, stdin=system.input_of_child(), stdout=write)
    os.close(write)
    os.read(read, 5)
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
os.close(write)
print(os.read(read, 5))  # the end: of the new interpreter too
"""
    assert run_in_child(program.replace("NAME", layer.NAME), layer) == "b''\n"


def test_only_the_chosen_descriptors_stay_open(layer: Platform) -> None:
    program = """
kept, other = os.dup(0), os.dup(0)
system.close_others([kept])
os.fstat(kept)
for descriptor in (0, 1, 2):
    os.fstat(descriptor)
try:
    os.fstat(other)
except OSError as error:
    print(error.strerror)
"""
    assert run_in_child(program, layer) == "Bad file descriptor\n"


def test_a_child_is_collected_with_the_group_that_it_led(layer: Platform) -> None:
    program = """
assert system.reap() is None
read, write = os.pipe()
pid = os.fork()
if not pid:
    os.setpgid(0, 0)
    if not os.fork():
        signal.pause()
    os._exit(3)
os.close(write)
while (ended := system.reap()) is None:
    continue
print(ended == (pid, 3), os.read(read, 1))  # the end: of the member of the group too
"""
    assert run_in_child(program, layer) == "True b''\n"


def test_descendants_are_found_but_for_those_of_a_spared_child(layer: Platform) -> None:
    program = """
def chain():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        child = os.fork()
        if child:
            os.write(write, str(child).encode())
        signal.pause()
    return [pid, int(os.read(read, 20))]

one, other = chain(), chain()
print(sorted(system.descendants(os.getpid(), 0)) == sorted(one + other))
print(sorted(system.descendants(os.getpid(), other[0])) == sorted(one))
for pid in one + other:
    os.kill(pid, signal.SIGKILL)
"""
    assert run_in_child(program, layer) == "True\nTrue\n"


def test_members_are_found_by_a_variable(layer: Platform) -> None:
    ready = "import os, signal; os.write(1, b'x'); signal.pause()"
    with subprocess.Popen(
        [sys.executable, "-c", ready], env={**os.environ, "MINE": "1"}, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert layer.members("MINE", "1") == [process.pid]
        assert layer.members("MINE", "2") == []
        assert process.pid in {pid for pid, _, size in layer.process_memory() if size > 0}
        assert layer.command_of(process.pid)
        assert not layer.wait_for_end(process.pid, 0.001)
        process.kill()
        assert layer.wait_for_end(process.pid, 30)  # a zombie has ended
    assert layer.wait_for_end(process.pid, 0)
    assert layer.command_of(process.pid) == "ended"


def test_a_descriptor_tells_the_end_of_a_process_where_there_is_one(layer: Platform) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        descriptor = layer.exit_descriptor(process.pid)
        process.kill()
        process.wait()
        if descriptor >= 0:
            assert is_readable(descriptor)
            os.close(descriptor)


# ---------------------------------------------------------------- files


def test_a_reserved_file_has_its_size_and_keeps_its_content(layer: Platform, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        file.write(b"content")
        file.flush()
        layer.reserve(file.fileno(), 3 << 20)
        assert os.fstat(file.fileno()).st_size == 3 << 20
        assert os.fstat(file.fileno()).st_blocks * 512 >= 3 << 20
        assert os.pread(file.fileno(), 8, 0) == b"content\0"
        layer.reserve(file.fileno(), 10)
        assert os.fstat(file.fileno()).st_size == 3 << 20


def test_a_full_disk_is_an_error_of_the_reservation(layer: Platform, tmp_path: Path) -> None:
    program = f"""
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
with open({str(tmp_path / "file")!r}, "w+b") as file:
    try:
        system.reserve(file.fileno(), 1 << 20)
    except OSError as error:
        print(error.strerror)
"""
    assert run_in_child(program, layer) == "File too large\n"


def test_a_file_is_copied_in_parts(layer: Platform, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "source").write_bytes(content)
    with open(tmp_path / "source", "rb") as read, open(tmp_path / "target", "wb") as write:
        position = 0
        while position < len(content):
            position += layer.copy(write.fileno(), read.fileno(), position, len(content) - position)
        assert layer.copy(write.fileno(), read.fileno(), position, 10) == 0
    assert (tmp_path / "target").read_bytes() == content


def test_signals_of_a_process_that_watches_its_parent_reach_its_main_thread() -> None:
    program = """
system.lead()
me = os.getpid()
pid = os.fork()
if not pid:
    system.die_with_parent(me)
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(7))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.pause()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_in_child(program, portable) == "7\n"
