"""The protocol between evalrun and a worker: one JSON object a line, one segment at a time.

evalrun's page docs/python.md describes it.
"""

import asyncio
import contextvars
import gc
import importlib
import json
import os
import random
import sys
import threading
import time
import traceback

from evalrun import frameworks, mocks, running, spans
from evalrun.values import AgentError, load_object, plain

# What a worker can run, by the type of the agent: the module of this package and the class in it.
KINDS = {
    "python": ("functions", "Function"),
    "uipath": ("functions", "UiPath"),
    "langgraph": ("graphs", "Graph"),
    "openai-agents": ("openai_agents", "OpenAIAgents"),
    "pydantic-ai": ("pydanticai", "PydanticAI"),
    "llamaindex": ("llamaindex", "LlamaIndex"),
    "google-adk": ("adk", "GoogleADK"),
    "evaluators": ("evaluators", "Functions"),
    "uipath-evaluators": ("classes", "Classes"),
}


class Channel:
    """The way to evalrun and back."""

    def __init__(self, receive, answer, nonce):
        self.lines = os.fdopen(receive, "rb")
        self.out, self.nonce, self.pid = answer, nonce, os.getpid()

    def send(self, document):
        if os.getpid() != self.pid:
            os._exit(0)  # a child of os.fork that has come back through the agent's code
        rest = memoryview((json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n").encode())
        while rest:
            rest = rest[os.write(self.out, rest) :]

    def mark(self, kind, ident):
        """Says on stderr where the output of a segment begins and ends."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                pass  # the agent has closed it
        try:
            os.write(2, f"\n\x1e{self.nonce} {kind} {ident}\n".encode())
        except OSError:
            pass


class State:
    """What a segment may leave behind: restored where that is cheap, and otherwise reported."""

    def __init__(self):
        self.home, self.env, self.tasks = os.getcwd(), dict(os.environ), 0
        if running.loop is not None:
            self.tasks = len(asyncio.all_tasks(running.loop))  # those of contexts that the agent was given by

    def enter(self, message):
        os.chdir(self.home)
        env = {**self.env, **(message.get("env") or {})}
        for name in set(os.environ) - set(env):
            del os.environ[name]
        for name, value in env.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
        if message.get("seed") is not None:
            random.seed(message["seed"])
        self.threads = {thread.ident for thread in threading.enumerate()}
        self.cpu, self.wall = time.process_time(), time.monotonic()

    def leave(self):
        dirty, loop = [], running.loop
        if loop is not None and loop.is_closed():
            dirty.append("loop-closed")
        elif loop is not None:
            left = len(asyncio.all_tasks(loop))  # clients that the agent keeps have tasks: none is cancelled
            if left > self.tasks:
                dirty.append(f"tasks:+{left - self.tasks}")
            self.tasks = left
        new = [
            thread.name
            for thread in threading.enumerate()
            if thread.ident not in self.threads and not thread.name.startswith(("asyncio_", "ThreadPoolExecutor", "AnyIO worker"))
        ]
        if new:
            dirty.append("threads:" + ",".join(new[:5]))
        try:
            if os.getcwd() != self.home:
                dirty.append("cwd")
        except OSError:
            dirty.append("cwd")
        return {
            "wallMs": round((time.monotonic() - self.wall) * 1e3, 1),
            "cpuMs": round((time.process_time() - self.cpu) * 1e3, 1),
            "rssKb": rss_kb(),
            "dirty": dirty,
        }


def rss_kb():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)


def failure(error):
    code = "exception"
    if isinstance(error, AgentError):
        code = error.code
    elif isinstance(error, SystemExit):
        code = "exit"
    return {"code": code, "type": type(error).__name__, "message": message_of(error)}


def message_of(error):
    try:
        return str(error)[:4000]
    except Exception:
        return "(its text cannot be had)"


def load(kind, entrypoint):
    module, name = KINDS[kind]
    if kind == "python":  # it may name the agent of a framework, too
        found = load_object(entrypoint, os.getcwd())
        module, name = frameworks.of(found) or (module, name)
        return getattr(importlib.import_module("evalrun." + module), name)(entrypoint, found)
    return getattr(importlib.import_module("evalrun." + module), name)(entrypoint)


def cannot_load(kind, entrypoint, error):
    """The error of an agent that cannot be loaded, with what to do about it."""
    text = message_of(error)
    if not isinstance(error, AgentError):
        text = f"{type(error).__name__}: {text}"
    if isinstance(error, ImportError):
        text += "; install the project's packages: " + how_to_install()
    elif isinstance(error, EOFError):
        text += "; it reads stdin, which is empty while an agent is loaded and run"
    what = f"{kind} {entrypoint}".strip()
    return {"code": "start", "type": type(error).__name__, "message": f"{what} cannot be loaded by {sys.executable}: {text}"}


def how_to_install():
    """The command of the project's own tool."""
    for file, command in (
        ("uv.lock", "uv sync"),
        ("poetry.lock", "poetry install"),
        ("Pipfile.lock", "pipenv sync"),
        ("requirements.lock", f"{sys.executable} -m pip install -r requirements.lock"),
        ("requirements.txt", f"{sys.executable} -m pip install -r requirements.txt"),
        ("pyproject.toml", f"{sys.executable} -m pip install -e ."),
    ):
        if os.path.exists(file):
            return f"{command} (in {os.getcwd()})"
    return f'{sys.executable} -m pip install PACKAGE, or name another interpreter with the key "python"'


def serve(receive, answer, kind, entrypoint):
    """Greets, and does what it is told until evalrun ends or says so."""
    try:
        channel = Channel(receive, answer, os.environ.pop("EVALRUN_NONCE", ""))
        # What is started from here on can be found by the worker and, see State.enter, by the rollout.
        os.environ["EVALRUN_WORKER"] = os.environ.get("EVALRUN_ROLLOUT", "")
        begun = time.monotonic()
        greeting = {"evalrun": 1, "nonce": channel.nonce, "pid": os.getpid(), "kind": kind, "marks": True}
        greeting["python"] = ".".join(map(str, sys.version_info[:3]))
        try:
            agent = load(kind, entrypoint)
            spans.follow(kind)
        except BaseException as error:
            if not isinstance(error, AgentError):
                traceback.print_exc()
            sys.stderr.flush()
            channel.send({**greeting, "error": cannot_load(kind, entrypoint, error)})
            os._exit(3)
        gc.collect()
        gc.freeze()
        greeting["loadMs"] = round((time.monotonic() - begun) * 1e3)
        channel.send({**greeting, "rssKb": rss_kb()})
        follow(channel, agent)
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # threads that the agent has left would keep the process


def follow(channel, agent):
    state = State()
    for line in iter(channel.lines.readline, b""):
        message = json.loads(line)
        if message.get("op") == "exit":
            break
        state.enter(message)
        channel.mark("begin", message["id"])
        played = None
        context = contextvars.copy_context()
        try:
            op = message.get("op", "segment")
            if op not in getattr(agent, "OPS", ("segment",)):
                raise AgentError("exception", f"this worker does not know {op!r}")
            played = context.run(mocks.enter, message)
            with spans.into(message.get("traceFile")):
                answer = {"output": plain(context.run(getattr(agent, op), message))}
            json.dumps(answer, allow_nan=False)
        except BaseException as error:
            if getattr(error, "code", "") != "no-package":  # that is not the agent's
                traceback.print_exc()
            answer = {"error": failure(error)}
        if played:
            answer["mocks"] = played
        stats = state.leave()
        channel.mark("end", message["id"])
        channel.send({"id": message["id"], **answer, "stats": stats})
    agent.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # neither atexit nor threads that the agent has left keep the process
