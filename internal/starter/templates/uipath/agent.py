"""Runs a function or an agent of uipath.json.

    agent.py [NAME]    (the first one by default)
"""

import asyncio
import dataclasses
import importlib.util
import inspect
import json
import sys
import typing
from pathlib import Path


def load(place):
    """The function of "file.py:name"."""
    where, _, name = place.rpartition(":")
    spec = importlib.util.spec_from_file_location(Path(where).stem, where)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def arguments(function, inputs):
    """The input as the function's first parameter wants it: a model, a dataclass, or the object."""
    parameters = list(inspect.signature(function).parameters)
    if not parameters:
        return []
    wanted = typing.get_type_hints(inspect.unwrap(function)).get(parameters[0])
    if hasattr(wanted, "model_validate"):
        return [wanted.model_validate(inputs)]
    if dataclasses.is_dataclass(wanted):
        names = {field.name for field in dataclasses.fields(wanted)}
        return [wanted(**{name: value for name, value in inputs.items() if name in names})]
    return [inputs]


def document(result):
    if result is None:
        return {}
    if hasattr(result, "model_dump"):
        return result.model_dump(mode="json", by_alias=True)
    if dataclasses.is_dataclass(result):
        return dataclasses.asdict(result)
    return result if isinstance(result, dict) else {"result": result}


def run(envelope):
    project = json.loads(Path("uipath.json").read_text())
    places = {**project.get("agents", {}), **project.get("functions", {})}
    name = sys.argv[1] if len(sys.argv) > 1 else next(iter(places), None)
    if name not in places:
        sys.exit(f"uipath.json has no function or agent {name!r}; it has {', '.join(places) or 'none'}")
    function = load(places[name])
    result = function(*arguments(function, envelope["input"] or {}))
    return document(asyncio.run(result) if inspect.iscoroutine(result) else result)


if __name__ == "__main__":
    sys.path[:0] = [".", "src"]
    printed = sys.stdout
    sys.stdout = sys.stderr  # what the function prints is no output
    print(json.dumps(run(json.load(sys.stdin)), default=str), file=printed)
