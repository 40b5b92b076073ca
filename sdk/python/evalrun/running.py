"""The one event loop of a worker: clients that frameworks keep belong to the loop in which they were made."""

import asyncio
import inspect

loop = None


def run(value):
    """The result of an awaitable, and any other value as it is. Code that is not async runs outside of the loop."""
    global loop
    if not inspect.isawaitable(value):
        return value
    if loop is None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)

    async def wrap():
        return await value

    return loop.run_until_complete(wrap())
