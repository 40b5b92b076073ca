"""Workflows of LlamaIndex, agents among them.

A workflow that has nothing left to do but to wait for people suspends. Its context is kept in the rollout's
workspace.
"""

from evalrun.frameworks import PROMPTS, Framework, finished, known, prompt
from evalrun.running import run
from evalrun.traces import Trace
from evalrun.values import AgentError, plain


class LlamaIndex(Framework):
    what = "LlamaIndex"
    file, key, state = "llama_index.json", "workflows", "llama-index.json"

    def fits(self, found):
        from workflows import Workflow

        return isinstance(found, Workflow)

    def segment(self, message):
        return run(self.follow(message))

    async def follow(self, message):
        """Runs the workflow to its end, or until it waits for what it has asked."""
        from workflows import events

        # Before it was there, the first question ended a segment.
        idle = getattr(events, "WorkflowIdleEvent", events.InputRequiredEvent)
        asked, count, handler = self.begin(message)
        trace = Trace(message)
        stream = handler.stream_events(expose_internal=True) if idle is not events.InputRequiredEvent else handler.stream_events()
        waits = False
        try:
            async for event in stream:
                if isinstance(event, events.InputRequiredEvent):
                    count += 1
                    asked[f"input-{count}"] = value_of(event)
                waits = isinstance(event, idle)
                if waits:
                    break
                tell(trace, event)
        finally:
            await stream.aclose()
        if not waits:
            return answer_of(await handler)
        try:
            context = handler.ctx.to_dict()
        finally:
            await handler.cancel_run()
        if not asked:
            names = ", ".join(one.__name__ for one in self.awaited(context)) or "nothing"
            raise AgentError("exception", f"the workflow waits, and has asked for nothing; it would take {names}")
        self.save(message, {"context": context, "asked": asked, "count": count})
        return {"__interrupt__": [{"id": ident, "value": value} for ident, value in asked.items()]}

    def begin(self, message):
        """What is still asked, how often it was asked at all, and the workflow that runs."""
        from workflows import Context

        resume = message.get("resume")
        if resume is None:
            return {}, 0, self.agent.run(**self.first(message["input"]))
        held = self.saved(message)
        known(resume, held["asked"])
        sent = [self.event(held["context"], ident, value) for ident, value in resume.items()]
        try:
            handler = self.agent.run(ctx=Context.from_dict(self.agent, held["context"]))
        except Exception as error:
            raise AgentError("unresumable", f"the context of the workflow cannot be read: {error}") from error
        for event in sent:
            handler.ctx.send_event(event)
        return {ident: value for ident, value in held["asked"].items() if ident not in resume}, held["count"], handler

    def first(self, given):
        """The members of the input are those of the start event; an agent is told what the user says."""
        if getattr(self.agent, "start_event_class", type).__name__ != "AgentWorkflowStartEvent":
            return given if isinstance(given, dict) else {"input": given}
        if isinstance(given, dict) and not (len(given) == 1 and next(iter(given)) in PROMPTS):
            return given
        said = prompt(given)
        if isinstance(said, str):
            return {"user_msg": said}
        from llama_index.core.llms import ChatMessage

        try:
            return {"chat_history": [ChatMessage.model_validate(one) for one in said]}
        except ValueError as error:
            raise AgentError("invalid-input", f"expected messages with a role and a content: {error}") from error

    def awaited(self, context):
        """The classes of the responses that the workflow takes: those it waits for come first."""
        from workflows.events import HumanResponseEvent

        steps = self.agent._get_steps() if hasattr(self.agent, "_get_steps") else {}
        classes = [one for step in steps.values() for one in getattr(getattr(step, "_step_config", None), "accepted_events", [])]
        known_classes = {f"{one.__module__}.{one.__qualname__}": one for one in [*subclasses(HumanResponseEvent), HumanResponseEvent]}
        workers = (context.get("workers") or {}).values()
        waiting = [known_classes.get(one.get("waiting_for_event")) for worker in workers for one in worker.get("collected_waiters") or []]
        found = []
        for one in [*waiting, *classes]:
            if isinstance(one, type) and issubclass(one, HumanResponseEvent) and one not in found:
                found.append(one)
        return found

    def event(self, context, ident, value):
        """The response that an answer is: of the first class that it fits."""
        from pydantic import ValidationError

        fields, why = value if isinstance(value, dict) else {"response": value}, "it takes none"
        for one in self.awaited(context):
            try:
                return one(**fields)
            except ValidationError as error:
                why = error
        raise AgentError("unresumable", f"the answer to {ident} is no response that the workflow takes: {why}")


def subclasses(kind):
    return [found for one in kind.__subclasses__() for found in (one, *subclasses(one))]


def value_of(event):
    """What an event asks."""
    value = plain(event)
    return {**{key: one for key, one in value.items() if key != "_data"}, **value.get("_data", {})}


def answer_of(result):
    response = getattr(result, "response", None)
    if hasattr(response, "blocks") and hasattr(response, "role"):  # the output of an agent
        return finished(response.content or "", [response])
    return finished(result, []) if isinstance(plain(result), dict) else {"result": plain(result)}


def tell(trace, event):
    """Writes what agents of LlamaIndex tell of calls of tools and models."""
    kind = type(event).__name__
    if kind == "ToolCallResult":
        trace.tool(event.tool_name, event.tool_id, plain(event.tool_kwargs), str(event.tool_output.content))
    elif kind == "AgentOutput":
        raw = plain(event.raw) if event.raw is not None else {}
        used = raw.get("usage") if isinstance(raw, dict) else None
        if isinstance(used, dict):
            cached = (used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}).get("cached_tokens")
            given = used.get("prompt_tokens", used.get("input_tokens"))
            trace.model(raw.get("model"), given or 0, cached or 0, used.get("completion_tokens", used.get("output_tokens")) or 0)
