"""Opens a log of Inspect with inspect_ai in all the ways in which it can be opened, and prints what it found as JSON."""

import json
import sys

from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries, write_eval_log

path = sys.argv[1]
log = read_eval_log(path)
header = read_eval_log(path, header_only=True)
assert header.eval == log.eval and header.results == log.results and header.samples is None
write_eval_log(log, path + ".again.eval")
again = read_eval_log(path + ".again.eval")
assert [s.model_dump() for s in again.samples] == [s.model_dump() for s in log.samples]


def call(c):
    return {"id": c.id, "function": c.function, "arguments": c.arguments}


def message(m):
    reasoning = "" if isinstance(m.content, str) else "".join(c.reasoning for c in m.content if c.type == "reasoning")
    return {
        "role": m.role,
        "text": m.text,
        "reasoning": reasoning,
        "calls": [call(c) for c in getattr(m, "tool_calls", None) or []],
        "tool_call_id": getattr(m, "tool_call_id", None) if m.role == "tool" else None,
        "error": bool(getattr(m, "error", None)),
    }


samples = []
for s in log.samples:
    one = read_eval_log_sample(path, s.id, s.epoch)
    assert one.uuid == s.uuid and one.scores == s.scores
    samples.append(
        {
            "id": s.id,
            "epoch": s.epoch,
            "uuid": s.uuid,
            "input": s.input,
            "completion": s.output.completion,
            "scores": {name: score.as_float() for name, score in (s.scores or {}).items()},
            "error": s.error.message if s.error else "",
            "limit": s.limit.type if s.limit else "",
            "total_time": s.total_time,
            "working_time": s.working_time,
            "usage": {name: [u.input_tokens, u.output_tokens, u.total_tokens, u.total_cost] for name, u in s.model_usage.items()},
            "messages": [message(m) for m in s.messages],
            "missing": s.metadata.get("missing", ""),
        }
    )
print(
    json.dumps(
        {
            "status": log.status,
            "task": log.eval.task,
            "model": log.eval.model,
            "sample_ids": log.eval.dataset.sample_ids,
            "metrics": {s.name: {m.name: m.value for m in s.metrics.values()} for s in log.results.scores},
            "completed": log.results.completed_samples,
            "usage": {name: u.total_tokens for name, u in log.stats.model_usage.items()},
            "summaries": [[x.id, x.epoch, x.completed, x.error or ""] for x in read_eval_log_sample_summaries(path)],
            "samples": samples,
        }
    )
)
