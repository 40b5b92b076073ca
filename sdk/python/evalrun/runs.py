"""Runs of eval sets from Python: run starts the program evalrun, results reads what it has written."""

import dataclasses
import json
import os
import shutil
import subprocess
import tempfile
import typing

Row = typing.Dict[str, typing.Any]

# What the program's exit codes mean. Any other is an error of its input, or of the program itself.
VERDICTS = {0: "passed", 1: "failed", 3: "faulted", 5: "undecided", 75: "suspended"}


class EvalrunError(Exception):
    """The program could not be run, or has said what is wrong with its input."""


@dataclasses.dataclass(frozen=True)
class Run:
    """How a run has ended."""

    verdict: str
    run_id: str
    rows: typing.List[Row]
    output: str

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


def run(evalset: "str | os.PathLike[str]", *options: str, program: typing.Optional[str] = None) -> Run:
    """Runs an eval set, with options of `evalrun run` such as "--agent", "agent.py:main".

    The verdict is "passed", "failed", "faulted", "undecided" or "suspended".
    """
    command = program or os.environ.get("EVALRUN_PROGRAM") or shutil.which("evalrun")
    if not command:
        raise EvalrunError("the program evalrun is not in PATH: pip install evalrun, or set EVALRUN_PROGRAM to it")
    with tempfile.TemporaryDirectory() as folder:
        document = os.path.join(folder, "results.json")
        try:
            ended = subprocess.run(
                [command, "run", "-o", document, *options, os.fspath(evalset)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise EvalrunError(f"{command} cannot be started: {error}") from error
        if ended.returncode not in VERDICTS or not os.path.exists(document):
            raise EvalrunError(f"evalrun ended with {ended.returncode}:\n{ended.stdout.strip()}")
        with open(document, encoding="utf-8") as file:
            read = json.load(file)
    return Run(VERDICTS[ended.returncode], read["runId"], rows_of(read), ended.stdout)


def results(path: "str | os.PathLike[str]") -> typing.List[Row]:
    """The rows of a results document, one for each rollout and evaluator, for pandas.DataFrame and polars.DataFrame.

    A rollout without a result has one row, in which evaluator_id is None.
    """
    with open(path, encoding="utf-8") as file:
        read = json.load(file)
    if "evaluationSetResults" not in read:
        raise EvalrunError(f"{os.fspath(path)} is no results document of evalrun: it has no evaluationSetResults")
    return rows_of(read)


def rows_of(read: typing.Dict[str, typing.Any]) -> typing.List[Row]:
    rows = []
    for rollout in read["evaluationSetResults"]:
        error = rollout.get("error") or {}
        for one in rollout.get("evaluationRunResults") or [{}]:
            found = one.get("result") or {}
            rows.append(
                {
                    "run_id": read.get("runId"),
                    "evaluation_id": rollout["evaluationId"],
                    "evaluation_name": rollout.get("evaluationName"),
                    "rollout_id": rollout.get("rolloutId"),
                    "agent": rollout.get("agent"),
                    "epoch": rollout.get("epoch"),
                    "status": rollout.get("status"),
                    "rollout_score": rollout.get("score"),
                    "evaluator_id": one.get("evaluatorId"),
                    "evaluator_name": one.get("evaluatorName"),
                    "score": found.get("score"),
                    "scale": found.get("scale", 1.0) if one else None,
                    "details": found.get("details"),
                    "evaluator_error": found.get("error"),
                    "evaluator_not_run": found.get("notRun"),
                    "fault": error.get("category"),
                    "fault_message": error.get("message"),
                    "output": ((rollout.get("agentExecutionOutput") or {}).get("result") or {}).get("output"),
                }
            )
    return rows
