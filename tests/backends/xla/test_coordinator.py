"""The roll call believes nobody who does not know the secret, and nobody holds it up or crowds others out.

Times are bounds against standing still, a hundred times what is needed.
"""

import contextlib
import re
import select
import socket
import subprocess
import sys
import threading
import time

import pytest

from nxjax.backends.xla import coordinator, distributed, relay
from nxjax.distributed import joining
from nxjax.errors import ParameterError

SECRET = "of all that take part"


@pytest.fixture
def roll():
    """Makes roll calls; what was opened for them is closed afterwards."""
    with contextlib.ExitStack() as opened:
        yield lambda *args, **options: Call(opened, *args, **options)


class Call:
    """A roll call in a thread, as `coordinator.main` makes it."""

    def __init__(self, opened, processes, timeout=60.0, secret=SECRET):
        self.opened = opened
        self.processes, self.secret = processes, secret
        self.server = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.present = {}
        self.thread = threading.Thread(target=self._work, args=(timeout,))
        self.thread.start()

    def _work(self, timeout):
        self.present = coordinator.roll_call(self.server, self.processes, timeout, self.secret)
        self.server.close()
        for caller in self.present.values():
            whole = len(self.present) == self.processes
            caller.tell(f"go {coordinator.proof(self.secret, 'go', caller.theirs)}" if whole else "not all are there")

    def stranger(self, said=b""):
        made = self.opened.enter_context(socket.create_connection(self.server.getsockname(), timeout=60))
        made.sendall(said)
        return made

    def answer(self, process, timeout=60.0, secret=SECRET, processes=0):
        distributed._answer(self.address, process, processes or self.processes, timeout, secret)

    def all_come(self):
        """Every process answers, and hears that all have come."""
        failed = []

        def one(process):
            try:
                self.answer(process)
            except ConnectionError as error:
                failed.append(error)

        threads = [threading.Thread(target=one, args=(i,)) for i in range(self.processes)]
        for t in threads:
            t.start()
        for t in (*threads, self.thread):
            t.join(60)
            assert not t.is_alive()
        assert not failed and set(self.present) == set(range(self.processes))


STRANGE = [
    b"\xff\xfe\x80 \x00\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"nxjax 1 3\n",
    b"nxjax 77 3 0 0\n",
    b"nxjax -1 3 0 0\n",
    b"nxjax x y z w\n",
    "nxjax ٣ ٣ 0 0\n".encode(),
    b"nxjax " + b"9" * 400 + b" 3 0 0\n",
    b"nxjax 0 3 0 0\nnxjax 0 3 0 0\n",
    b"\n" * 600,
    b"",
]


def test_strangers_are_not_believed(roll):
    call = roll(3)
    for said in STRANGE:
        call.stranger(said)
    call.all_come()


def test_a_line_without_an_end_is_not_kept(roll):
    call = roll(1)
    one = call.stranger()
    with contextlib.suppress(OSError):
        for _ in range(1000):
            one.sendall(b"x" * 65536)
        pytest.fail("65 MB were taken")
    call.all_come()


def test_who_knows_the_secret_but_not_the_numbers(roll):
    """Each is told what is wrong, and the others are not disturbed."""
    call = roll(2)
    with pytest.raises(ConnectionError, match="process 77 of 2: they are numbered from 0"):
        call.answer(77)
    with pytest.raises(ConnectionError, match="another number of processes: 2 at the coordinator"):
        call.answer(0, processes=3)
    with pytest.raises(ConnectionError, match="NXJAX_COORDINATOR_SECRET must be the same"):
        call.answer(0, secret="of somebody else's")
    with pytest.raises(ConnectionError, match="NXJAX_COORDINATOR_SECRET must be the same"):
        call.answer(0, secret="")
    call.all_come()


def test_a_number_is_given_once_and_again_when_its_process_has_gone(roll):
    call = roll(2)

    def hello():
        one = call.stranger()
        ours = re.fullmatch(rb"nxjax (\w+)\n", one.recv(100))[1].decode()
        one.sendall(f"nxjax 0 2 t {coordinator.proof(SECRET, ours, '0', '2', 't')}\n".encode())
        return one

    both = [hello(), hello()]
    (told,), _, _ = select.select(both, [], [], 60)
    assert told.recv(100) == b"another process with number 0\n" and not told.recv(1)
    for one in both:
        one.close()
    call.all_come()


def test_an_answer_to_another_question_proves_nothing(roll):
    """What one process has said cannot be said again."""
    call = roll(1, timeout=60)
    one, other = call.stranger(), call.stranger()
    ours = one.recv(100).split()[1].decode()
    other.recv(100)
    other.sendall(f"nxjax 0 1 t {coordinator.proof(SECRET, ours, '0', '1', 't')}\n".encode())
    assert other.recv(200).startswith(b"the secrets differ")
    call.all_come()


def test_another_coordinator_is_not_believed():
    server = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{server.getsockname()[1]}"

    def serve(lines):
        for line in lines:
            one, _ = server.accept()
            one.sendall(line)
            with contextlib.suppress(OSError):
                one.recv(1000)
                one.sendall(b"go 0\n")
            one.close()

    thread = threading.Thread(target=serve, args=([b"\x00\x00\x12\n", b"x" * 2000, b"nxjax 1\n"],))
    thread.start()
    with pytest.raises(ConnectionError, match="the secrets differ"):
        distributed._answer(address, 0, 1, 60, SECRET)
    thread.join(60)
    server.close()
    with pytest.raises(ConnectionError, match="nobody listens there"):
        distributed._answer(address, 0, 1, 0.3, SECRET)


def test_the_time_is_over_for_all_together(roll, monkeypatch):
    """Neither silence nor a letter now and then makes it longer."""
    monkeypatch.setattr(coordinator, "PROMPT", 0.2)
    start = time.monotonic()
    call = roll(2, timeout=1)
    slow = [call.stranger(b"n") for _ in range(20)]
    dropped = 0
    while call.thread.is_alive() and time.monotonic() < start + 60:
        for one in slow:
            try:
                one.send(b"x")
            except OSError:
                dropped += 1
        time.sleep(0.05)
    call.thread.join(60)
    assert 1 <= time.monotonic() - start < 30 and call.present == {} and dropped


def test_a_flood_does_not_keep_the_true_ones_out(roll, monkeypatch):
    """Four times as many strangers as there is room for stay, while others come and go."""
    monkeypatch.setattr(coordinator, "PENDING", 100)
    call = roll(8)
    for _ in range(400):
        call.stranger(b"nxj")
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            with contextlib.suppress(OSError), socket.create_connection(call.server.getsockname()) as one:
                one.sendall(b"nxjax 1 8\n")

    threads = [threading.Thread(target=come_and_go) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        call.all_come()
    finally:
        over.set()
        for t in threads:
            t.join(60)


def test_it_listens_where_it_is_told_to():
    with coordinator._listen("127.0.0.1", 0) as server:
        assert server.getsockname()[0] == "127.0.0.1"
    with coordinator._listen("localhost", 0) as server:
        assert server.getsockname()[0] in ("127.0.0.1", "::1")
    with coordinator._listen("0.0.0.0", 0) as server:
        assert server.getsockname()[0] == "0.0.0.0"


@pytest.fixture
def joined(monkeypatch):
    """What `initialize` asks for; nobody is joined."""
    for name in ("COORDINATOR_SECRET", "COORDINATOR_BIND_ADDRESS"):
        monkeypatch.delenv(f"NXJAX_{name}", raising=False)
    asked = []
    monkeypatch.setattr(distributed, "join", lambda *args, **options: asked.append(options))
    return asked


def test_other_machines_need_a_secret(joined, monkeypatch):
    for address in ("localhost:5", "127.0.0.1:5", "127.8.0.1:5", "[::1]:5"):
        joining.initialize(address, 1, 0)
        assert joined[-1]["bind_address"] == address and joined[-1]["secret"] == ""
    for address, options in (
        ("10.0.0.1:5", {}),
        ("head.example:5", {}),
        ("[fe80::1]:5", {}),
        ("localhost:5", {"coordinator_bind_address": "[::]:5"}),
        ("localhost:5", {"coordinator_secret": "short"}),
    ):
        with pytest.raises(ParameterError, match=r"coordinator_secret[\s\S]*openssl rand"):
            joining.initialize(address, 1, 0, **options)
    monkeypatch.setenv("NXJAX_COORDINATOR_SECRET", 4 * "word")
    joining.initialize("10.0.0.1:5", 1, 0)
    assert joined[-1]["bind_address"] == "10.0.0.1:5" and joined[-1]["secret"] == 4 * "word"
    joining.initialize("10.0.0.1:5", 1, 0, coordinator_bind_address="0.0.0.0:5", coordinator_secret=5 * "word")
    assert joined[-1]["bind_address"] == "0.0.0.0:5" and joined[-1]["secret"] == 5 * "word"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not say whose a socket is")
def test_the_relay_turns_strangers_away():
    """The end of their connection is not taken for the coordinator's."""
    upstream = socket.create_server(("127.0.0.1", 0))
    lost = threading.Event()
    made = relay.Relay("127.0.0.1", upstream.getsockname()[1], lambda reason: lost.set())
    host, _, port = made.address.partition(":")
    code = f"import socket; c = socket.create_connection(({host!r}, {port})); print(c.recv(10))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "b''\n"
    six = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET) as own:  # as jaxlib has it
        own.connect((f"::ffff:{host}" if six else host, int(port)))
        own.sendall(b"mine")
        other, _ = upstream.accept()
        assert other.recv(10) == b"mine" and not lost.is_set()
    other.close()
    assert lost.wait(60)
    for one in (upstream, made._server, *made._kept):
        one.close()
