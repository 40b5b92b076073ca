"""What an entrypoint of a framework stands for: the agent itself, or what makes one."""

import inspect

from evalrun.running import enter, run
from evalrun.values import AgentError, kind_of


def made(found, place, fits, what):
    """The agent, and what leaves the contexts that were entered for it.

    An agent may be given by a function, async or not, that gets an empty config at most, and by a context
    manager of either kind. fits says whether a value is an agent; what is the word for one.
    """
    left = []
    if not fits(found) and callable(found):
        needed = [
            p
            for p in inspect.signature(found).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if len(needed) > 1:
            raise AgentError("start", f"{place} needs {len(needed)} arguments; a function that makes {what} gets its config at most")
        found = run(found(*[{"configurable": {}}] * len(needed)))
    if not fits(found) and hasattr(found, "__aenter__"):
        found, leave = enter(found)
        left.append(leave)
    elif not fits(found) and hasattr(found, "__enter__"):
        context, found = found, found.__enter__()
        left.append(lambda: context.__exit__(None, None, None))
    if not fits(found):
        raise AgentError("start", f"{place} is {kind_of(found)}, which is no {what.split(' ', 1)[1]}")
    return found, left
