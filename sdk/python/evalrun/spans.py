"""What an agent tells OpenTelemetry, with UiPath's @traced or by itself, goes to the segment's trace file."""

import contextlib
import sys

# The file of the segment that runs; None between segments.
file = None


@contextlib.contextmanager
def into(path):
    global file
    file = path
    try:
        yield
    finally:
        file = None


def follow(kind):
    """Listens, if the agent has loaded OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return
    own = kind in ("python", "uipath")  # for others evalrun itself writes the calls of tools and models
    if not own and "uipath" not in sys.modules:
        return
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    except ImportError:  # there is its interface alone: nobody makes spans
        return

    class Lines(SpanProcessor):
        def on_end(self, span):
            uipath = (span.instrumentation_scope.name if span.instrumentation_scope else "").startswith("uipath.")
            if file is None or not own and (not uipath or "tool.name" in (span.attributes or {})):
                return
            with open(file, "a", encoding="utf-8") as out:
                out.write(span.to_json(indent=None) + "\n")

    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider(resource=Resource.get_empty())
        trace.set_tracer_provider(provider)
    provider.add_span_processor(Lines())
