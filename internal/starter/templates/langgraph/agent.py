"""Runs a graph of langgraph.json: one process is one segment of a rollout.

    agent.py [GRAPH]    (the first one by default)

A graph that calls interrupt() is suspended, and resumed from its checkpoint in the rollout's
workspace; that needs the package langgraph-checkpoint-sqlite.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path


def load(place):
    """The variable of "./file.py:name" or "module:name"."""
    where, _, name = place.rpartition(":")
    if not where.endswith(".py"):
        return getattr(importlib.import_module(where), name)
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


async def graph_of(place, stack):
    """A compiled graph, or one that is not, or what makes one."""
    graph = load(place)
    if inspect.isfunction(graph):
        graph = graph({"configurable": {}}) if inspect.signature(graph).parameters else graph()
    if inspect.isawaitable(graph):
        graph = await graph
    if hasattr(graph, "__aenter__"):
        graph = await stack.enter_async_context(graph)
    return graph.compile() if hasattr(graph, "compile") else graph


def plain(value):
    """JSON of a message or another model."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


async def run(envelope):
    graphs = json.loads(Path("langgraph.json").read_text())["graphs"]
    name = sys.argv[1] if len(sys.argv) > 1 else next(iter(graphs))
    if name not in graphs:
        sys.exit(f"langgraph.json has no graph {name!r}; it has {', '.join(graphs)}")
    place = graphs[name]
    async with AsyncExitStack() as stack:
        graph = await graph_of(place["path"] if isinstance(place, dict) else place, stack)
        config = {"configurable": {"thread_id": envelope["threadId"]}}
        step, resume = envelope["input"], envelope["resume"]
        try:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
        except ImportError:
            if resume is not None:
                sys.exit("a graph cannot be resumed without the package langgraph-checkpoint-sqlite")
        else:
            database = str(Path(envelope["workspace"], "checkpoints.db"))
            graph = graph.copy({"checkpointer": await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(database))})
        if resume is not None:
            from langgraph.types import Command

            step = Command(resume=resume)
        result = await graph.ainvoke(step, config)
    if isinstance(result, dict) and "__interrupt__" in result:
        return {"__interrupt__": [{"value": i.value, "id": i.id} for i in result["__interrupt__"]]}
    return result


if __name__ == "__main__":
    sys.path[:0] = [".", "src"]
    printed = sys.stdout
    sys.stdout = sys.stderr  # what the graph prints is no output
    print(json.dumps(asyncio.run(run(json.load(sys.stdin))), default=plain), file=printed)
