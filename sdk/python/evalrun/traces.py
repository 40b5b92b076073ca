"""Calls of tools and models that LangChain reports, as spans in the segment's trace file."""

import json

from evalrun.values import plain


def callbacks(message):
    """The handlers of a segment."""
    path = message.get("traceFile")
    if not path:
        return []
    from langchain_core.callbacks import BaseCallbackHandler

    trace = message["rolloutId"].replace("-", "")

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
            if not attributes:
                return
            # The first digits of an id may be the time: the last ones tell spans apart.
            span = {"name": name, "context": {"trace_id": trace, "span_id": run_id.hex[-16:]}, "attributes": attributes}
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(span) + "\n")

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
