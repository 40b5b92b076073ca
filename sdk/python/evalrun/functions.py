"""Agents that are functions: FILE.py:NAME, and the entry points of a uipath.json."""

import inspect
import json
import os
import typing

from evalrun.running import run
from evalrun.values import AgentError, convert, kind_of, load_object

# The parameter that gets the whole document; a function that has it may be resumed.
WHOLE = "evalrun"
WHOLE_KEYS = ("input", "resume", "deliveries", "rolloutId", "threadId", "workspace")


class Function:
    """A function, async or not, or an object that can be called."""

    def __init__(self, entrypoint, found=None):
        self.function = load_object(entrypoint, os.getcwd()) if found is None else found
        if not callable(self.function):
            raise AgentError("start", f"{entrypoint} is {kind_of(self.function)}, which cannot be called")
        unwrapped = inspect.unwrap(self.function)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self.parameters = [p for p in inspect.signature(unwrapped).parameters.values() if p.kind in kinds]
        try:
            self.hints = typing.get_type_hints(unwrapped if inspect.isroutine(unwrapped) else type(unwrapped).__call__)
        except Exception:  # a name that is there for type checkers only
            self.hints = {}

    def segment(self, message):
        whole = {}
        if any(p.name == WHOLE for p in self.parameters):
            whole = {WHOLE: {key: message.get(key) for key in WHOLE_KEYS}}
        elif message.get("resume") is not None:
            raise AgentError("unresumable", f"the function has no parameter {WHOLE!r}, so it cannot be told what has arrived")
        args, named = self.arguments(message["input"], [p for p in self.parameters if p.name != WHOLE])
        return collected(self.function(*args, **named, **whole))

    def arguments(self, given, parameters):
        """One parameter gets the input; several get its members by their names."""
        if not parameters:
            return [], {}
        first = parameters[0]
        if len(parameters) == 1 or not isinstance(given, dict) or first.name in ("input", "inputs", "state"):
            value = self.converted(given, first.name)
            return ([], {first.name: value}) if first.kind == first.KEYWORD_ONLY else ([value], {})
        return [], {name: self.converted(value, name) for name, value in given.items()}

    def converted(self, value, name):
        try:
            return convert(value, self.hints.get(name))
        except Exception as error:
            raise AgentError("invalid-input", f"the input does not fit the parameter {name!r}: {error}") from error

    def close(self):
        pass


class UiPath(Function):
    """An entry point of uipath.json, called as UiPath's runtime does."""

    def __init__(self, entrypoint):
        with open("uipath.json", encoding="utf-8") as file:
            config = json.load(file)
        places = {**(config.get("agents") or {}), **(config.get("functions") or {})}
        if not entrypoint and len(places) == 1:
            entrypoint = next(iter(places))
        if entrypoint not in places:
            raise AgentError("start", f"uipath.json has no entry point {entrypoint!r}; it has {', '.join(sorted(places)) or 'none'}")
        super().__init__(places[entrypoint])

    def arguments(self, given, parameters):
        return super().arguments({} if given is None else given, parameters[:1])

    def segment(self, message):
        output = super().segment(message)
        if output is None:
            return {}
        return {"result": output} if isinstance(output, (str, int, float, bool, list, tuple)) else output


def collected(output):
    """What a function returns, in the end: generators are lists."""
    output = run(output)
    if inspect.isgenerator(output):
        return list(output)
    if inspect.isasyncgen(output):

        async def drain():
            return [one async for one in output]

        return run(drain())
    return output
