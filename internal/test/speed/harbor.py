#!/usr/bin/env python3
"""Prints the rows of docs/performance.md that have evalrun beside Harbor.

    internal/test/speed/harbor.py --harbor VENV [--host-network] [--at-once N] [--rounds N] TASKDIR...

Each runs the tasks with their own solutions in containers of the Docker daemon that the command docker would
ask. The first round builds the images and does not count; in the others both are run by turns, and the medians
are printed. Rewards that differ are an error.

VENV is a virtual environment of Python 3.12 with what internal/test/exports/harbor.lock names. Harbor needs the
command docker with its plugin compose. --host-network is for a daemon that has no bridge: evalrun then gives
containers and builds the network of the daemon's machine by itself, and Harbor is told to by a compose file.
"""

import argparse
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


def measured(command, folder, env):
    """Seconds by the clock, and of this machine's processors without the daemon's."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, env={**os.environ, **env}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):  # 1: a score of evalrun's that is not 1
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Evalrun:
    def __init__(self, folder, options):
        self.folder, self.at_once = folder, options.at_once
        subprocess.run(["go", "build", "-o", folder, "./cmd/evalrun"], check=True)

    def run(self, number):
        command = [self.folder / "evalrun", "run", "-q", "--isolation", "docker", "-j", self.at_once, "--agent", "oracle",
                   "--store", f"store{number}", "-o", "results.json", "tasks"]
        used = measured([str(word) for word in command], self.folder, {"EVALRUN_IMAGES": str(self.folder / "images")})
        results = json.loads((self.folder / "results.json").read_text())["evaluationSetResults"]
        return used, {one["evaluationName"].split("/")[-1]: one["score"] for one in results}


class Harbor:
    def __init__(self, folder, options):
        self.folder = folder
        self.command = [pathlib.Path(options.harbor).resolve() / "bin/harbor", "run", "-p", "tasks", "-a", "oracle", "-e", "docker",
                        "-n", options.at_once, "-q", "-y"]
        if options.host_network:
            (folder / "network.yaml").write_text("services: {main: {network_mode: host, build: {network: host}}}\n")
            self.command += ["--extra-docker-compose", "network.yaml"]

    def run(self, number):
        jobs = self.folder / f"jobs{number}"
        used = measured([str(word) for word in [*self.command, "-o", jobs]], self.folder,
                        # what asks the internet, and takes seconds where there is none
                        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0", "DO_NOT_TRACK": "1"})
        results = [json.loads(file.read_text()) for file in jobs.glob("*/*/result.json")]
        for one in results:
            if one["exception_info"]:
                print(one["task_name"], one["exception_info"]["exception_message"], file=sys.stderr, flush=True)
        return used, {one["task_name"].split("/")[-1]: (one["verifier_result"] or {}).get("rewards", {}).get("reward") for one in results}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--harbor", required=True)
    options.add_argument("--host-network", action="store_true")
    options.add_argument("--at-once", type=int, default=2)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("tasks", nargs="+")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for task in options.tasks:
            shutil.copytree(task, folder / "tasks" / pathlib.Path(task).name)
        both = [Evalrun(folder, options), Harbor(folder, options)]
        taken = [[], []]
        for number in range(options.rounds + 1):
            rewards = []
            for one, all_taken in zip(both, taken):
                used, got = one.run(number)
                rewards.append(got)
                if number:
                    all_taken.append(used)
                print(number, type(one).__name__, "%.1f s" % used[0], file=sys.stderr, flush=True)
            if rewards[0] != rewards[1] or len(rewards[0]) != len(options.tasks):
                sys.exit(f"the rewards differ:\nevalrun {rewards[0]}\nHarbor  {rewards[1]}")
    walls = [statistics.median(wall for wall, _ in one) for one in taken]
    print(f"{len(options.tasks)} tasks, {options.at_once} agents or trials at once; rewards {rewards[0]}\n")
    print("| | wall | of Harbor's | CPU, without the daemon |\n|---|---|---|---|")
    for name, one, wall in zip(("evalrun", "Harbor"), taken, walls):
        print(f"| {name} | {wall:.1f} s | {wall / walls[1]:.2f} | {statistics.median(cpu for _, cpu in one):.1f} s |")


if __name__ == "__main__":
    main()
