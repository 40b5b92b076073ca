"""Calls of tools and models, as spans in the segment's trace file."""

import json
import os

from evalrun.values import plain


class Trace:
    """The trace file of a segment."""

    def __init__(self, message):
        self.path, self.ident = message.get("traceFile"), message["rolloutId"].replace("-", "")

    def write(self, name, attributes, span=None):
        if not self.path:
            return
        context = {"trace_id": self.ident, "span_id": span or os.urandom(8).hex()}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "context": context, "attributes": attributes}) + "\n")

    def tool(self, name, call, arguments, output):
        """A call of a tool; call is its id, which may be None."""
        attributes = {"tool.name": name, "input.value": json.dumps(arguments), "output.value": json.dumps({"content": output})}
        self.write(name, {**attributes, "tool_call.id": call} if call else attributes)

    def model(self, name, given, cached, answered):
        """What a call of a model has used, in tokens: of all input, of it from a cache, of the output."""
        if not given and not answered:
            return
        counts = {"input_tokens": given, "cache_read.input_tokens": cached, "output_tokens": answered}
        attributes = {"gen_ai.usage." + key: count for key, count in counts.items()}
        if name:
            attributes["gen_ai.request.model"] = name
        self.write(f"chat {name}" if name else "chat", attributes)


def callbacks(message):
    """LangChain's handlers of a segment."""
    if not message.get("traceFile"):
        return []
    from langchain_core.callbacks import BaseCallbackHandler

    trace = Trace(message)

    class Spans(BaseCallbackHandler):
        run_inline = True

        def __init__(self):
            self.open = {}

        def on_tool_start(self, serialized, input_str, *, run_id, inputs=None, **more):
            name = (serialized or {}).get("name") or more.get("name") or "tool"
            attributes = {"tool.name": name, "input.value": json.dumps(plain(inputs)) if inputs is not None else input_str}
            if more.get("tool_call_id"):
                attributes["tool_call.id"] = more["tool_call_id"]
            self.open[run_id] = name, attributes

        def on_tool_end(self, output, *, run_id, **more):
            call = getattr(output, "tool_call_id", None)
            if call and run_id in self.open:  # LangChain before version 1 tells it only here
                self.open[run_id][1]["tool_call.id"] = call
            self.end(run_id, "output.value", json.dumps({"content": plain(getattr(output, "content", output))}))

        def on_tool_error(self, error, *, run_id, **more):
            if type(error).__name__ in ("GraphInterrupt", "NodeInterrupt"):
                self.open.pop(run_id, None)  # it waits: it has not failed
            else:
                self.end(run_id, "error", repr(error))

        def on_llm_end(self, response, *, run_id, **more):
            self.write(run_id, *usage_of(response))

        def end(self, run_id, key, value):
            name, attributes = self.open.pop(run_id, ("tool", None))
            if attributes is not None:
                self.write(run_id, name, {**attributes, key: value})

        def write(self, run_id, name, attributes):
            if attributes:  # the first digits of an id may be the time: the last ones tell spans apart
                trace.write(name, attributes, run_id.hex[-16:])

    return [Spans()]


def usage_of(response):
    """The name and the attributes of a span for a model's answer; no attributes if it tells no usage."""
    generations = getattr(response, "generations", None) or [[]]
    answer = getattr(generations[0][0], "message", None) if generations[0] else None
    about = {**(getattr(response, "llm_output", None) or {}), **(getattr(answer, "response_metadata", None) or {})}
    used, told = getattr(answer, "usage_metadata", None), about.get("token_usage") or {}
    counts = {"input_tokens": told.get("prompt_tokens"), "output_tokens": told.get("completion_tokens")}
    if used:
        cached = (used.get("input_token_details") or {}).get("cache_read")
        counts = {"input_tokens": used["input_tokens"], "output_tokens": used["output_tokens"], "cache_read.input_tokens": cached}
    attributes = {"gen_ai.usage." + name: count for name, count in counts.items() if count is not None}
    model = about.get("model_name") or about.get("model")
    if attributes and isinstance(model, str):
        attributes["gen_ai.request.model"] = model
    return f"chat {model}", attributes
