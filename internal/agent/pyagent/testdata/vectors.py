"""Functions that do what agents do to their workers; main does what its input says."""

import asyncio
import ctypes
import dataclasses
import faulthandler
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from typing import Optional

print("printed at the import")
count = 0
conversation = None


def square(x):
    return x * x


def prints():
    print("by print")
    os.write(1, b"by write\n")
    ctypes.CDLL(None).puts(b"by C")
    ctypes.CDLL(None).fflush(None)
    subprocess.run(["echo", "by a child"], check=True)
    return {"output": "unharmed"}


def nested():
    inner = {}
    inner["itself"] = inner
    return inner


def recurse():
    return recurse()


def changes():
    seen = [os.getcwd() == "/", "LEFT" in os.environ, "HOME" in os.environ, os.environ.get("EVALRUN_TRACE_FILE", "")[-11:]]
    os.chdir("/")
    os.environ["LEFT"] = "1"
    os.environ.pop("HOME", None)
    return seen


def thread():
    threading.Thread(target=threading.Event().wait, name="leaky").start()
    return "left"


def forks():
    if os.fork() == 0:
        return "the child's"
    os.wait()
    return "the parent's"


def pool():
    with multiprocessing.get_context("spawn").Pool(1) as workers:
        return workers.map(square, [2, 3])


def counts():
    global count
    count += 1
    return [count, os.getpid()]


def segfaults():
    faulthandler.disable()
    os.kill(os.getpid(), signal.SIGSEGV)


async def kept_connection():
    """A client that belongs to the loop in which it was made."""
    global conversation
    if conversation is None:
        left, right = asyncio.Queue(), asyncio.Queue()

        async def echo():
            while True:
                await right.put(await left.get())

        conversation = left, right, asyncio.get_running_loop().create_task(echo())
    await conversation[0].put("hello")
    return await asyncio.wait_for(conversation[1].get(), 60)


def runs():
    async def inner():
        return "run"

    return asyncio.run(inner())


def generator():
    yield from (1, 2)


async def async_generator():
    for one in (1, 2):
        yield one


def raises():
    raise ValueError("bad thing")


ACTIONS = {
    "prints": prints,
    "stdin": lambda: sys.stdin.read(),
    "exit": lambda: sys.exit(3),
    "os._exit": lambda: os._exit(4),
    "segfault": segfaults,
    "hang": lambda: threading.Event().wait(),
    "close": lambda: os.closerange(3, 64),
    "raise": raises,
    "recurse": recurse,
    "nan": lambda: {"x": float("nan")},
    "function": lambda: {"x": square},
    "class": lambda: int,
    "key": lambda: {(1, 2): 1},
    "set": lambda: {1},
    "circle": nested,
    "surrogate": lambda: "\ud800",
    "big": lambda: "x" * 200_000,
    "changes": changes,
    "thread": thread,
    "run": runs,
    "fork": forks,
    "pool": pool,
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "count": counts,
    "connection": kept_connection,
    "generator": generator,
    "async generator": async_generator,
    "suspend": lambda: {"__interrupt__": [{"id": "i1", "value": {"ask": "name"}}]},
}


def main(given):
    return ACTIONS[given["do"]]()


def two(a: int, b: int = 5):
    return a + b


@dataclasses.dataclass
class Point:
    x: int
    y: int = 2


@dataclasses.dataclass
class Given:
    p: Point
    name: Optional[str] = None


async def typed(given: Given):
    return given


def resumable(evalrun):
    if evalrun["resume"] is None:
        return {"__interrupt__": [{"id": "i1", "value": {"ask": "name"}}]}
    return {"got": evalrun["resume"]["i1"], "status": evalrun["deliveries"]["i1"]["status"]}


class Bot:
    def __call__(self, given):
        return ["called", given]

    @staticmethod
    def method(given):
        return ["method", given]


bot = Bot()
