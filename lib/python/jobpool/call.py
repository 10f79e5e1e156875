"""Calls a function that jobpool.Pool has pickled: call.py FILE; its value goes to FILE.out."""

import multiprocessing.spawn
import os
import pickle
import sys
import traceback


def outcome(f):
    try:
        multiprocessing.spawn.prepare(pickle.load(f))
        fn, args, kwargs = pickle.load(f)
        return fn(*args, **kwargs), None, ""
    except Exception as e:
        text = traceback.format_exc()  # a traceback cannot be pickled
        sys.stderr.write(text)
        return None, e, text


def main():
    name = sys.argv[1]
    sys.path.pop(0)  # the directory of this file, in which modules have names of their own
    with open(name, "rb") as f:
        out = outcome(f)
    try:
        data = pickle.dumps(out)
        pickle.loads(data)  # some exceptions can be written, and not be read
    except Exception as e:
        what = "value" if out[1] is None else "exception %r" % out[1]
        data = pickle.dumps((None, RuntimeError("the %s cannot be pickled: %s" % (what, e)), out[2]))
    with open(name + ".new", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename(name + ".new", name + ".out")


if __name__ == "__main__":
    main()
