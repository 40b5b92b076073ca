"""Agents of Pydantic AI.

Calls that need approval, or whose results come from elsewhere, suspend. The messages of the run and the answers
that have arrived are kept in the rollout's workspace: Pydantic AI goes on when all are there.
"""

import json

from evalrun.frameworks import Framework, context_of, decision, finished, known, prompt, question
from evalrun.running import run
from evalrun.traces import Trace
from evalrun.values import AgentError, plain

DEPS = "deps"


class PydanticAI(Framework):
    what = "Pydantic AI"
    file, state = "pydantic_ai.json", "pydantic-ai.json"

    def fits(self, found):
        from pydantic_ai.agent import AbstractAgent

        return isinstance(found, AbstractAgent)

    def segment(self, message):
        resume, given = message.get("resume"), message["input"]
        options = {"deps": context_of(given, DEPS, getattr(self.agent, "deps_type", None)), "output_type": self.output_type()}
        if resume is None:
            said, history = split(prompt(given, DEPS))
            return self.run(message, said, message_history=history, **options)
        held = self.saved(message)
        waits = {one["id"]: one for one in held["waits"]}
        known(resume, waits)
        answers = {**held["answers"], **resume}
        left = [one for ident, one in waits.items() if ident not in answers]
        if left:
            self.save(message, {**held, "answers": answers})
            return {"__interrupt__": left}
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        try:
            history = ModelMessagesTypeAdapter.validate_python(held["messages"])
        except ValueError as error:
            raise AgentError("unresumable", f"the messages of the run cannot be read: {error}") from error
        results = answered(held["approvals"], answers)
        return self.run(message, None, message_history=history, deferred_tool_results=results, **options)

    def output_type(self):
        """What the agent answers with, or with calls that wait; None if the agent says that itself."""
        from pydantic_ai import DeferredToolRequests

        own = self.agent.output_type
        types = list(own) if isinstance(own, (list, tuple)) else [own]
        if DeferredToolRequests in types or getattr(self.agent, "_output_validators", None):
            return None
        return [*types, DeferredToolRequests]

    def run(self, message, said, message_history, **options):
        from pydantic_ai import DeferredToolRequests, capture_run_messages

        before, result = len(message_history), None
        with capture_run_messages() as messages:
            try:
                result = run(self.agent.run(said, message_history=message_history or None, **options))
            finally:  # what a run that fails has used counts, too
                all_messages = result.all_messages() if result is not None else list(messages)
                tell(Trace(message), all_messages, before, result)
        if not isinstance(result.output, DeferredToolRequests):
            return finished(result.output, json.loads(result.all_messages_json()))
        asked = result.output
        waits = [question(call.tool_call_id, call.tool_name, call.args_as_dict()) for call in asked.approvals]
        for call in asked.calls:  # a tool may say what it waits for
            value = (getattr(asked, "metadata", None) or {}).get(call.tool_call_id)
            waits.append({"id": call.tool_call_id, "value": plain(value or {"tool": call.tool_name, "arguments": call.args_as_dict()})})
        self.save(message, {
            "messages": json.loads(result.all_messages_json()), "waits": waits, "answers": {},
            "approvals": [call.tool_call_id for call in asked.approvals],
        })
        return {"__interrupt__": waits}


def split(said):
    """The last message of the user, and those before it, of messages such as OpenAI's."""
    if isinstance(said, str):
        return said, []
    from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart

    history = []
    for one in said:
        role, content = one.get("role"), one.get("content")
        if not isinstance(content, str) or role not in ("system", "user", "assistant"):
            raise AgentError("invalid-input", f"expected messages with a role and a text as content, got {json.dumps(one)[:200]}")
        if role == "assistant":
            history.append(ModelResponse(parts=[TextPart(content=content)]))
        else:
            part = UserPromptPart(content=content) if role == "user" else SystemPromptPart(content=content)
            history.append(ModelRequest(parts=[part]))
    if said[-1]["role"] != "user":
        raise AgentError("invalid-input", "the last of the messages is not the user's")
    return said[-1]["content"], history[:-1]


def answered(approvals, answers):
    """The results that calls have waited for."""
    from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied

    results = DeferredToolResults()
    for ident, answer in answers.items():
        if ident not in approvals:
            results.calls[ident] = answer
            continue
        yes, why = decision(ident, answer)
        if not yes:
            results.approvals[ident] = ToolDenied(message=str(why)) if why else ToolDenied()
        elif isinstance(answer, dict) and isinstance(answer.get("arguments"), dict):
            results.approvals[ident] = ToolApproved(override_args=answer["arguments"])
        else:
            results.approvals[ident] = ToolApproved()
    return results


def tell(trace, messages, before, result):
    """Writes the calls of tools and models of the messages that are new."""
    called, seen = {}, [0, 0, 0]
    for at, one in enumerate(messages):
        for part in one.parts:
            if part.part_kind == "tool-call":
                called[part.tool_call_id] = part
            elif part.part_kind in ("tool-return", "retry-prompt") and at >= before:
                call = called.get(part.tool_call_id)
                # An answer in the form of a call is none, and what was denied was not called.
                if call is None or part.tool_name.startswith("final_result") or getattr(part, "outcome", "") == "denied":
                    continue
                trace.tool(part.tool_name, part.tool_call_id, plain(call.args_as_dict()), plain(part.content))
        if one.kind == "response" and at >= before:
            used = counts(one.usage)
            seen = [seen[i] + used[i] for i in range(3)]
            trace.model(one.model_name, *used)
    if result is not None:  # agents that the agent has called with its own usage have used the rest
        total = result.usage if hasattr(result.usage, "input_tokens") else result.usage()  # a method before version 2
        trace.model(None, *[max(0, counts(total)[i] - seen[i]) for i in range(3)])


def counts(usage):
    """Tokens of the input, those of them that came from a cache, and tokens of the output."""
    return [usage.input_tokens or 0, getattr(usage, "cache_read_tokens", 0) or 0, usage.output_tokens or 0]
