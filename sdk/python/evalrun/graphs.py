"""Agents that are graphs of a langgraph.json.

A graph that calls interrupt() suspends. What LangGraph needs to go on is kept in the rollout's workspace,
whether the graph has a checkpointer or not: it gets one of ours, in memory, which is written when the segment
ends in a suspension.
"""

import io
import json
import os
import pickle
import sys

from evalrun.made import made
from evalrun.running import run
from evalrun.traces import callbacks
from evalrun.values import AgentError, load_object, plain

CHECKPOINT = "langgraph.pickle"
BREAKPOINT = "breakpoint:"
PROMPTS = ("input", "prompt", "query", "question")


class Graph:
    def __init__(self, entrypoint, found=None):
        if found is None:
            entrypoint = of_project(entrypoint)
            found = load_object(entrypoint, os.getcwd())
        found, self.left = made(found, entrypoint, is_graph, "a graph")
        self.graph = found if hasattr(found, "ainvoke") else found.compile()

    def close(self):
        for leave in self.left:
            leave()

    def segment(self, message):
        from langgraph.checkpoint.memory import MemorySaver

        saver, resume = MemorySaver(), message.get("resume")
        file = os.path.join(message["workspace"], CHECKPOINT)
        if resume is not None:
            restore(saver, file)
        graph = self.graph.copy({"checkpointer": saver})  # unlike compile it keeps the graph's breakpoints and store
        config = {"configurable": {"thread_id": message["threadId"]}, "callbacks": callbacks(message)}
        if os.environ.get("LANGCHAIN_RECURSION_LIMIT"):
            config["recursion_limit"] = int(os.environ["LANGCHAIN_RECURSION_LIMIT"])
        step = self.first(message["input"])
        if resume is not None:
            step = answered(run(graph.aget_state(config)), resume)
        output = run(graph.ainvoke(step, config))
        state = run(graph.aget_state(config))
        waits = pending(state)  # before LangGraph 0.4 next is empty though a task waits for its second interrupt
        if waits or getattr(state, "next", None):
            save(saver, file)
            return {"__interrupt__": interrupts(waits, state)}
        return finished(output)

    def first(self, given):
        """The input; a graph of messages may be given a text, alone or under a name that it has no channel for."""
        channels = getattr(self.graph, "channels", None) or {}
        if "messages" not in channels:
            return given
        text = given
        if isinstance(given, dict) and len(given) == 1:
            (key, value), = given.items()
            text = value if key in PROMPTS and key not in channels else None
        return {"messages": [{"role": "user", "content": text}]} if isinstance(text, str) else given


def of_project(entrypoint):
    """Where the graph is that langgraph.json names so; FILE.py:NAME needs none."""
    if ":" in entrypoint:
        return entrypoint
    with open("langgraph.json", encoding="utf-8") as file:
        config = json.load(file)
    graphs = config.get("graphs") or {}
    if not entrypoint and len(graphs) == 1:
        entrypoint = next(iter(graphs))
    if entrypoint not in graphs:
        raise AgentError("start", f"langgraph.json has no graph {entrypoint!r}; it has {', '.join(sorted(graphs)) or 'none'}")
    place = graphs[entrypoint]
    place = place["path"] if isinstance(place, dict) else place
    if os.path.splitext(place.rpartition(":")[0])[1] in (".js", ".ts", ".mjs", ".mts", ".cjs", ".cts"):
        raise AgentError("start", f"the graph {entrypoint!r} is one of Node ({place}); name it with the type node, or with --agent langgraph.json:{entrypoint}")
    for folder in config.get("dependencies") or []:
        if folder.startswith(".") and os.path.isdir(folder):
            sys.path.insert(0, os.path.abspath(folder))
    warn(config)
    return place


def is_graph(found):
    return hasattr(found, "ainvoke") or hasattr(found, "compile")


def warn(config):
    for key in ("checkpointer", "store", "auth"):
        if config.get(key):
            print(f"evalrun: {key!r} of langgraph.json is for LangGraph's server, and is not used", file=sys.stderr)
    wanted = str(config.get("python_version") or "")
    if wanted and not ".".join(map(str, sys.version_info[:3])).startswith(wanted):
        print(f"evalrun: langgraph.json wants Python {wanted}; this is {sys.version.split()[0]}, {sys.executable}", file=sys.stderr)


def pending(state):
    """The interrupts that wait, by their ids: id since LangGraph 0.6, before that interrupt_id, before that only ns."""
    return {
        getattr(one, "id", None) or getattr(one, "interrupt_id", None) or "|".join(getattr(one, "ns", None) or ["interrupt"]): one
        for task in state.tasks
        if not getattr(task, "result", None)
        for one in task.interrupts
    }


def interrupts(waits, state):
    if not waits:  # interrupt_before and interrupt_after: one question, as LangGraph goes on with all nodes together
        nodes = ",".join(state.next)
        return [{"id": BREAKPOINT + nodes, "value": {"breakpoint": nodes}}]
    found = []
    for ident, one in waits.items():
        item = {"id": ident, "value": plain(one.value)}
        if getattr(one, "response_schema", None):
            item["schema"] = plain(one.response_schema)
        found.append(item)
    return found


def answered(state, resume):
    """What a graph is resumed with: exactly the answers that have arrived."""
    from langgraph.types import Command

    answers = {ident: value for ident, value in resume.items() if not ident.startswith(BREAKPOINT)}
    if not answers:
        return None
    waits = pending(state)
    unknown = [ident for ident in answers if ident not in waits]
    if unknown:
        raise AgentError("unresumable", f"the graph does not wait for {unknown[0]}; it waits for {', '.join(sorted(waits)) or 'nothing'}")
    one = next(iter(waits.values()))
    value = next(iter(answers.values()))
    if not hasattr(one, "ns"):
        return Command(resume=answers)
    if len(waits) == 1 and value is not None and value != {}:
        return Command(resume=value)  # the second interrupt of a node cannot be answered by its id here
    if hasattr(one, "interrupt_id"):
        return Command(resume=answers)
    raise AgentError("unresumable", "this version of LangGraph cannot resume one of several interrupts, nor answer null or {}")


def finished(output):
    """The output, with the text of the last answer beside the conversation."""
    if not isinstance(output, dict):
        return output
    document = plain({key: value for key, value in output.items() if key != "__interrupt__"})
    messages = output.get("messages")
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else None
    if getattr(last, "type", None) == "ai" and "result" not in document:
        document["result"] = text_of(last.content)
    return document


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in content)


class Primitive(pickle.Unpickler):
    """Reads a checkpoint, which holds only what Python itself has: it runs no code."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def save(saver, file):
    """Writes what the saver holds: keys, and values that LangGraph has made bytes of."""
    held = {
        "storage": {thread: {ns: dict(one) for ns, one in spaces.items()} for thread, spaces in saver.storage.items()},
        "writes": {key: dict(one) for key, one in saver.writes.items()},
        "blobs": dict(getattr(saver, "blobs", {})),
    }
    with open(file + ".tmp", "wb") as out:
        pickle.dump(held, out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(file + ".tmp", file)


def restore(saver, file):
    try:
        with open(file, "rb") as data:
            held = Primitive(io.BytesIO(data.read())).load()
    except FileNotFoundError:
        raise AgentError("unresumable", f"there is no checkpoint of the graph in the workspace ({file})") from None
    except Exception as error:
        raise AgentError("unresumable", f"the checkpoint of the graph cannot be read ({file}): {error}") from error
    for thread, spaces in held["storage"].items():
        for ns, one in spaces.items():
            saver.storage[thread][ns].update(one)
    for key, one in held["writes"].items():
        saver.writes[key].update(one)
    if held["blobs"]:
        saver.blobs.update(held["blobs"])
