"""Runs the vastai program many times: its modules take longer to load than all the rest.

Listens on the socket that is its only argument, until its standard input ends. A
connection brings a JSON object with an environment, and the path of another socket: a
process with that environment loads the program and listens there, for as long as the
connection is open. Connections to it bring the three standard streams and a JSON list
with the arguments, as Python would get them, and are told the exit status.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback

LOAD = """
import vastai.cli.main
from vastai.cli import selfupdate
from vastai.cli.commands import (
    auth, benchmarks, billing, deployments, endpoints, instances, keys, machines, metrics, misc, offers, price_increase, repl, storage,
    teams, uninstall, update,
)
"""


def others():
    """The modules that the program loads and that are not its own; they do not ask for the environment."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        exec(LOAD, {})
        names = [name for name in sys.modules if name.split(".")[0] not in ("vastai", "xdg", "__main__")]
        os.write(writer, " ".join(names).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as f:
        names = f.read().split()
    os.wait()
    return names


def call(argv):
    try:
        if argv[0] == "-c":
            exec(argv[1], {"__name__": "__main__"})
        else:
            sys.argv = argv
            sys.modules["vastai.cli.main"].main()
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def listen(path):
    server = socket.socket(socket.AF_UNIX)
    server.bind(path + ".new")
    server.listen(64)
    os.rename(path + ".new", path)
    return server


def serve(server, end, answer, last=lambda: None):
    """Answers connections, each in a process of its own, until the other end of a stream is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        ready, _, _ = select.select([server, end], [], [])
        if end in ready:
            last()
            os._exit(0)
        peer, _ = server.accept()
        if os.fork() == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(peer)
            os._exit(0)
        peer.close()


def whole(peer, message):
    """A message up to the end of its line: it may come in parts."""
    while not message.endswith(b"\n"):
        part = peer.recv(1 << 17)
        if not part:
            os._exit(0)  # whoever asked is gone
        message += part
    return json.loads(message)


def run(peer):
    message, fds, _, _ = socket.recv_fds(peer, 1 << 17, 3)
    message = whole(peer, message)
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    code = call(message)
    sys.stdout.flush()
    sys.stderr.flush()
    peer.sendall(bytes([code & 255]))


def world(peer):
    message = whole(peer, b"")
    os.environ.clear()
    os.environ.update(message["env"])
    exec(LOAD, {})
    serve(listen(message["socket"]), peer, run)


def main():
    for name in others():
        try:
            importlib.import_module(name)
        except ImportError:
            pass
    path = sys.argv[1]
    serve(listen(path), sys.stdin, world, lambda: (os.remove(path), os.rmdir(os.path.dirname(path))))


main()
