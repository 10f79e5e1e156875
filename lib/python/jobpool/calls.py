"""Calls of functions in processes that stay, each a task of the pool.

A process serves calls of one kind: those with the same needs, directory and program.

    asked ── it is here ──► free ◄── a call, its answer ──► busy
      │                      │ idle, or its files are large   │ its call is cancelled
      └── nothing waits ─────┴────────► ending ◄──────────────┘     and gone, when its task has ended

A call waits in its kind, then is that of a process, and then its future is settled, once. What is asked
for grows with what is there, so that a small pool is not flooded. All is under the lock of the pool, but
for reading answers, which a lock for each process orders, and settling futures.
"""

import collections
import json
import multiprocessing.spawn
import os
import pickle
import sys
import tempfile
import threading
import time

from . import worker

ASKED, FREE, BUSY, ENDING = "asked", "free", "busy", "ending"

# Needs of a single call: its process serves no other.
SINGLE = ("after", "id", "nodes", "stdin", "time", "timeout")

# How many more processes are asked for than there are.
_AHEAD = 4

# Seconds for which an idle process keeps its CPUs, also if other tasks of this program wait.
_LINGER, _LINGER_WANTED = 5, 0.2

# Seconds after which a process ends although calls wait, if other tasks of this program wait too.
_TURN = 1

# Bytes in the files of a process, and of each stream of its output, after which it ends. The output of a
# task that has more than 8 MiB of it is cut.
_MOST, _MOST_PRINTED = 64 << 20, 4 << 20

_LONGEST = 0.5


class Call(object):
    """A call, pickled; settle(answer, error) is called once, outside of the lock."""

    def __init__(self, data, settle):
        self.data, self.settle = data, settle
        self.process = None


class _Kind(object):
    def __init__(self, needs, prepare, directory):
        self.needs, self.prepare, self.directory = needs, prepare, directory
        self.single = any(name in needs for name in SINGLE)
        self.waiting = collections.deque()
        self.processes = []

    def count(self, *states):
        return sum(p.state in states for p in self.processes)


class _Process(object):
    def __init__(self, kind, name):
        self.kind, self.name, self.state = kind, name, ASKED
        self.task = self.call = None
        self.reading = threading.Lock()
        self.answers = worker.Reader(name + ".out")
        self.began = self.since = time.monotonic()  # when it was here, when it was last given or gave something
        self.written = 0
        self.printed = [0, 0]  # bytes of its output before this call


class Calls(object):
    """The calls of a pool. start(task, done) has a task run, which has end(); wanted says that other tasks wait."""

    def __init__(self, lock, directory, start, wanted):
        self._lock, self._directory, self._start, self._wanted = lock, directory, start, wanted
        self._changed = threading.Condition(lock)
        self._kinds = {}
        self._pauses = worker.Pauses(_LONGEST)
        self._watcher = None
        self._closing = False

    def prepare(self, fn, args, kwargs):
        """Pickles a call, and says how a process prepares for it."""
        about = multiprocessing.spawn.get_preparation_data("jobpool")
        about.pop("authkey", None)
        if not os.path.isfile(about.get("init_main_from_path", "")):  # a script from standard input or another pipe
            about.pop("init_main_from_path", None)
        if "init_main_from_name" in about or "init_main_from_path" in about:
            return about, worker.dumps((fn, args, kwargs))
        # A notebook, or such a script: other processes do not find what it has defined.
        try:
            import cloudpickle
        except ImportError:
            if getattr(fn, "__module__", None) == "__main__":
                raise pickle.PicklingError("%r is of a notebook, standard input or an interactive session: install cloudpickle, or put it into a module" % fn)
            return about, worker.dumps((fn, args, kwargs))
        return about, cloudpickle.dumps((fn, args, kwargs))

    def add(self, call, about, needs, directory):
        """Has a call made. The lock is held."""
        prepare = pickle.dumps((about, directory))
        key = json.dumps(needs, sort_keys=True), prepare
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(needs, prepare, directory)
        kind.waiting.append(call)
        try:
            self._arrange(kind)
        except BaseException:
            if call in kind.waiting:
                kind.waiting.remove(call)
            raise
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="jobpool calls", daemon=True)
            self._watcher.start()
        self.changed()

    def changed(self):
        """Something has changed for which an idle process may have to end. The lock is held."""
        self._pauses.news()
        self._changed.notify_all()

    def cancel(self, call):
        """Ends a call whose future is cancelled."""
        with self._lock:
            process = call.process
            if process is not None and process.call is call:
                process.state = ENDING
                process.task.end()
                return
            for kind in self._kinds.values():
                if call in kind.waiting:
                    kind.waiting.remove(call)
                    self._arrange(kind)
                    break
            else:
                return  # it is being settled
        call.settle(None, None)

    def close(self):
        """Has processes end when they are idle. The lock is held."""
        self._closing = True
        self.changed()

    def _arrange(self, kind):
        """Gives waiting calls to free processes, and asks for others, or for fewer. The lock is held."""
        for p in kind.processes:
            if p.state == FREE and kind.waiting:
                self._give(p, kind.waiting.popleft())
        here = kind.count(FREE, BUSY)
        while kind.count(ASKED) < min(len(kind.waiting), here + _AHEAD):
            self._ask(kind)
        if not kind.waiting:
            for p in kind.processes:
                if p.state == ASKED:
                    p.state = ENDING
                    p.task.end()

    def _ask(self, kind):
        handle, name = tempfile.mkstemp(dir=self._directory)
        os.close(handle)
        p = _Process(kind, name)
        try:
            open(name + ".out", "wb").close()
            worker.append(name, kind.prepare)
            task = dict(kind.needs, argv=[sys.executable, os.path.abspath(worker.__file__), name], capture=True)
            task.setdefault("cwd", kind.directory)
            p.task = self._start(task, lambda result, error: self._ended(p, result, error))
        except BaseException:
            _remove(name)
            raise
        kind.processes.append(p)

    def _give(self, p, call):
        p.state, p.call, p.since, call.process = BUSY, call, time.monotonic(), p
        try:
            p.written += worker.append(p.name, call.data)
            if p.kind.single:
                worker.append(p.name, worker.END)
        except OSError as e:  # it may have a part of it
            p.state, call.problem = ENDING, e
            p.task.end()

    def _watch(self):
        while True:
            with self._lock:
                all_of_them = [p for kind in self._kinds.values() for p in kind.processes]
                if self._closing and not all_of_them:
                    return
                watched = [p for p in all_of_them if p.state != ENDING]
                now = time.monotonic()
                pause = None
                for p in watched:
                    if p.state == FREE:
                        left = p.since + self._linger() - now
                        if left <= 0:
                            self._leave(p)
                            continue
                        pause = min(left, pause or left)
                looked = [p for p in watched if p.state != ENDING]
                if any(p.state != FREE for p in looked):
                    # Each look is a request to a file server.
                    pause = max(min(self._pauses.next(), pause or _LONGEST), 0.0005 * len(looked))
                self._changed.wait(pause)
            for p in looked:
                self._look(p)

    def _linger(self):
        return 0 if self._closing else _LINGER_WANTED if self._is_wanted(None) else _LINGER

    def _is_wanted(self, kind):
        return self._wanted() or any(k.waiting for k in self._kinds.values() if k is not kind)

    def _leave(self, p):
        p.state = ENDING
        try:
            worker.append(p.name, worker.END)
        except OSError:
            p.task.end()

    def _look(self, p):
        with p.reading:
            while True:
                try:
                    data = p.answers.next()
                except OSError:
                    return  # its task has ended
                if data is None:
                    return
                self._hear(p, data)

    def _hear(self, p, data):
        answer = call = None
        with self._lock:
            now = time.monotonic()
            self._pauses.news()
            kind = p.kind
            if data == worker.HERE:
                if p.state == ASKED:
                    p.state, p.began = FREE, now
            elif data == worker.GONE:
                if p.call is not None and p.state == BUSY:
                    kind.waiting.appendleft(p.call)
                    p.call.process = p.call = None
                p.state = ENDING
            else:
                answer = pickle.loads(data)
                call, p.call = p.call, None
                p.printed = answer[-1]
                if p.state == BUSY:
                    p.state = FREE
                    turn = now - p.began > _TURN and self._is_wanted(kind)
                    if kind.single:
                        p.state = ENDING
                    elif turn or p.written + p.answers.at > _MOST or max(p.printed) > _MOST_PRINTED:
                        self._leave(p)
            p.since = now
            try:
                self._arrange(kind)
            except Exception:
                pass  # the pool has ended, which is told to all
        if call is not None:
            call.settle(answer, None)

    def _ended(self, p, result, error):
        """The task of a process has ended, or error says why it could not run."""
        self._look(p)
        failed = []
        with self._lock:
            kind = p.kind
            if p in kind.processes:
                kind.processes.remove(p)
            if p.call is not None:
                failed.append(p.call)
            elif p.state == ASKED and kind.waiting:
                failed.append(kind.waiting.popleft())
            p.call, p.state = None, ENDING
            if error is not None:
                failed.extend(kind.waiting)
                kind.waiting.clear()
            try:
                self._arrange(kind)
            except Exception as e:
                error = error or e
                failed.extend(kind.waiting)
                kind.waiting.clear()
            if not kind.processes and not kind.waiting:
                self._kinds = {key: k for key, k in self._kinds.items() if k is not kind}
        if result is not None:
            result.stdout_bytes = result.stdout_bytes[p.printed[0]:]
            result.stderr_bytes = result.stderr_bytes[p.printed[1]:]
        _remove(p.name)
        for call in failed:
            call.settle(None, error or getattr(call, "problem", None) or result)


def _remove(name):
    for n in (name, name + ".out"):
        try:
            os.unlink(n)
        except OSError:
            pass
