"""UiPath's mocks: functions with @mockable that an evaluation's mockingStrategy plays, by the project's own uipath."""

import sys

from evalrun.values import AgentError


def enter(message):
    """Plays functions in the context of the caller. Returns the counts of their calls, None if none is played."""
    mocks = message.get("mocks")
    if not mocks:
        return None
    try:
        from mockito.invocation import InvocationError
        from uipath.eval.mocks import MockingContext
        from uipath.eval.mocks._mock_context import mocker_context, mocking_context
        from uipath.eval.mocks._mocker import Mocker, UiPathMockResponseGenerationError
        from uipath.eval.mocks._mocker_factory import MockerFactory
    except ImportError as error:
        raise AgentError(
            "no-package",
            f"mockingStrategy: {sys.executable} has no package uipath that plays it ({error}): {sys.executable} -m pip install uipath",
        ) from error
    try:
        context = MockingContext(strategy=mocks["strategy"], inputs=message["input"], name=mocks["place"])
        inner = MockerFactory.create(context)
    except Exception as error:  # UiPath would call the functions
        raise AgentError("no-package", f"mockingStrategy: uipath cannot play it: {type(error).__name__}: {error}") from error
    calls, unmatched = {}, {}

    class Counting(Mocker):
        async def response(self, func, params, invocation):
            name = params["name"]
            if name not in mocks["names"]:
                return await inner.response(func, params, invocation)
            counts = calls
            try:
                return await inner.response(func, params, invocation)
            except UiPathMockResponseGenerationError as error:
                if isinstance(error.__cause__, InvocationError):
                    counts = unmatched
                raise
            finally:
                counts[name] = counts.get(name, 0) + 1
                mark("none" if counts is unmatched else f"{mocks['place']} {name}")

    mocking_context.set(context)
    mocker_context.set(Counting())
    return {"calls": calls, "unmatched": unmatched}


def mark(place):
    """Says in the span of the call, or of what makes it, that it was played."""
    from opentelemetry import trace
    from uipath.core.tracing import UiPathSpanUtils

    trace.get_current_span(context=UiPathSpanUtils.get_parent_context()).set_attribute("evalrun.mock", place)
