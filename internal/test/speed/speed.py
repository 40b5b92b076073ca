"""Measures evalrun's warm workers beside `uipath eval` and beside a loop in one process of Python.

speed.py EVALRUN    run with the interpreter of an environment made from requirements.lock; prints the rows of docs/performance.md

Every figure is the median of five; what is compared is run by turns, in one run.
"""

import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = int(os.environ.get("EVALRUN_SPEED_ROUNDS", "5"))
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

GRAPH = """
import operator
from typing import Annotated

from typing_extensions import TypedDict

from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    n: int
    log: Annotated[list, operator.add]


def one(state):
    return {"log": [state["n"]]}


def two(state):
    return {"log": [state["n"] + 1]}


graph = StateGraph(State).add_node(one).add_node(two).add_edge(START, "one").add_edge("one", "two").add_edge("two", END).compile()
"""

PLAIN = """
def main(inputs: dict) -> dict:
    return {"log": [inputs["n"], inputs["n"] + 1]}


def memory(inputs: dict) -> dict:
    import os

    with open("/proc/self/statm") as file:
        return {"pid": os.getpid(), "pages": int(file.read().split()[1])}
"""

# What a user would write without evalrun: load the agent once, call it for each input.
LOOPS = {
    "graph": """
import asyncio, json, os, sys
sys.path.insert(0, os.getcwd())
from graph import graph
async def all():
    for n in range(int(sys.argv[1])):
        assert (await graph.ainvoke({"n": n, "log": []}))["log"] == [n, n + 1]
asyncio.run(all())
""",
    "plain": """
import os, sys
sys.path.insert(0, os.getcwd())
from plain import main
for n in range(int(sys.argv[1])):
    assert main({"n": n})["log"] == [n, n + 1]
""",
    "openai-agents": """
import asyncio, os, sys
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
sys.path.insert(0, os.getcwd())
from agents import Runner
from support.agent import agent
async def all():
    for n in range(int(sys.argv[1])):
        assert "delivered" in (await Runner.run(agent, "Where is order 1001?")).final_output
asyncio.run(all())
""",
    "pydantic-ai": """
import asyncio, os, sys
sys.path.insert(0, os.getcwd())
from agent import agent
async def all():
    for n in range(int(sys.argv[1])):
        assert (await agent.run("Where is order 1001?")).output
asyncio.run(all())
""",
}


def project(root, name, file, text, entrypoint, evaluations, named):
    folder = root / name
    sets, evaluators = folder / "evaluations" / "eval-sets", folder / "evaluations" / "evaluators"
    sets.mkdir(parents=True), evaluators.mkdir()
    (folder / file).write_text(text)
    (folder / named).write_text(json.dumps({"graphs" if named == "langgraph.json" else "functions": {"agent": entrypoint}}))
    (folder / "uipath.json").exists() or (folder / "uipath.json").write_text("{}")
    config = {"name": "Log", "targetOutputKey": "log"}
    (evaluators / "log.json").write_text(
        json.dumps({"version": "1.0", "id": "Log", "name": "Log", "description": "", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": config})
    )
    items = [
        {"id": str(n), "name": f"n {n}", "inputs": {"n": n, "log": []}, "evaluationCriterias": {"Log": {"expectedOutput": {"log": [n, n + 1]}}}}
        for n in range(evaluations)
    ]
    (sets / "set.json").write_text(json.dumps({"version": "1.0", "id": "s", "name": "S", "evaluatorRefs": ["Log"], "evaluations": items}))
    return folder


def conversations(root, name, count):
    folder = root / name
    shutil.copytree(REPOSITORY / "fixtures" / name, folder, ignore=shutil.ignore_patterns(".venv", "__pycache__"))
    items = [
        {"id": str(n), "name": f"n {n}", "inputs": {"input": "Where is order 1001?"}, "evaluationCriterias": {"says": {"searchText": "delivered"}}}
        for n in range(count)
    ]
    says = {"id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "says"}}
    (folder / "speed.json").write_text(json.dumps({"version": "1.0", "id": "s", "name": "S", "evaluators": [says], "evaluations": items}))
    return folder


def measured(command, folder, check=None):
    """Seconds by the clock, and of the processors, children included."""
    env = {**os.environ, "UIPATH_TELEMETRY_ENABLED": "false", "VIRTUAL_ENV": sys.prefix, "LANGSMITH_TRACING": "false"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or (check and check not in done.stdout + done.stderr):
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def turns(folder, **commands):
    """The medians of what is run by turns."""
    taken = {name: [] for name in commands}
    for number in range(ROUNDS + 1):  # the first one fills caches, and does not count
        for name, (command, check) in commands.items():
            one = measured(command, folder, check)
            if number:
                taken[name].append(one)
    return {name: [statistics.median(column) for column in zip(*rows)] for name, rows in taken.items()}


def row(what, wanted, text):
    print(f"| {what} | {text} | {wanted} |", flush=True)


def compare(evalrun, root):
    for kind, count, file, named in (("graph", 20, "graph.py", "langgraph.json"), ("plain", 50, "plain.py", "uipath.json")):
        text, entry = (GRAPH, "./graph.py:graph") if kind == "graph" else (PLAIN, "plain.py:main")
        folder = project(root, kind, file, text, entry, count, named)
        taken = turns(
            folder,
            evalrun=([evalrun, "run", "-q", "evaluations/eval-sets/set.json"], None),
            uipath=([os.path.join(sys.prefix, "bin", "uipath"), "eval", "agent", "evaluations/eval-sets/set.json", "--no-report"], None),
            loop=([sys.executable, "-c", LOOPS[kind], str(count)], None),
        )
        ours, theirs, loop = taken["evalrun"], taken["uipath"], taken["loop"]
        name = f"{count} evaluations of " + ("a LangGraph graph" if kind == "graph" else "a plain function")
        row(f"{name}, against `uipath eval`", "0.5 times", f"{ours[0]:.2f} s against {theirs[0]:.2f} s: {ours[0] / theirs[0]:.2f} times")
        row(f"{name}: CPU, against a loop in one process", "1.2 times", f"{ours[1]:.2f} s against {loop[1]:.2f} s: {ours[1] / loop[1]:.2f} times (`uipath eval`: {theirs[1]:.2f} s)")


def beside_a_loop(evalrun, root):
    for kind in ("openai-agents", "pydantic-ai"):
        folder = conversations(root, kind, 20)
        taken = turns(folder, evalrun=([evalrun, "run", "-q", "speed.json"], None), loop=([sys.executable, "-c", LOOPS[kind], "20"], None))
        ours, loop = taken["evalrun"], taken["loop"]
        row(f"20 evaluations of type `{kind}` with a scripted model, against a loop", "0.3 s more", f"{ours[0]:.2f} s against {loop[0]:.2f} s: {ours[0] - loop[0]:+.2f} s (CPU {ours[1]:.2f} s against {loop[1]:.2f} s)")


def segments(root):
    """What a warm worker takes for a segment of a function that does nothing, by its protocol."""
    folder = root / "plain"
    worker = subprocess.Popen(
        [sys.executable, "-u", str(REPOSITORY / "sdk" / "python" / "evalrun"), "python", "plain.py:main"],
        cwd=folder, env={**os.environ, "EVALRUN_NONCE": "n"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    worker.stdout.readline()
    taken = []
    for n in range(1000):
        begun = time.perf_counter()
        request = {"op": "segment", "id": str(n + 1), "input": {"n": n}, "rolloutId": "r", "workspace": str(folder), "traceFile": str(folder / "trace.jsonl"), "env": {}}
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        assert "output" in json.loads(worker.stdout.readline())
        taken.append(time.perf_counter() - begun)
    worker.stdin.close()
    worker.wait()
    row("a segment on a warm worker, of 1,000", "", f"{statistics.median(taken) * 1e3:.2f} ms in the middle")


def memory(evalrun, root):
    """How much a worker grows within 1,000 segments of it; every worker has at most 500."""
    folder = project(root, "memory", "graph.py", GRAPH + MEMORY, "./graph.py:measured", 1000, "langgraph.json")
    measured([evalrun, "run", "-q", "--allow-unscored", "--fail-on-error", "100%", "-o", "results.json", "evaluations/eval-sets/set.json"], folder)
    pages = {}
    for item in json.loads((folder / "results.json").read_text())["evaluationSetResults"]:
        output = item["agentExecutionOutput"]["result"]["output"]
        pages.setdefault(output["pid"], []).append(output["pages"])
    grown = max(max(taken) / sorted(taken)[len(taken) // 100] for taken in pages.values() if len(taken) >= 100)
    row(f"memory of a worker over 1,000 segments of a LangGraph graph ({len(pages)} workers)", "within 10 %", f"{(grown - 1) * 100:+.1f} %")


MEMORY = """

class Measured(State):
    pid: int
    pages: int


def size(state):
    import os

    with open("/proc/self/statm") as file:
        return {"pid": os.getpid(), "pages": int(file.read().split()[1])}


measured = StateGraph(Measured).add_node(one).add_node(two).add_node(size).add_edge(START, "one").add_edge("one", "two").add_edge("two", "size").add_edge("size", END).compile()
"""


def main(evalrun):
    load = os.getloadavg()[0]
    print(f"load {load:.1f} at the start, {os.cpu_count()} processors, Python {sys.version.split()[0]}\n")
    print("| what | figure | wanted |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        compare(evalrun, root)
        beside_a_loop(evalrun, root)
        segments(root)
        memory(evalrun, root)
    print(f"\nload {os.getloadavg()[0]:.1f} at the end")


main(os.path.abspath(sys.argv[1]))
