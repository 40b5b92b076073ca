"""What the agents of frameworks have in common: where they are named, their input and output, and approvals."""

import json
import os
import sys

from evalrun.made import made
from evalrun.running import run
from evalrun.values import AgentError, convert, load_object, plain

# The names under which an input may hold what the user says.
PROMPTS = ("messages", "input", "prompt", "query", "question")


class Framework:
    """An agent of a framework. A subclass says how the framework is used."""

    # The file that names the agents of a project, as UiPath's packages read it, and its key.
    file, key = "", "agents"
    # Where what a suspended rollout needs is kept, in its workspace.
    state = ""

    def __init__(self, entrypoint, found=None):
        place = self.place_of(entrypoint)
        if found is None:
            found = load_object(place, os.getcwd())
        self.agent, self.left = made(found, place, self.fits, "an agent of " + self.what)
        self.place = place

    def place_of(self, entrypoint):
        """FILE.py:NAME or module:NAME, which an entrypoint is, or which the project's file names."""
        if ":" in entrypoint:
            return entrypoint
        try:
            with open(self.file, encoding="utf-8") as file:
                places = json.load(file).get(self.key) or {}
        except FileNotFoundError:
            raise AgentError("start", f"there is no {self.file} that names it; name it as FILE.py:NAME") from None
        if not entrypoint and len(places) == 1:
            entrypoint = next(iter(places))
        if entrypoint not in places:
            raise AgentError("start", f"{self.file} names no agent {entrypoint!r}; it names {', '.join(sorted(places)) or 'none'}")
        return places[entrypoint]

    def close(self):
        for leave in self.left:
            leave()

    def save(self, message, document):
        """Keeps what the next segment needs."""
        file = os.path.join(message["workspace"], self.state)
        with open(file + ".tmp", "w", encoding="utf-8") as out:
            json.dump(document, out)
            out.flush()
            os.fsync(out.fileno())
        os.replace(file + ".tmp", file)

    def saved(self, message):
        file = os.path.join(message["workspace"], self.state)
        try:
            with open(file, encoding="utf-8") as held:
                return json.load(held)
        except FileNotFoundError:
            raise AgentError("unresumable", f"there is no state of the agent in the workspace ({file})") from None
        except ValueError as error:
            raise AgentError("unresumable", f"the state of the agent cannot be read ({file}): {error}") from error


def prompt(given, beside=""):
    """What the user says: the one member of an input that is called so, else the whole input as JSON.

    beside is the name of a member that is no part of it.
    """
    if isinstance(given, dict):
        rest = {key: value for key, value in given.items() if key != beside or not isinstance(value, dict)}
        given = next(iter(rest.values())) if len(rest) == 1 and next(iter(rest)) in PROMPTS else rest
    if isinstance(given, str):
        return given
    if isinstance(given, list) and given and all(isinstance(one, dict) for one in given):
        return given
    return json.dumps(given, ensure_ascii=False)


def context_of(given, name, hint):
    """The member of an input that is the context of the run, as the class that the agent declares."""
    value = given.get(name) if isinstance(given, dict) else None
    if not isinstance(value, dict):
        return None
    try:
        return convert(value, hint)
    except Exception as error:
        raise AgentError("invalid-input", f"{name!r} of the input is no {getattr(hint, '__name__', hint)}: {error}") from error


def finished(answer, messages):
    """The output: an object as it is, and anything else with the conversation beside it."""
    answer = plain(answer)
    if isinstance(answer, dict):
        return answer
    return {"result": answer, "messages": said(plain(messages))}


def said(value):
    """Messages without the members that say nothing."""
    if isinstance(value, list):
        return [said(one) for one in value]
    if isinstance(value, dict):
        return {key: said(one) for key, one in value.items() if one is not None and one != [] and one != {}}
    return value


def question(ident, tool, arguments):
    """The interrupt of a call that waits for a person's yes."""
    return {"id": ident, "value": {"title": f"Approve {tool}?", "data": {"tool": tool, "arguments": plain(arguments)}}}


def known(answers, waits):
    """Refuses answers to what nobody has asked."""
    for ident in answers:
        if ident not in waits:
            raise AgentError("unresumable", f"the agent does not wait for {ident}; it waits for {', '.join(sorted(waits)) or 'nothing'}")


def decision(ident, answer):
    """Whether a person has said yes, and why, which may be None. What is neither yes nor no is refused."""
    if isinstance(answer, bool):
        return answer, None
    if isinstance(answer, dict):
        if isinstance(answer.get("approved"), bool):
            return answer["approved"], answer.get("message") or answer.get("reason")
        if "error" in answer:  # the job or the person has failed, and the agent is to know
            return False, json.dumps(plain(answer["error"]), ensure_ascii=False)
    raise AgentError("unresumable", f'the answer to {ident} is neither true, nor false, nor {{"approved": …}}: {json.dumps(answer)[:200]}')


def arguments_of(text):
    """The arguments of a call, which models write as JSON."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


# Types by the package in which their classes are: what an entrypoint without a type may name, too.
PACKAGES = {
    "agents": ("openai_agents", "OpenAIAgents"),
    "langgraph": ("graphs", "Graph"),
    "pydantic_ai": ("pydanticai", "PydanticAI"),
    "workflows": ("llamaindex", "LlamaIndex"),
    "google.adk": ("adk", "GoogleADK"),
}


# Projects have packages of these names, too: what that of the framework has in it.
MEMBERS = {"agents": "Runner", "workflows": "Workflow"}


def of(found):
    """The module and the class for a value of a framework; None for any other value."""
    for one in type(found).__mro__:
        for package, kind in PACKAGES.items():
            if one.__module__ == package or one.__module__.startswith(package + "."):
                if package not in MEMBERS or hasattr(sys.modules.get(package), MEMBERS[package]):
                    return kind
    return None
