"""Tests of the module jobpool, run by python_test.go; RUN is the directory of a pool with 2 CPUs."""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

import jobpool


def shout(text, times=1):
    return text.upper() * times


def fails(text):
    os.write(1, ("out: %s\n" % text).encode())
    sys.stderr.write("err: %s\n" % text)
    raise KeyError(text)


def dies(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
    os._exit(5)


def forks():
    """A child that goes on as its parent does."""
    if os.fork() == 0:
        return "child"
    os.wait()
    return "parent"


def pid(_):
    return os.getpid()


def touch_and_sleep(name):
    open(name, "w").close()
    time.sleep(1000)


@contextlib.contextmanager
def without_cloudpickle():
    before = sys.modules.get("cloudpickle")
    sys.modules["cloudpickle"] = None
    try:
        yield
    finally:
        del sys.modules["cloudpickle"]
        if before:
            sys.modules["cloudpickle"] = before


def where():
    return os.environ["JOBPOOL_NCPUS"], os.getpid()


def wait_for(name):
    for _ in range(1800):
        if os.path.exists(name):
            return name
        time.sleep(0.1)
    raise TimeoutError(name)


CLOUDPICKLE = """import io, marshal, pickle, types

def make(code):
    return types.FunctionType(marshal.loads(code), {"__builtins__": __builtins__})

class Pickler(pickle._Pickler):
    dispatch = dict(pickle._Pickler.dispatch)
    def function(self, f):
        if f.__module__ != "__main__":
            return self.save_global(f)
        self.save_reduce(make, (marshal.dumps(f.__code__),), obj=f)
    dispatch[types.FunctionType] = function

def dumps(value):
    f = io.BytesIO()
    Pickler(f).dump(value)
    return f.getvalue()
"""


class ServedPool(unittest.TestCase):
    def setUp(self):
        self.pool = jobpool.Pool(run=os.environ["RUN"])
        self.addCleanup(self.pool.shutdown)

    def test_planted(self):
        files = os.path.join(os.environ["RUN"], "python")
        self.addCleanup(os.chmod, files, 0o700)
        for mode in 0o770, 0o707:  # who can write there could have anything unpickled
            os.chmod(files, mode)
            with self.assertRaisesRegex(jobpool.PoolError, "others can write to .*/python\""):
                jobpool.Pool(run=os.environ["RUN"])

    def test_functions(self):
        self.assertEqual(list(self.pool.map(shout, ["a", "b"], [1, 3])), ["A", "BBB"])
        self.assertEqual(self.pool.submit(shout, text="c", times=2).result(180), "CC")
        self.assertEqual(self.pool.submit(shout, "x" * 9000000).result(180), "X" * 9000000)
        with self.assertRaises(KeyError) as e:
            self.pool.submit(fails, "here").result(180)
        self.assertEqual(e.exception.args, ("here",))
        cause = e.exception.__cause__
        self.assertIn("in fails", str(cause))
        self.assertEqual((cause.stdout, cause.stderr), ("out: here\n", "err: here\n"))
        self.assertTrue(str(cause).endswith("stdout of the call:\nout: here\nstderr of the call:\nerr: here\n"), str(cause))
        self.pool.shutdown()
        self.assertEqual(os.listdir(os.path.join(os.environ["RUN"], "python")), [])

    def test_functions_are_other_processes(self):
        cpus, pid = self.pool.needs(cpus=2).submit(where).result(180)
        self.assertEqual(cpus, "2")
        self.assertNotEqual(pid, os.getpid())

    def test_processes_stay(self):
        # A machine that stands still for seconds may end one that is idle.
        self.assertLess(len({self.pool.submit(pid, i).result(180) for i in range(100)}), 20)
        self.assertLess(len(set(self.pool.map(pid, range(100)))), 20)
        # Another task gets their CPUs, although calls go on.
        calls = [self.pool.submit(time.sleep, 0.1) for _ in range(40)]
        self.assertEqual(self.pool.run("echo turn", cpus=2).result(180).stdout, "turn\n")
        for f in calls:
            f.result(180)

    def test_calls_concern_no_other(self):
        self.assertEqual(self.pool.submit(forks).result(180), "parent")
        self.pool.submit(fails, "before").exception(180)
        with self.assertRaises(jobpool.TaskFailed) as e:
            self.pool.submit(dies, "last words").result(180)
        self.assertEqual((e.exception.result.exit, e.exception.result.stderr), (5, "last words\n"))
        with self.assertRaises(jobpool.TaskFailed) as e:
            self.pool.submit(sys.exit, 3).result(180)
        self.assertEqual(e.exception.result.exit, 3)
        with self.assertRaises(jobpool.TaskFailed) as e:
            self.pool.needs(timeout=0.2).submit(time.sleep, 1000).result(180)
        self.assertEqual(e.exception.result.what, "timeout")
        with self.assertRaisesRegex(jobpool.PoolError, "no node of the pool has what the task needs"):
            self.pool.needs(cpus=99).submit(shout, "x").result(180)
        self.assertEqual(self.pool.submit(shout, "on").result(180), "ON")

    def test_cancelled_while_others_run(self):
        slow = [self.pool.submit(wait_for, os.path.abspath("later")) for _ in range(2)]
        waiting = self.pool.submit(shout, "never")
        self.assertTrue(waiting.cancel())
        self.assertEqual(concurrent.futures.wait([waiting], 180).done, {waiting})
        began = os.path.abspath("cancelled")
        open("later", "w").close()
        for f in slow:
            f.result(180)
        running = self.pool.submit(touch_and_sleep, began)
        wait_for(began)
        self.assertTrue(running.cancel())
        self.assertEqual(concurrent.futures.wait([running], 180).done, {running})
        self.assertEqual(self.pool.submit(shout, "on").result(180), "ON")

    def test_another_program(self):
        # cancel_futures ends the tasks of this program only.
        other = jobpool.Pool(run=os.environ["RUN"])
        mine = self.pool.submit(wait_for, os.path.abspath("mine"))
        theirs = other.submit(time.sleep, 1000)
        other.shutdown(cancel_futures=True)
        self.assertTrue(theirs.cancelled())
        open("mine", "w").close()
        self.assertEqual(mine.result(180), os.path.abspath("mine"))

    def test_what_cannot_be_pickled(self):
        with without_cloudpickle(), self.assertRaises(Exception):
            self.pool.submit(lambda: 1)
        with self.assertRaisesRegex(RuntimeError, "the value cannot be pickled"):
            self.pool.submit(threading.Lock).result(180)
        self.pool.shutdown()
        self.assertEqual(os.listdir(os.path.join(os.environ["RUN"], "python")), [])

    def test_commands(self):
        r = self.pool.run("cat; echo err >&2; pwd", stdin="in\n", id="mine").result(180)
        self.assertEqual((r.what, r.exit, r.id, r.attempt), ("ok", 0, "mine", 1))
        self.assertEqual((r.stdout, r.stderr), ("in\n" + os.getcwd() + "\n", "err\n"))
        r = self.pool.run(["printf", "%s", "a  b;\u00e9"]).result(180)
        self.assertEqual(r.stdout, "a  b;\u00e9")
        self.assertEqual(self.pool.run(r"printf '\377'").result(180).stdout_bytes, b"\xff")

    def test_failures(self):
        with self.assertRaises(jobpool.TaskFailed) as e:
            self.pool.run("echo no such luck >&2; exit 3").result(180)
        self.assertEqual(e.exception.result.exit, 3)
        self.assertRegex(str(e.exception), r"^task \d+: failed with exit status 3: no such luck$")
        self.assertEqual(self.pool.run("kill -9 $$", check=False).result(180).signal, signal.SIGKILL)
        self.assertEqual(self.pool.run("sleep 100", check=False, timeout=0.2).result(180).what, "timeout")
        with self.assertRaisesRegex(jobpool.PoolError, "no node of the pool has what the task needs"):
            self.pool.run("true", cpus=99).result(180)
        with self.assertRaisesRegex(jobpool.PoolError, "colour"):
            self.pool.run("true", colour="red").result(180)

    def test_cancel(self):
        name = os.path.abspath("never")
        futures = [self.pool.run("echo $$ >began.%d; sleep 1000" % i) for i in range(4)]
        wait_for("began.0")
        for f in futures:
            self.assertTrue(f.cancel())
            self.assertTrue(f.cancelled())
        concurrent.futures.wait(futures, 180)
        self.assertEqual(self.pool.run("echo free", cpus=2).result(180).stdout, "free\n")
        self.assertFalse(os.path.exists(name))

    def test_cancel_answers_late(self):
        # The end of the task is told while the request to end it has not returned.
        send = self.pool._send

        def slow(request, done=None):
            send(request, done)
            if request["op"] == "cancel":
                concurrent.futures.wait([future], 180)

        self.pool._send = slow
        future = self.pool.run("echo >late; sleep 1000")
        wait_for("late")
        self.assertTrue(future.cancel())
        self.assertTrue(future.cancelled())
        self.assertTrue(future.cancel())

    def test_cancelled_functions_leave_nothing(self):
        futures = [self.pool.submit(time.sleep, 1000) for _ in range(4)]
        for f in futures:
            self.assertTrue(f.cancel())
        self.pool.shutdown()
        self.assertEqual(os.listdir(os.path.join(os.environ["RUN"], "python")), [])

    def test_what_cannot_be_sent(self):
        # It concerns no other task, and is not waited for.
        other = self.pool.submit(wait_for, os.path.abspath("sent"))
        with self.assertRaisesRegex(jobpool.PoolError, r"^the task has \d+ bytes, at most 8388608 can be sent"):
            self.pool.run("cat", stdin="x" * (8 << 20))
        with self.assertRaises(TypeError):
            self.pool.run("true", env={"A": object()})
        open("sent", "w").close()
        self.assertEqual(other.result(180), os.path.abspath("sent"))

    def test_as_completed(self):
        slow = self.pool.submit(wait_for, os.path.abspath("go"))
        quick = self.pool.submit(shout, "q")
        done = concurrent.futures.as_completed([slow, quick], 180)
        self.assertIs(next(done), quick)
        open("go", "w").close()
        self.assertIs(next(done), slow)


class Needs(unittest.TestCase):
    """What tasks need, in a pool of two nodes with a GPU each and a licence for both."""

    @classmethod
    def setUpClass(cls):
        os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-a"
        cls.pool = jobpool.Pool(options=["--via-cmd", "env SLURMD_NODENAME={host} {worker}", "--nodes", "2/n1,2/n2",
                                         "--resource", "licence=1.5", "--node-resource", "n2:board=1"])

    @classmethod
    def tearDownClass(cls):
        cls.pool.shutdown()
        del os.environ["CUDA_VISIBLE_DEVICES"]

    def test_named(self):
        show = "echo $JOBPOOL_RESOURCE_LICENCE $JOBPOOL_RESOURCE_BOARD $JOBPOOL_NODE"
        for need in ("licence=0.5,board=1", {"licence": 0.5, "board": 1}, {"board": "1", "licence": "0.5"}):
            self.assertEqual(self.pool.run(show, need=need).result(180).stdout, "0.5 1 n2\n")
        self.assertEqual(self.pool.needs(need="board=1").submit(os.getenv, "JOBPOOL_NODE").result(180), "n2")
        with self.assertRaisesRegex(jobpool.PoolError, "the pool has 1.5 licence in all, and the task needs 2"):
            self.pool.run("true", need={"licence": 2}).result(180)
        with self.assertRaisesRegex(jobpool.PoolError, "neither an object nor a string"):
            self.pool.run("true", need=3).result(180)

    def test_shared_resource(self):
        # The licence is enough for one of them at a time: each makes the file, and none finds it.
        one = "set -C; : >taken && sleep 0.1 && rm taken"
        for f in [self.pool.run(one, need={"licence": 1}) for _ in range(6)]:
            self.assertEqual(f.result(180).what, "ok")

    def test_nodes(self):
        r = self.pool.run("echo $JOBPOOL_NNODES $JOBPOOL_NODELIST $JOBPOOL_NCPUS", nodes=2, cpus=2).result(180)
        self.assertEqual(r.stdout.split(), ["2", "n1,n2", "2"])
        with self.assertRaisesRegex(jobpool.PoolError, "too few nodes"):
            self.pool.run("true", nodes=3).result(180)

    def test_part_of_a_gpu(self):
        r = self.pool.run("echo $CUDA_VISIBLE_DEVICES $JOBPOOL_GPU_SHARE", gpus=0.5).result(180)
        self.assertEqual(r.stdout, "GPU-a 0.5\n")
        with self.assertRaisesRegex(jobpool.PoolError, "neither a whole number nor a part of one GPU"):
            self.pool.run("true", gpus=1.5).result(180)

    def test_need(self):
        for need in ("cpus=2", {"cpus": 2}):
            r = self.pool.run("echo $JOBPOOL_NCPUS", need=need).result(180)
            self.assertEqual(r.stdout, "2\n")
        with self.assertRaisesRegex(jobpool.PoolError, "has alternatives: a task needs one list of resources"):
            self.pool.run("true", need="cpus=1 | gpus=3").result(180)


class OwnPool(unittest.TestCase):
    def test_own(self):
        before = set(os.listdir("."))
        with jobpool.Pool(options=["--jobs", "2"]) as pool:
            values = [pool.submit(shout, "v%d" % i) for i in range(20)]
        self.assertEqual([v.result(0) for v in values], ["V%d" % i for i in range(20)])
        self.assertEqual(set(os.listdir(".")), before)
        with self.assertRaisesRegex(jobpool.PoolError, "shut down"):
            pool.submit(shout, "late")

    def test_program_killed(self):
        code = """if True:
            import jobpool, os, sys, time
            pool = jobpool.Pool()
            pool.submit(time.sleep, 600)
            print(pool._server.pid, flush=True)
            os.kill(os.getpid(), 9)"""
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, -signal.SIGKILL)
        deadline = time.monotonic() + 120
        while os.path.exists("/proc/%d/exe" % int(done.stdout)):  # of a zombie there is none
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)

    def test_no_shutdown(self):
        # Tasks end before the program does, as with other executors, and nothing is left.
        before = set(os.listdir("."))
        code = "import jobpool; jobpool.Pool(options=['-j1']).run('sleep 0.5; echo ended >ended')"
        subprocess.check_call([sys.executable, "-c", code])
        self.assertEqual(set(os.listdir(".")) - before, {"ended"})

    def test_forks(self):
        # A fork can neither use the pool of its parent nor end it.
        with jobpool.Pool(options=["--jobs", "1"]) as pool:
            left = pool.run("echo left")
            pid = os.fork()
            if pid == 0:
                try:
                    left.cancel()
                except jobpool.PoolError:
                    pass
                try:
                    pool.run("true")
                except jobpool.PoolError as e:
                    pool.shutdown()
                    os._exit(7 if "forked" in str(e) else 8)
                finally:
                    os._exit(9)
            self.assertEqual(os.waitpid(pid, 0)[1] >> 8, 7)
            self.assertEqual(left.result(180).stdout, "left\n")
            self.assertEqual(pool.run("echo still").result(180).stdout, "still\n")

    def test_killed(self):
        pool = jobpool.Pool(options=["--jobs", "1"])
        self.addCleanup(pool.shutdown)
        f = pool.run("sleep 1000")
        pool._server.kill()
        with self.assertRaisesRegex(jobpool.PoolError, "the pool has ended"):
            f.result(180)
        with self.assertRaisesRegex(jobpool.PoolError, "the pool has ended"):
            pool.run("true")

    def test_script(self):
        # Functions of a script are found, and a script without a guard does not run again.
        with open("script.py", "w") as f:
            f.write("import jobpool\n\ndef square(x):\n    return x * x\n\n"
                    "if __name__ == '__main__':\n    with jobpool.Pool(options=['-j2']) as pool:\n        print(list(pool.map(square, range(5))))\n")
        out = subprocess.check_output([sys.executable, "script.py"], universal_newlines=True)
        self.assertEqual(out, "[0, 1, 4, 9, 16]\n")

    def test_notebook(self):
        # What a notebook has defined travels with cloudpickle; this one knows functions without closures.
        os.mkdir("modules")
        with open("modules/cloudpickle.py", "w") as f:
            f.write(CLOUDPICKLE)
        code = """if True:
            import jobpool, sys
            def square(x):
                return x * x
            with jobpool.Pool(options=["-j1"]) as pool:
                print(pool.submit(square, 3).result(), pool.submit(lambda x: x + 1, 3).result())
                sys.modules["cloudpickle"] = None
                try:
                    pool.submit(square, 3)
                except Exception as e:
                    print(e)"""
        env = dict(os.environ, PYTHONPATH=os.path.abspath("modules") + ":" + os.environ["PYTHONPATH"])
        out = subprocess.check_output([sys.executable, "-c", code], env=env, universal_newlines=True)
        said = "^9 4\n<function square at .*> is of a notebook, standard input or an interactive session: install cloudpickle"
        self.assertRegex(out, said)
        script = subprocess.Popen([sys.executable], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertRegex(script.communicate(code)[0], said)

    def test_refused(self):
        with self.assertRaisesRegex(jobpool.PoolError, "^jobpool serve ended with exit status 2: jobpool: unknown option --colour: jobpool: hint: "):
            jobpool.Pool(options=["--colour"])
        with self.assertRaisesRegex(jobpool.PoolError, "no run in"):
            jobpool.Pool(run="nothing")


if __name__ == "__main__":
    unittest.main()
