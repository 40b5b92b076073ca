"""What UiPath's own package makes of the files of the differential test.

reference.py score DIR OUT    run every eval set of the project DIR; each result goes to OUT/<set>.json
reference.py accept FILE      FILE: [{"evaluator": …} or {"set": …, "evaluators": […]}]; prints for each null or why it is refused
reference.py read FILE...     read evalrun's output with UiPath's model; prints what the model makes of each
"""

import asyncio
import json
import logging
import sys
import tempfile
from pathlib import Path

from opentelemetry import trace
from uipath.core.events import EventBus
from uipath.core.tracing import UiPathTraceManager
from uipath.eval.evaluators.evaluator_factory import EvaluatorFactory
from uipath.eval.helpers import EvalHelpers
from uipath.eval.runtime import UiPathEvalContext, evaluate
from uipath.eval.runtime._types import UiPathEvalOutput
from uipath.runtime import UiPathRuntimeResult
from uipath.runtime.schema import UiPathRuntimeSchema


class Replay:
    """An agent that does what its input says: it makes the spans, then it fails or gives the output."""

    async def execute(self, input=None, options=None):
        tracer = trace.get_tracer("replay")
        for span in input.get("spans", []):
            with tracer.start_as_current_span(span["name"]) as s:
                for key, value in span["attributes"].items():
                    s.set_attribute(key, value)
        if input.get("crash"):
            raise RuntimeError("crash")
        return UiPathRuntimeResult(output=input["output"])

    async def get_schema(self):
        return UiPathRuntimeSchema(filePath="replay", uniqueId="replay", type="agent", input={}, output={})

    async def dispose(self):
        pass


class Factory:
    async def new_runtime(self, entrypoint, runtime_id, **kwargs):
        return Replay()

    async def get_storage(self):
        return None

    async def get_settings(self):
        return None

    async def dispose(self):
        pass


async def score(project, out):
    traces = UiPathTraceManager()
    for path in sorted((project / "evaluations/eval-sets").glob("*.json")):
        context = UiPathEvalContext()
        context.evaluation_set, _ = EvalHelpers.load_eval_set(str(path))
        context.evaluators = await EvalHelpers.load_evaluators(str(path), context.evaluation_set)
        context.execution_id = path.stem
        context.runtime_schema = await Replay().get_schema()
        result = await evaluate(Factory(), traces, context, EventBus())
        (out / path.name).write_text(json.dumps(result.output, default=str))


async def refusal(case):
    with tempfile.TemporaryDirectory() as d:
        sets, files = Path(d, "evaluations/eval-sets"), Path(d, "evaluations/evaluators")
        sets.mkdir(parents=True), files.mkdir()
        try:
            if "evaluator" in case:
                EvaluatorFactory.create_evaluator(case["evaluator"], files)
                return None
            for i, e in enumerate(case["evaluators"]):
                (files / f"{i}.json").write_text(json.dumps(e))
            (sets / "set.json").write_text(case["set"])
            loaded, path = EvalHelpers.load_eval_set(str(sets / "set.json"))
            await EvalHelpers.load_evaluators(path, loaded)
        except Exception as e:
            return f"{type(e).__name__}: {e}"


def read(path):
    output = UiPathEvalOutput.model_validate(json.loads(Path(path).read_text()))
    return {
        "score": output.score,
        "items": [
            {
                "name": item.evaluation_name,
                "results": {r.evaluator_id: [r.result.score, r.result.details] for r in item.evaluation_run_results},
                "status": item.agent_execution_output and item.agent_execution_output.result.status,
            }
            for item in output.evaluation_set_results
        ],
    }


async def accept(path):
    return [await refusal(case) for case in json.loads(Path(path).read_text())]


logging.disable(logging.CRITICAL)
command, *arguments = sys.argv[1:]
if command == "score":
    asyncio.run(score(*map(Path, arguments)))
elif command == "accept":
    json.dump(asyncio.run(accept(*arguments)), sys.stdout)
elif command == "read":
    json.dump([read(path) for path in arguments], sys.stdout, default=str)
