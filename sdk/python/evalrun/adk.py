"""Agents of Google's Agent Development Kit.

A call of a tool that needs confirmation, and a long-running tool, suspend. The events of the session and the
answers that have arrived are kept in the rollout's workspace: the agent goes on when all are there.
"""

import json

from evalrun.frameworks import Framework, context_of, decision, finished, known, prompt, question
from evalrun.running import run
from evalrun.traces import Trace
from evalrun.values import AgentError, plain

STATE = "state"
USER = "user"
CONFIRM = "adk_request_confirmation"


class GoogleADK(Framework):
    what = "Google's ADK"
    file, state = "google_adk.json", "google-adk.json"

    def __init__(self, entrypoint, found=None):
        super().__init__(entrypoint, found)
        from google.adk.apps import App
        from google.adk.runners import InMemoryRunner

        app = isinstance(self.agent, App)
        self.runner = InMemoryRunner(app=self.agent) if app else InMemoryRunner(self.agent, app_name="evalrun")
        self.root = self.agent.root_agent if app else self.agent

    def fits(self, found):
        from google.adk.agents import BaseAgent
        from google.adk.apps import App

        return isinstance(found, (BaseAgent, App))

    def segment(self, message):
        return run(self.follow(message))

    async def follow(self, message):
        given, resume, trace = message["input"], message.get("resume"), Trace(message)
        held, denied = {"state": context_of(given, STATE, None), "events": [], "waits": [], "answers": {}}, set()
        if resume is None:
            said, held["events"] = split(prompt(given, STATE), self.root.name)
        else:
            held = self.saved(message)
            known(resume, [one["id"] for one in held["waits"]])
            held["answers"].update(resume)
            left = [one for one in held["waits"] if one["id"] not in held["answers"]]
            if left:
                self.save(message, held)
                return {"__interrupt__": [shown(one) for one in left]}
            results, said = answered(held, trace, denied)
            held["events"] += results
        service, place = self.runner.session_service, {"app_name": self.runner.app_name, "user_id": USER, "session_id": message["threadId"]}
        try:
            session = await service.create_session(**place, state=held["state"])
            for event in events_of(held["events"]):
                await service.append_event(session, event)
            waits, answer = await self.watch(session, said, trace, denied)
            session = await service.get_session(**place)
        finally:
            await service.delete_session(**place)
        if waits:
            events = [event.model_dump(mode="json", exclude_none=True) for event in session.events]
            self.save(message, {"state": held["state"], "events": events, "waits": waits, "answers": {}})
            return {"__interrupt__": [shown(one) for one in waits]}
        if getattr(self.root, "output_schema", None) is not None:
            try:
                answer = json.loads(answer)
            except ValueError:
                pass  # the text says more than a fault would
        return finished(answer, [event.content.model_dump(mode="json", exclude_none=True) for event in session.events if event.content])

    async def watch(self, session, said, trace, denied):
        """Runs the agent. Returns the calls that wait, and the text of the last answer."""
        calls = {call.id: call for event in session.events for call in event.get_function_calls()}
        results, waiting, answer = {}, [], ""
        async for event in self.runner.run_async(user_id=USER, session_id=session.id, new_message=said):
            if event.partial:
                continue
            if event.error_code:
                raise AgentError("exception", f"{event.error_code}: {event.error_message or 'the model has failed'}")
            used = event.usage_metadata
            if used:
                answered_with = (used.candidates_token_count or 0) + (used.thoughts_token_count or 0)
                model = event.model_version or getattr(self.root, "model", None)
                model = model if isinstance(model, str) else getattr(model, "model", None)
                trace.model(model, used.prompt_token_count or 0, used.cached_content_token_count or 0, answered_with)
            for call in event.get_function_calls():
                calls[call.id] = call
            waiting += [ident for ident in event.long_running_tool_ids or [] if ident not in waiting]
            asks = (event.actions.requested_tool_confirmations or {}) if event.actions else {}
            for one in event.get_function_responses():
                results[one.id] = one.response
                if one.id not in asks and one.id not in denied and one.name != CONFIRM:
                    arguments = calls[one.id].args if one.id in calls else None
                    trace.tool(one.name, one.id, plain(arguments or {}), plain(one.response))
            if event.is_final_response() and event.content and event.content.parts:
                text = "".join(part.text for part in event.content.parts if part.text and not part.thought)
                answer = text or answer
        waits = []
        for ident in waiting:
            if ident in calls:
                one = {"call": ident, "name": calls[ident].name, "args": plain(calls[ident].args or {}), "first": plain(results.get(ident))}
                waits.append({**one, "id": original(one)[0].get("id") or ident})
        return waits, answer


def original(one):
    """The call that a request for confirmation is about, and what its tool says about it."""
    call = one["args"].get("originalFunctionCall") or {}
    hint = (one["args"].get("toolConfirmation") or {}).get("hint") or ""
    return call, "" if hint.startswith("Please approve or reject the tool call") else hint


def shown(one):
    """The interrupt of a call that waits: a long-running tool may say what it waits for with its first result."""
    if one["name"] == CONFIRM:
        call, hint = original(one)
        asked = question(one["id"], call.get("name"), call.get("args"))
        if hint:
            asked["value"]["data"]["hint"] = hint
        return asked
    value = one["first"] if isinstance(one["first"], dict) and one["first"] else {"tool": one["name"], "arguments": one["args"]}
    return {"id": one["id"], "value": value}


def answered(held, trace, denied):
    """What the user says when all answers are there: the last of it, and events before it.

    Confirmations are a message of their own: ADK keeps such messages from the model, with all that is in them.
    """
    results, confirmations = [], []
    for one in held["waits"]:
        answer = held["answers"][one["id"]]
        if one["name"] == CONFIRM:
            yes, why = decision(one["id"], answer)
            if not yes:
                denied.add(one["id"])
            answer = {"confirmed": yes, "payload": {"reason": why}} if why else {"confirmed": yes}
        else:
            answer = answer if isinstance(answer, dict) else {"result": answer}
            trace.tool(one["name"], one["id"], one["args"], answer)
        part = {"function_response": {"id": one["call"], "name": one["name"], "response": answer}}
        (confirmations if one["name"] == CONFIRM else results).append(part)
    from google.genai import types

    contents = [{"role": "user", "parts": parts} for parts in (results, confirmations) if parts]
    return [{"author": "user", "content": one} for one in contents[:-1]], types.Content.model_validate(contents[-1])


def split(said, agent):
    """The last message of the user, and the events of those before it."""
    from google.genai import types

    if isinstance(said, str):
        said = [{"role": "user", "content": said}]
    for one in said:
        if not isinstance(one.get("content"), str) or one.get("role") not in ("user", "assistant"):
            raise AgentError("invalid-input", f"expected messages of user and assistant with a text as content, got {json.dumps(one)[:200]}")
    if said[-1]["role"] != "user":
        raise AgentError("invalid-input", "the last of the messages is not the user's")
    events = []
    for one in said[:-1]:
        mine = one["role"] == "user"
        content = {"role": "user" if mine else "model", "parts": [{"text": one["content"]}]}
        events.append({"author": "user" if mine else agent, "content": content})
    return types.Content(role="user", parts=[types.Part(text=said[-1]["content"])]), events


def events_of(documents):
    from google.adk.events import Event

    try:
        return [Event.model_validate(one) for one in documents]
    except ValueError as error:
        raise AgentError("unresumable", f"the events of the session cannot be read: {error}") from error
