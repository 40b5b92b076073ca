"""The one event loop of a worker: clients that frameworks keep belong to the loop in which they were made."""

import asyncio
import inspect

loop = None


def run(value):
    """The result of an awaitable, and any other value as it is. Code that is not async runs outside of the loop."""
    if not inspect.isawaitable(value):
        return value

    async def wrap():
        return await value

    return the_loop().run_until_complete(wrap())


def the_loop():
    global loop
    if loop is None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop


def enter(context):
    """What an asynchronous context gives, and a function that leaves it.

    A task of its own enters and leaves it, as contexts of task groups want it.
    """
    entered = the_loop().create_future()
    leave = loop.create_future()

    async def hold():
        try:
            async with context as value:
                entered.set_result(value)
                await leave
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    task = loop.create_task(hold())

    def end():
        leave.set_result(None)
        run(task)

    return run(entered), end
