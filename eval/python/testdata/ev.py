"""Evaluators that do as they please."""

import os
import time

import evalrun
from beside import half

calls = 0


@evalrun.evaluator
def counts(output):
    global calls
    calls += 1
    return {"score": 1, "details": str(calls)}


def neighbour(output):
    return half(1)


def prints(output):
    print("hello")
    os.write(1, b"hello\n")
    return True


async def later(output, expected_output):
    return {"score": 1, "details": {"expected": expected_output}}


def waits(output, evalrun):
    if evalrun.get("resume"):
        return evalrun["resume"]["x"] == "yes"
    return {"__interrupt__": [{"id": "x", "value": {"q": "ok?"}}]}


def tells(output, criteria, inputs, tool_calls, trace, workspace, expected_agent_behavior):
    return {"score": 1, "details": {"told": [output, criteria, inputs, tool_calls, trace, workspace, expected_agent_behavior]}}


class Model:
    """An object that can be called, and whose parameter is a key of two words."""

    def __call__(self, output, most_words: int = 1):
        return most_words == 7


model = Model()


def raises(output):
    raise ValueError("bad thing")


def text(output):
    return "0.5"


def none(output):
    pass


def nan(output):
    return float("nan")


def high(output):
    return 5


def unscored(output):
    return {"details": "?"}


def forged(output):
    return {"score": 1, "details": [1]}


def leaves(output):
    print("on my way")
    os._exit(4)


def ends(output):
    raise SystemExit(3)


def hangs(output):
    print("waiting")
    while True:
        time.sleep(60)


def large(output):
    return {"score": 1, "details": "x" * (2 << 20)}


def nameless(output, /):
    return 1


def keys(output, most: int, name: str = "", share: float = 1.0, tags: list = (), deep: dict = None):
    return 1
