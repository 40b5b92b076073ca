"""Evaluators that are functions: FILE.py:NAME, or module:NAME.

A function's parameters are parts of the rollout, by the names in PARTS, or keys of the criteria. So the
criteria can be checked before anything runs.
"""

import dataclasses
import inspect
import os
import traceback
import types
import typing

from evalrun.running import run
from evalrun.values import AgentError, convert, kind_of, load_object
from evalrun.worker import how_to_install, message_of

PARTS = {
    "output": lambda document: document["output"],
    "inputs": lambda document: document["evaluation"]["inputs"],
    "expected_output": lambda document: document["evaluation"].get("expectedOutput"),
    "expected_agent_behavior": lambda document: document["evaluation"].get("expectedAgentBehavior"),
    "criteria": lambda document: document["criteria"],
    "tool_calls": lambda document: document["toolCalls"] or [],
    "trace": lambda document: document["trace"],
    "workspace": lambda document: document["workspace"],
    "evalrun": lambda document: document,
}

Result = typing.Union[bool, float, typing.Dict[str, typing.Any]]
F = typing.TypeVar("F", bound=typing.Callable[..., typing.Any])


def evaluator(function: F) -> F:
    """Marks a function as an evaluator, and changes nothing else: it can be called, and tested, as it is.

    The function returns a score from 0 to 1, True or False, or {"score": …, "details": …}.
    """
    if not callable(function):
        raise TypeError(f"@evalrun.evaluator stands above a function, not above {kind_of(function)}")
    function.__evalrun__ = "evaluator"  # type: ignore[attr-defined]
    return function


class Functions:
    """The worker's side: it loads functions when they are asked for, and keeps them."""

    OPS = ("evaluate", "check")

    def __init__(self, _):
        self.known = {}

    def close(self):
        pass

    def evaluate(self, message):
        return self.of(message).score(message["document"])

    def check(self, message):
        one = self.of(message)
        return [one.problem(criteria) for criteria in message["criteria"]]

    def of(self, message):
        place = message["evaluator"]["place"]
        if place not in self.known:
            self.known[place] = Function(loaded(place))
        return self.known[place]


def loaded(place):
    """The object that a place names; what goes wrong is said so that one knows what to do."""
    try:
        found = load_object(place, os.getcwd())
    except AgentError as error:
        raise AgentError("start", f"the evaluator cannot be loaded: {error}") from error
    except BaseException as error:
        advice = "; install the project's packages: " + how_to_install() if isinstance(error, ImportError) else ""
        raise AgentError("start", f"the evaluator cannot be loaded: {described(error)}{advice}") from error
    if not callable(found):
        raise AgentError("start", f"the evaluator {place} is {kind_of(found)}, which cannot be called")
    return found


def described(error):
    """An error with the last place in the user's own code."""
    own = os.path.dirname(os.path.abspath(__file__))
    frames = [one for one in traceback.extract_tb(error.__traceback__) if os.path.dirname(os.path.abspath(one.filename)) != own]
    frames = [one for one in frames if not one.filename.startswith("<frozen")]
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {message_of(error)}{where}"


class Function:
    def __init__(self, function):
        self.function = function
        unwrapped = inspect.unwrap(function)
        try:
            hints = typing.get_type_hints(unwrapped if inspect.isroutine(unwrapped) else type(unwrapped).__call__)
        except Exception:  # a name that is there for type checkers only
            hints = {}
        self.hints = hints
        self.parameters, self.rest = [], False
        for one in inspect.signature(function).parameters.values():
            if one.kind == one.VAR_KEYWORD:
                self.rest = True
            elif one.kind == one.POSITIONAL_ONLY:
                raise AgentError("start", f"the evaluator's parameter {one.name!r} has no name for callers (it stands before a /)")
            elif one.kind != one.VAR_POSITIONAL:
                self.parameters.append(one)
        self.keys = [one for one in self.parameters if one.name not in PARTS]

    def score(self, document):
        problem = self.problem(document["criteria"])
        if problem:
            raise AgentError("invalid-criteria", f"the criteria do not fit the evaluator: {problem}")
        arguments = {one.name: self.converted(PARTS[one.name](document), one.name) for one in self.parameters if one.name in PARTS}
        given = dict(document["criteria"] or {})
        for one in self.keys:
            for name in spellings(one.name):
                if name in given:
                    arguments[one.name] = self.converted(given.pop(name), one.name)
        if self.rest:
            arguments.update(given)
        try:
            return scored(run(self.function(**arguments)))
        except AgentError:
            raise
        except SystemExit as error:
            raise AgentError("exit", f"the evaluator ended itself: {described(error)}") from error
        except BaseException as error:
            raise AgentError("exception", f"the evaluator raised {described(error)}") from error

    def converted(self, value, name):
        try:
            return convert(value, self.hints.get(name))
        except Exception as error:
            raise AgentError("invalid-input", f"{name} does not fit the evaluator's parameter: {described(error)}") from error

    def problem(self, criteria):
        """What is wrong with criteria; an empty text if nothing is."""
        left = dict(criteria or {})
        if "criteria" in self.hints and any(one.name == "criteria" for one in self.parameters):
            try:
                convert(criteria, self.hints["criteria"])
            except Exception as error:
                return f"{type(error).__name__}: {message_of(error)}"
        for one in self.keys:
            name = next((name for name in spellings(one.name) if name in left), None)
            if name is None:
                if one.default is one.empty:
                    return f"the key {one.name!r} is missing, which the evaluator's parameter of that name asks for"
                continue
            value = left.pop(name)
            if not fits(value, self.hints.get(one.name)):
                return f"{name}: expected {shown(self.hints[one.name])}, got {value!r}"
        free = self.rest or any(one.name in ("criteria", "evalrun") for one in self.parameters)
        if left and not free:
            names = ", ".join(one.name for one in self.keys)
            return f"unknown key {next(iter(left))!r}; the evaluator has " + (f"the keys {names}" if names else "none")
        return ""


def spellings(name):
    """A parameter of two words is a key in snake_case or in camelCase."""
    first, *others = name.split("_")
    return dict.fromkeys((name, first + "".join(one.capitalize() for one in others)))


def fits(value, hint):
    """Whether a JSON value is one that a parameter is declared with. What cannot be told fits."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is typing.Any:
        return True
    if origin is typing.Union or origin is getattr(types, "UnionType", typing.Union):
        return any(value is None if one is type(None) else fits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin in (list, dict):
        return isinstance(value, origin)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint in (str, bool, list, dict):
        return isinstance(value, hint)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and (hasattr(hint, "model_validate") or dataclasses.is_dataclass(hint)):
        try:
            convert(value, hint)
        except Exception:
            return False
    return True


def shown(hint):
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def scored(value):
    """The answer of an evaluator, as evalrun reads it."""
    if isinstance(value, dict):
        if "score" not in value and "__interrupt__" not in value:
            raise AgentError("invalid-output", "the evaluator returned an object without a score; " + WANTED)
        return {**value, "score": number(value["score"])} if "score" in value else value
    return {"score": number(value)}


WANTED = 'expected a number from 0 to 1, True, False, or {"score": …, "details": …}'


def number(value):
    if hasattr(value, "item") and not isinstance(value, dict):  # a number of NumPy
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise AgentError("invalid-output", f"the evaluator returned {value!r:.200} as its score; {WANTED}")
    return float(value) if isinstance(value, bool) else value
