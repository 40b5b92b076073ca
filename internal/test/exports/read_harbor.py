"""Validates the ATIF trajectories on stdin, one a line, with Harbor's models, and prints for each a JSON object of what is wrong and of what it has."""

import json
import sys

from harbor.models.trajectories import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator

for line in sys.stdin:
    v = TrajectoryValidator()
    trajectory = json.loads(line)
    v.validate(trajectory)
    t = Trajectory(**trajectory) if not v.errors else None
    steps = t.steps if t else []
    print(
        json.dumps(
            {
                "errors": v.errors,
                "same": t is not None and t.to_json_dict() == {k: w for k, w in Trajectory(**t.to_json_dict()).to_json_dict().items()},
                "id": t.trajectory_id if t else "",
                "steps": [[s.source, s.message, s.reasoning_content or "", [c.function_name for c in s.tool_calls or []]] for s in steps],
                "results": [r.content for s in steps if s.observation for r in s.observation.results],
                "tokens": [t.final_metrics.total_prompt_tokens, t.final_metrics.total_completion_tokens] if t else None,
                "status": t.extra["status"] if t else "",
                "score": t.extra["score"] if t else None,
                "notes": t.notes or "" if t else "",
            }
        )
    )
