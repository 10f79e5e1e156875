"""Serves the calls of functions that a jobpool.Pool writes into a file: worker.py FILE.

FILE has records of the pool: how to prepare, calls, END. FILE.out has those of this process: HERE, then
an answer for each call, and GONE if there was nothing to do for long. Each file has one writer. They are
opened anew for each record, and records have a checksum, as another node may see a part of one over NFS.
A later attempt of the task goes on with the first call that has no answer.
"""

import os
import pickle
import struct
import sys
import time
import traceback
import zlib

END = b"end"
HERE = b"here"
GONE = b"gone"

_HEAD = struct.Struct(">QI")

# Bytes of each stream of a call that its exception has.
_TAIL = 64 << 10

# Seconds without a call after which the pool is taken for dead: it ends those that are idle far sooner.
_DEAD = 60


def append(name, data):
    """Appends a record, which is not empty, to a file; returns its size there."""
    record = _HEAD.pack(len(data), zlib.crc32(data)) + data
    with open(name, "ab") as f:
        f.write(record)
    return len(record)


class Reader(object):
    """Reads the records of a file; at is where the next one begins."""

    def __init__(self, name):
        self.name, self.at = name, 0

    def next(self):
        """The next record; None while it is not there, as a whole."""
        with open(self.name, "rb") as f:
            left = os.fstat(f.fileno()).st_size - self.at - _HEAD.size
            if left <= 0:
                return None
            f.seek(self.at)
            size, check = _HEAD.unpack(f.read(_HEAD.size))
            if not 0 < size <= left:
                return None
            data = f.read(size)
        if zlib.crc32(data) != check:
            return None
        self.at += _HEAD.size + size
        return data


class Pauses(object):
    """Pauses between looks: a twentieth of the time since the last news, at most the longest."""

    def __init__(self, longest):
        self._longest = longest
        self.news()

    def news(self):
        self._since = time.monotonic()

    def quiet(self):
        return time.monotonic() - self._since

    def next(self):
        return min(self._longest, max(0.0005, self.quiet() / 20))


def dumps(value):
    """Pickles with what Python has, and otherwise with cloudpickle, if it is installed."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        try:
            import cloudpickle
        except ImportError:
            cloudpickle = None
        if cloudpickle is None:
            raise
        return cloudpickle.dumps(value)


def _sizes():
    """The sizes of what was printed, as far as it is in files."""
    for f in (sys.stdout, sys.stderr):
        try:
            f.flush()
        except (AttributeError, OSError, ValueError):
            pass  # the function has closed it
    sizes = []
    for fd in (1, 2):
        try:
            sizes.append(os.fstat(fd).st_size)
        except OSError:
            sizes.append(0)
    return sizes


def _printed(begin, end):
    """The last bytes of each stream between two sizes."""
    tails = []
    for fd, a, b in zip((1, 2), begin, end):
        a = max(a, b - _TAIL)
        try:
            tails.append(os.pread(fd, b - a, a) if b > a else b"")
        except OSError:
            tails.append(b"")
    return tails


def _answer(call, directory):
    """Calls a function: whether it returned, the pickled value or exception, traceback, output, sizes."""
    process, begin = os.getpid(), _sizes()
    value, error, trace = None, None, ""
    try:
        os.chdir(directory)
        fn, args, kwargs = pickle.loads(call)
        value = fn(*args, **kwargs)
    except Exception as e:
        error, trace = e, traceback.format_exc()  # a traceback cannot be pickled
    end = _sizes()
    if os.getpid() != process:
        os._exit(1 if error else 0)  # the function has forked, and its parent answers
    if error:
        sys.stderr.write(trace)
    out = _printed(begin, end) if error else [b"", b""]
    try:
        data = dumps(value if error is None else error)
    except Exception as e:
        what = "value" if error is None else "exception %r" % error
        error, data = e, pickle.dumps(RuntimeError("the %s cannot be pickled: %s" % (what, e)))
    return error is None, data, trace, out, _sizes()


def main():
    name = sys.argv[1]
    sys.path.pop(0)  # the directory of this file, in which modules have names of their own
    calls, before = Reader(name), Reader(name + ".out")
    answered, last = -1, None
    for last in iter(before.next, None):
        answered += 1
    os.truncate(name + ".out", before.at)  # an earlier attempt may have been killed as it wrote
    if last == GONE:
        return
    prepare, directory = pickle.loads(calls.next())
    if prepare:
        import multiprocessing.spawn
        multiprocessing.spawn.prepare(prepare)
    if answered < 0:
        append(name + ".out", HERE)
        answered = 0
    pauses = Pauses(0.02)
    while True:
        call = calls.next()
        if call is None:
            if pauses.quiet() > _DEAD:
                append(name + ".out", GONE)
                return
            time.sleep(pauses.next())
        elif call == END:
            return
        elif answered > 0:
            answered -= 1
        else:
            append(name + ".out", pickle.dumps(_answer(call, directory), pickle.HIGHEST_PROTOCOL))
            pauses.news()


if __name__ == "__main__":
    main()
