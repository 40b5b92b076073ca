"""Agents of the OpenAI Agents SDK.

A call of a tool that needs approval suspends. The SDK's own state of the run is kept in the rollout's
workspace.
"""

import typing

from evalrun.frameworks import Framework, arguments_of, context_of, decision, finished, known, prompt, question
from evalrun.running import enter, run
from evalrun.traces import Trace
from evalrun.values import AgentError, convert, plain

CONTEXT = "context"


class OpenAIAgents(Framework):
    what = "the OpenAI Agents SDK"
    file, state = "openai_agents.json", "openai-agents.json"

    def __init__(self, entrypoint, found=None):
        super().__init__(entrypoint, found)
        # Agent[Class](…) says of which class the context is.
        declared = typing.get_args(getattr(self.agent, "__orig_class__", None))
        self.context = declared[0] if declared else None
        self.connect(self.agent, [])

    def fits(self, found):
        from agents import Agent

        return isinstance(found, Agent)

    def connect(self, agent, seen):
        """Connects servers of MCP that are not, of the agent and of those that it hands over to."""
        if any(agent is one for one in seen):
            return
        seen.append(agent)
        for server in getattr(agent, "mcp_servers", None) or []:
            if getattr(server, "session", server) is None:
                self.left.append(enter(server)[1])
        for other in getattr(agent, "handoffs", None) or []:
            self.connect(other, seen)

    def segment(self, message):
        from agents import Runner
        from agents.exceptions import UserError

        hooks, resume = hooks_of(Trace(message)), message.get("resume")
        given = {"context": context_of(message["input"], CONTEXT, self.context)}
        before, step = [0, 0, 0], prompt(message["input"], CONTEXT)
        if resume is not None:
            held, given = self.saved(message), {}  # the state has the context
            before, step = held["usage"], self.answered(held["state"], resume)
        result = run(Runner.run(self.agent, step, hooks=hooks, **given))
        total = counts(result.context_wrapper.usage)
        hooks.rest([total[i] - before[i] for i in range(3)])
        if not result.interruptions:
            return finished(result.final_output, result.to_input_list())
        try:
            state = result.to_state().to_json()
        except UserError as error:
            raise AgentError("exception", f"the run waits for an approval, and its state cannot be kept: {error}") from error
        self.save(message, {"state": state, "usage": total})
        return {"__interrupt__": [question(ident, one.tool_name, arguments_of(member(one.raw_item, "arguments")))
                                  for ident, one in waiting(result.interruptions).items()]}

    def answered(self, held, answers):
        """The state of the run with the answers that have arrived; the SDK asks for the others again."""
        from agents import RunState

        try:
            state = run(RunState.from_json(self.agent, held, context_deserializer=lambda value: convert(value, self.context)))
        except Exception as error:
            raise AgentError("unresumable", f"the state of the run cannot be read: {error}") from error
        waits = waiting(state.get_interruptions())
        known(answers, waits)
        for ident, answer in answers.items():
            yes, why = decision(ident, answer)
            if yes:
                state.approve(waits[ident])
            elif why:
                state.reject(waits[ident], rejection_message=str(why))
            else:
                state.reject(waits[ident])
        return state


def member(item, name):
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


def waiting(items):
    """The calls that wait, by their ids."""
    return {member(one.raw_item, "call_id") or member(one.raw_item, "id"): one for one in items}


def counts(usage):
    """Tokens of the input, those of them that came from a cache, and tokens of the output."""
    return [usage.input_tokens, getattr(usage.input_tokens_details, "cached_tokens", 0) or 0, usage.output_tokens]


def model_of(agent):
    model = getattr(agent, "model", None)
    if model is None:
        from agents.models import get_default_model

        return get_default_model()
    return model if isinstance(model, str) else getattr(model, "model", None) or type(model).__name__


def hooks_of(trace):
    """What the SDK tells of calls of tools and of models."""
    from agents import RunHooks

    class Hooks(RunHooks):
        seen = [0, 0, 0]

        async def on_tool_end(self, context, agent, tool, result):
            arguments = arguments_of(getattr(context, "tool_arguments", None))
            trace.tool(tool.name, getattr(context, "tool_call_id", None), arguments, plain(result))

        async def on_llm_end(self, context, agent, response):
            used = counts(response.usage)
            self.seen = [self.seen[i] + used[i] for i in range(3)]
            trace.model(model_of(agent), *used)

        def rest(self, total):
            """Counts what agents that are tools have used, of which the SDK tells no hook of ours."""
            trace.model(None, *[max(0, total[i] - self.seen[i]) for i in range(3)])

    return Hooks()
