"""Writes harbor_metrics.json: rewards, and what Harbor's own metrics make of them. Needs harbor==0.24.0."""

import json
import pathlib
import random

from harbor.metrics.max import Max
from harbor.metrics.mean import Mean
from harbor.metrics.min import Min
from harbor.metrics.sum import Sum

random.seed(1)
NAMES = ["reward", "accuracy", "style"]


def number():
    return random.choice([0.0, 1.0, 0.1, 0.25, -2.5, 1e16, random.random()])


def reward(names):
    if random.random() < 0.2:
        return None
    return {name: number() for name in names}


cases = [[None], [None, None], [{"reward": 0.1}] * 10, [{"reward": 1.0}, None, {"reward": 0.5}], [{"accuracy": -1}, None]]
cases.append([{"reward": 1, "accuracy": 0.5}, {"reward": 0}, {"accuracy": 0.25}, None])
for i in range(40):
    names = [NAMES[:1], NAMES[1:2], NAMES, NAMES[:2]][i % 4]
    cases.append([reward(random.sample(names, random.randint(1, len(names)))) for _ in range(random.randint(1, 12))])
out = [{"rewards": c, "want": {k: m().compute(c) for k, m in {"mean": Mean, "sum": Sum, "min": Min, "max": Max}.items()}} for c in cases]
pathlib.Path(__file__).with_suffix(".json").write_text("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
