"""UiPath's custom evaluators: classes in a file (evaluatorSchema: file://FILE.py:CLASS), run by the project's uipath."""

import copy
import datetime
import importlib.util
import os
import pathlib
import sys

from evalrun.evaluators import described
from evalrun.running import run
from evalrun.values import AgentError, plain
from evalrun.worker import message_of


class Classes:
    OPS = ("evaluate", "check")

    def __init__(self, _):
        self.known = {}
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # as UiPath's own command has it

    def close(self):
        pass

    def of(self, message):
        file, folder = message["evaluator"]["file"], message["evaluator"]["folder"]
        key = folder + repr(sorted(file.items(), key=str))
        if key in self.known:
            return self.known[key]
        if not has_uipath():
            raise AgentError("no-package", f"it is a class of UiPath's, and {sys.executable} has no package uipath: {sys.executable} -m pip install uipath")
        try:
            from uipath.eval.evaluators.evaluator_factory import EvaluatorFactory

            # The factory takes name and description out of what it is given.
            made = EvaluatorFactory.create_evaluator(copy.deepcopy(file), evaluators_dir=pathlib.Path(folder))
        except BaseException as error:
            raise AgentError("start", f"the evaluator cannot be loaded: {told(error)}") from error
        self.known[key] = made
        return made

    def evaluate(self, message):
        one, document = self.of(message), message["document"]
        from uipath.eval.models import EvaluationResultDto, ScoreType, WorkloadExecution

        evaluation = document["evaluation"]
        problem, criteria = made(one, document["criteria"], evaluation.get("expectedOutput"))
        if problem:
            raise AgentError("invalid-criteria", f"the criteria do not fit the evaluator: {problem}")
        try:
            execution = WorkloadExecution(
                agent_input=evaluation["inputs"],
                workload_output=document["output"] or {},
                workload_trace=[span(one) for one in document["trace"]],
                expected_agent_behavior=evaluation.get("expectedAgentBehavior"),
            )
            # By position: older classes call the first parameter agent_execution.
            result = run(one.validate_and_evaluate_criteria(execution, criteria))
        except SystemExit as error:
            raise AgentError("exit", f"the evaluator ended itself: {described(error)}") from error
        except BaseException as error:
            raise AgentError("exception", f"the evaluator raised {told(error)}") from error
        dto = EvaluationResultDto.from_evaluation_result(result)
        return {"score": float(dto.score), "scoreType": ScoreType(result.score_type).name.lower(), "details": plain(dto.details)}

    def check(self, message):
        one = self.of(message)
        return [made(one, criteria, None)[0] for criteria in message["criteria"]]


def has_uipath():
    """Whether the package is there. uipath alone says nothing: a mere folder of that name can be imported."""
    try:
        return importlib.util.find_spec("uipath.eval.evaluators") is not None
    except ModuleNotFoundError:
        return False


def made(evaluator, criteria, expected):
    """What is wrong with criteria, and else the criteria as the evaluator's type has them, None for its default."""
    kind = evaluator.evaluation_criteria_type
    if expected is not None and "expected_output" in kind.model_fields:
        criteria = {"expectedOutput": expected, **(criteria or {})}
    try:
        found = kind(**criteria) if criteria else None
    except Exception as error:
        return f"{type(error).__name__}: {message_of(error)}", None
    if found is None and evaluator.evaluator_config.default_evaluation_criteria is None:
        return "there are none, and the evaluator has no defaultEvaluationCriteria", None
    return "", found


def told(error):
    """UiPath's own errors have a title and a detail; what has caused an error says where it was."""
    information = getattr(error, "error_info", None)
    if information is not None:
        return f"{information.title}: {information.detail}"
    return described(error.__cause__ or error)


def span(line):
    """A span of OpenTelemetry, of what its own to_json has written, or of less."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    context, status = line.get("context") or {}, line.get("status") or {}
    own = SpanContext(number(context.get("trace_id")), number(context.get("span_id")), False, TraceFlags(1))
    parent = SpanContext(own.trace_id, number(line["parent_id"]), False) if line.get("parent_id") else None
    code = status.get("status_code")
    return ReadableSpan(
        name=str(line.get("name") or ""),
        context=own,
        parent=parent,
        attributes={key: tuple(one) if isinstance(one, list) else one for key, one in (line.get("attributes") or {}).items()},
        events=[Event(one.get("name") or "", one.get("attributes") or {}, nanoseconds(one.get("timestamp"))) for one in line.get("events") or []],
        status=Status(StatusCode[code] if code in StatusCode.__members__ else StatusCode.UNSET, status.get("description")),
        start_time=nanoseconds(line.get("start_time")),
        end_time=nanoseconds(line.get("end_time")),
    )


def number(text):
    try:
        return int(str(text or 0), 16)  # with 0x and without
    except ValueError:
        return 0


def nanoseconds(time):
    if not isinstance(time, str):
        return time if isinstance(time, int) else None
    try:
        return int(datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1e6) * 1000
    except ValueError:
        return None
