"""Runs the vastai program many times: its modules take longer to load than all the rest.

Listens on a socket, whose path is the only argument. Each connection brings the three
standard streams and a JSON list with the arguments, as Python would get them, and is
told the exit status.
"""

import gc
import json
import os
import signal
import socket
import sys
import traceback

from vastai.cli import main as program
from vastai.cli.commands import auth, billing, instances, keys, misc, offers  # noqa: F401


def call(argv):
    try:
        if argv[0] == "-c":
            exec(argv[1], {"__name__": "__main__"})
        else:
            sys.argv = argv
            program.main()
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def main():
    server = socket.socket(socket.AF_UNIX)
    server.bind(sys.argv[1] + ".new")
    server.listen(64)
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    while True:
        peer, _ = server.accept()
        if os.fork():
            peer.close()
            continue
        server.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        message, fds, _, _ = socket.recv_fds(peer, 1 << 17, 3)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
            os.close(fd)
        code = call(json.loads(message))
        sys.stdout.flush()
        sys.stderr.flush()
        peer.sendall(bytes([code & 255]))
        os._exit(0)


main()
