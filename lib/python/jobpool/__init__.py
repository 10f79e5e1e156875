"""Run commands and Python functions on the nodes of a jobpool.

    import jobpool

    with jobpool.Pool() as pool:                  # this machine, or the nodes of the Slurm job
        print(list(pool.map(pow, range(4), range(4))))
        done = pool.run(["gzip", "-k", "a.txt"], cpus=1, timeout="10m")
        print(done.result().seconds)

Pool is a concurrent.futures.Executor: functions, their arguments and values are pickled, and
go through files in the run directory, which all nodes must see. Commands are run as
"jobpool call" runs them. The only server is "jobpool serve", which Pool starts and ends, or an
existing one, given by Pool(run=DIRECTORY); Pool(alloc=REQUEST) submits jobs. A forked process
cannot use a pool. Cancelling a future ends its task.

Functions are called in processes that stay, and end when idle for 5 seconds (0.2 if other tasks
wait); a call that needs timeout, time, nodes, after, id or stdin has a process of its own. Lambdas
and functions of a notebook need cloudpickle. The cause of an exception is a CallFailed. A command
that does not end well raises TaskFailed.
"""

import atexit
import base64
import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

from .calls import Call, Calls

__all__ = ["Pool", "Result", "PoolError", "TaskFailed", "CallFailed"]


class PoolError(Exception):
    """The pool has ended, cannot be reached, or has refused a task."""


class TaskFailed(PoolError):
    """A task did not end well; result says how."""

    def __init__(self, result):
        PoolError.__init__(self, result)
        self.result = result

    def __str__(self):
        r = self.result
        text = "task %d: %s" % (r.seq, r.what)
        if r.what == "failed":
            text += " with signal %d" % r.signal if r.signal else " with exit status %d" % r.exit
        if r.error:
            text += ": " + r.error
        last = r.stderr.strip().splitlines()[-1:]
        return text + "".join(": " + line for line in last)


class CallFailed(Exception):
    """The cause of an exception that a function has raised: where, and the last of what the call has printed."""

    def __init__(self, traceback, stdout, stderr):
        Exception.__init__(self, traceback, stdout, stderr)
        self.traceback, self.stdout, self.stderr = traceback, stdout, stderr

    def __str__(self):
        text = "\n" + self.traceback
        for name in ("stdout", "stderr"):
            if getattr(self, name):
                text += "%s of the call:\n%s" % (name, getattr(self, name))
        return text


class Result(object):
    """How a command has ended.

    what is ok, failed, nostart, timeout, oom (out of memory), cancelled, refused or output (some of its output is
    lost); seconds is its time, maxrss is in bytes. stdout and stderr are text, in which what is not
    UTF-8 is replaced; stdout_bytes and stderr_bytes are what was printed.
    """

    def __init__(self, answer):
        self.seq = answer["seq"]
        self.id = answer.get("id", "")
        self.what = answer["what"]
        self.exit = answer.get("exit", 0)
        self.signal = answer.get("signal", 0)
        self.error = answer.get("error", "")
        self.node = answer.get("node", "")
        self.attempt = answer.get("attempt", 0)
        self.seconds = answer.get("seconds", 0.0)
        self.maxrss = answer.get("maxrss", 0)
        self.stdout_bytes = _output(answer, "stdout")
        self.stderr_bytes = _output(answer, "stderr")

    @property
    def stdout(self):
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self):
        return self.stderr_bytes.decode("utf-8", "replace")

    def __repr__(self):
        return "<Result of task %d: %s>" % (self.seq, self.what)


def _output(answer, name):
    if name + "_b64" in answer:
        return base64.b64decode(answer[name + "_b64"])
    return answer.get(name, "").encode("utf-8")


def _program():
    """The jobpool of this package, or the one in PATH."""
    own = os.path.join(sysconfig.get_path("scripts"), "jobpool")
    found = own if os.access(own, os.X_OK) else shutil.which("jobpool")
    if not found:
        raise PoolError("jobpool: program not found")
    return found


# The pool ends the connection of a program that sends a longer request, and with it all others of
# the program.
_MOST = 8 << 20


def _line(request):
    """A request as it is sent; an error if it cannot be."""
    line = json.dumps(request).encode("utf-8") + b"\n"
    if len(line) > _MOST:
        raise PoolError("the task has %d bytes, at most %d can be sent: put what it reads into a file" % (len(line), _MOST))
    return line


class _Future(concurrent.futures.Future):
    """A future whose end is ended with it.

    cancel marks it first, as the end may be told before the request for it has returned. Its value is set
    once, by _settle, also if it is cancelled: only then others stop to wait for it.
    """

    def __init__(self, pool):
        concurrent.futures.Future.__init__(self)
        self._pool = pool
        self._end = None  # what ends what it stands for

    def cancel(self):
        self._pool._must_be_ours()
        if self.cancelled() or not concurrent.futures.Future.cancel(self):
            return self.cancelled()
        self._end()
        return True

    def _settle(self, make):
        try:
            if not self.set_running_or_notify_cancel():
                return
            try:
                value = make()
            except BaseException as e:
                self.set_exception(e)
            else:
                self.set_result(value)
        finally:
            self._pool._forget(self)


class _Task(object):
    """A task of the pool. done is called once, with its Result, or with an error if there is none.

    Whoever comes second, end or the number of the task, sees the other, and asks the pool.
    """

    def __init__(self, pool, task, done):
        self._pool, self._done = pool, done
        self._seq = 0  # none has been given yet
        self._unwanted = False
        pool._send({"op": "run", "task": task}, self._taken)

    def end(self):
        self._unwanted = True
        self._ask()

    def _ask(self):
        if self._seq and self._unwanted:
            try:
                self._pool._send({"op": "cancel", "seqs": [self._seq]})
            except PoolError:
                pass  # it has ended, and the task with it

    def _taken(self, answer):
        if answer is None or answer.get("error"):
            return self._ended(answer)
        try:
            self._pool._send({"op": "wait", "seqs": [answer["seq"]]}, self._ended)
        except PoolError:
            return self._ended(None)
        self._seq = answer["seq"]
        self._ask()

    def _ended(self, answer):
        if answer is None:
            self._done(None, PoolError(self._pool._error or "the pool has ended"))
        elif answer.get("error"):
            self._done(None, PoolError(answer["error"]))
        else:
            self._done(Result(answer["result"]), None)


class _Needs(concurrent.futures.Executor):
    """What tasks need, in front of a pool."""

    def __init__(self, pool, needs):
        self._base, self._needs = pool, needs

    def submit(*args, **kwargs):
        self, fn = args[:2]
        return self._base._call(fn, args[2:], kwargs, self._needs)

    def run(self, command, check=True, **needs):
        return self._base.run(command, check=check, **dict(self._needs, **needs))

    def shutdown(self, wait=True, **_):
        """Does nothing: the pool is ended by its own shutdown."""


class Pool(concurrent.futures.Executor):
    """The nodes of a jobpool.

    run is the run directory of a "jobpool serve" that is there. Without it, one is started with
    options (such as ["--nodes", "a,b"]) and ended by shutdown. alloc is a request for lfind: the pool
    submits jobs of its own to Slurm. program is the jobpool to use.
    """

    def __init__(self, run=None, options=(), program=None, patience=60, alloc=None):
        self._program = program or _program()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._closing = False
        self._pid = os.getpid()
        self._tags = itertools.count(1)
        self._waiting = {}  # tag: function of an answer
        self._futures = {}  # those without a value: whether it is of a command
        self._error = None
        self._server = self._own = None
        self._said = collections.deque(maxlen=4)  # the last messages of jobpool
        if alloc is not None:
            if run is not None:
                raise PoolError("run and alloc cannot be combined")
            options, patience = ["--alloc", alloc] + list(options), max(patience, 600)  # lfind asks Slurm
        if run is None:
            # Beside the caller's files, which all nodes have.
            self._own = run = tempfile.mkdtemp(prefix=".jobpool-", dir=os.getcwd())
            # The pipe ends with this program, however that ends, and the pool with the pipe.
            self._server = subprocess.Popen([self._program, "serve", "--quiet", "--until-eof", "--run", run] + list(options),
                                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            self._listener = self._thread("messages", self._complain, self._server.stderr)
        self.run_directory = os.path.abspath(run)
        self._files = os.path.join(self.run_directory, "python")
        try:
            # What lies in the run directory is unpickled, and so runs: jobpool refuses one that others can write.
            self._connect(time.monotonic() + (patience if self._server else 0))
            os.makedirs(self._files, mode=0o700, exist_ok=True)
            self._calls = Calls(self._lock, self._files, lambda task, done: _Task(self, task, done), lambda: any(self._futures.values()))
        except BaseException:
            self._end()
            raise
        atexit.register(self.shutdown)  # as other executors, which let their tasks end

    def _connect(self, deadline):
        while True:
            self._bridge = subprocess.Popen([self._program, "call", "--raw", "--run", self.run_directory],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            why = ""
            try:
                self._write(_line({"op": "list", "tag": "hello"}))
                if self._bridge.stdout.readline():
                    break
            except OSError:
                pass
            why = self._bridge.communicate()[1].decode("utf-8", "replace").strip()
            if self._server and self._server.poll() is not None:
                raise PoolError(self._server_ended())
            if time.monotonic() >= deadline:
                raise PoolError(why or "the pool does not answer")
            time.sleep(0.05)
        self._thread("answers", self._read)
        self._thread("complaints", self._complain, self._bridge.stderr)

    @staticmethod
    def _thread(name, work, *args):
        thread = threading.Thread(target=work, args=args, name="jobpool " + name, daemon=True)
        thread.start()
        return thread

    def _server_ended(self):
        """How the pool of this program has ended, with its last messages."""
        self._listener.join(10)  # what it has left may keep the pipe open
        return ": ".join(["jobpool serve ended with exit status %d" % self._server.wait()] + list(self._said))

    def _write(self, line):
        with self._lock:
            self._bridge.stdin.write(line)
            self._bridge.stdin.flush()

    def _must_be_ours(self):
        if os.getpid() != self._pid:
            raise PoolError("the pool is that of process %d, from which this one was forked" % self._pid)

    def _send(self, request, done=None):
        """Sends a request; done gets its answer, or None if there is none."""
        self._must_be_ours()
        with self._lock:
            if self._error:
                raise PoolError(self._error)
            tag = str(next(self._tags))
            line = _line(dict(request, tag=tag) if done else request)
            if done:
                self._waiting[tag] = done
            try:
                self._write(line)
            except OSError:
                self._waiting.pop(tag, None)
                raise PoolError("the pool has ended")

    def _read(self):
        with self._bridge.stdout as answers:
            for line in answers:
                answer = json.loads(line.decode("utf-8", "replace"))
                with self._lock:
                    done = self._waiting.get(answer.get("tag"))
                if done:
                    done(answer)
                with self._lock:
                    self._waiting.pop(answer.get("tag"), None)
                    self._changed.notify_all()
        with self._lock:
            self._error = self._error or "the pool has ended"
            left, self._waiting = list(self._waiting.values()), {}
            self._changed.notify_all()
        for done in left:
            done(None)

    def _complain(self, stream):
        with stream as complaints:
            for line in complaints:
                text = line.decode("utf-8", "replace")
                self._said.append(text.strip())
                sys.stderr.write(text)

    def run(self, command, check=True, **needs):
        """Has a command run, and returns the future of its Result.

        A string is for the shell, a list is a program with its arguments. needs are the fields of a
        task as jobpool --jsonl has them: cpus, gpus, mem, need, nodes, timeout, time, priority, cwd, env, id,
        after, stdin (a str). need is a str such as "license=1" or a dict. With check, a task that does not end well is a TaskFailed.
        """
        task = dict(needs, capture=True)
        task["cmd" if isinstance(command, str) else "argv"] = command if isinstance(command, str) else [os.fspath(word) for word in command]
        task.setdefault("cwd", os.getcwd())

        def value(result, error):
            if error:
                raise error
            if check and result.what != "ok":
                raise TaskFailed(result)
            return result

        with self._future(True) as future:
            sent = _Task(self, task, lambda result, error: future._settle(lambda: value(result, error)))
            future._end = sent.end
            self._calls.changed()
        return future

    @contextlib.contextmanager
    def _future(self, command):
        """A future for what is sent under the lock; there is none if that raises."""
        self._must_be_ours()
        future = _Future(self)
        with self._lock:
            if self._closing:
                raise PoolError("the pool is shut down")
            if self._error:
                raise PoolError(self._error)
            self._futures[future] = command
            try:
                yield future
            except BaseException:
                del self._futures[future]
                raise

    def _forget(self, future):
        with self._lock:
            self._futures.pop(future, None)
            self._changed.notify_all()

    def submit(*args, **kwargs):
        """Has a function run with arguments, and returns the future of its value."""
        self, fn = args[:2]
        return self._call(fn, args[2:], kwargs, {})

    def needs(self, **needs):
        """An executor whose functions and commands need that: cpus, gpus, mem, need, nodes, timeout, time."""
        return _Needs(self, needs)

    def _call(self, fn, args, kwargs, needs):
        self._must_be_ours()
        about, data = self._calls.prepare(fn, args, kwargs)

        def value(answer, failed):
            if isinstance(failed, Result):
                raise TaskFailed(failed)
            if failed:
                raise failed
            returned, data, trace, printed, _ = answer
            value = pickle.loads(data)
            if returned:
                return value
            value.__cause__ = CallFailed(trace, *(p.decode("utf-8", "replace") for p in printed))
            raise value

        with self._future(False) as future:
            call = Call(data, lambda answer, failed: future._settle(lambda: value(answer, failed)))
            future._end = lambda: self._calls.cancel(call)
            self._calls.add(call, about, needs, needs.get("cwd") or os.getcwd())
        return future

    def shutdown(self, wait=True, cancel_futures=False):
        """Ends the connection when all tasks have ended, and the pool if it was started here.

        With cancel_futures, tasks are ended. Without wait, that goes on in the background.
        """
        if os.getpid() != self._pid:
            return  # a fork must not end the pool of its parent, and has none of its threads
        with self._lock:
            if self._closing:
                return
            self._closing = True
            futures = list(self._futures) if cancel_futures else []
        for future in futures:
            future.cancel()
        if wait:
            self._finish()
        else:
            threading.Thread(target=self._finish, name="jobpool shutdown").start()

    def _finish(self):
        atexit.unregister(self.shutdown)
        with self._lock:
            while self._futures and not self._error:
                self._changed.wait()
            self._calls.close()
            while self._waiting and not self._error:
                self._changed.wait()
            for last in [lambda: self._write(_line({"op": "drain"}))] * bool(self._server) + [self._bridge.stdin.close]:
                try:
                    last()
                except OSError:
                    pass  # it has ended
        self._bridge.wait()
        self._end()

    def _end(self):
        if not self._server:
            return
        if not self._closing:
            self._server.terminate()  # it has not begun well
        self._server.wait()
        self._server.stdin.close()
        self._listener.join(10)
        shutil.rmtree(self._own, ignore_errors=True)
