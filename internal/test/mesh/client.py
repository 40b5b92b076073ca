"""Does with the client of MCP Mesh what it can do with a job. Its argument is the URL of the registry, which is evalrun serve."""

import asyncio
import os
import sys

url = sys.argv[1]
os.environ["MCP_MESH_REGISTRY_URL"] = url

import mcp_mesh_core as core  # noqa: E402 - it reads the variable
from mesh import jobs  # noqa: E402


def submit(capability, payload=None, **more):
    return core.submit_job(url, capability, payload or {}, "client.py", **more)


async def refused(awaitable):
    """The message of the error that something must end with."""
    try:
        got = await awaitable
    except Exception as e:
        return f"{type(e).__name__}: {e}"
    raise AssertionError(f"no error, but {got}")


async def reaches(job, status):
    """Waits until a job has a status."""
    async with asyncio.timeout(60):
        while (now := await job.status())["status"] != status:
            await asyncio.sleep(0.05)
    return now


def has(text, *parts):
    for part in parts:
        assert part in text, f"{text} lacks {part}"


async def finished():
    job = await submit("echo", {"inputs": {"text": "hello again"}})
    assert (await job.wait(60.0))["verdict"] == "finished"
    assert (await job.status())["progress"] == 1
    events, after = await job.list_events()
    assert [e["type"] for e in events] == ["completed"] and after == 1, events
    assert (await jobs.wait(job.job_id, 5.0))["status"] == "successful"
    has(await refused(jobs.post_event(job.job_id, "note", {})), "JobTerminalError")
    has(await refused(job.cancel("too late")), "already in a terminal state")


async def failed():
    job = await submit("bad", max_retries=1)
    has(await refused(job.wait(60.0)), "exit: the agent ended with exit status 3")
    has(await refused(jobs.status("nothing")), "JobNotFoundError")
    has(await refused(submit("nothing")), "there are: bad, echo, person, slow")
    has(await refused(submit("echo", {"who": 1})), 'unknown field \\"who\\"')


async def cancelled():
    job = await submit("slow", max_duration=600)
    has(await refused(job.wait(1.0)), "TimeoutError")
    seen = []

    async def follow():
        async for e in jobs.subscribe_events(job.job_id, long_poll_secs=5):
            seen.append(e["type"])
            if e["type"] == "cancelled":
                return

    following = asyncio.create_task(follow())
    await job.send_event("note", {"a": [1]})
    await job.cancel("enough")
    await asyncio.wait_for(following, 60)
    assert seen == ["note", "cancelled"], seen
    assert (await job.status())["error"] == "cancelled: enough"


async def answered():
    job = await submit("person")
    assert (await reaches(job, "input_required"))["progress_message"] == "Go on?"
    await job.send_event("answer", {"value": {"approved": True}})
    assert (await job.wait(60.0))["verdict"] == "finished"
    assert [e["type"] for e in (await job.list_events())[0]] == ["answer", "completed"]


async def everything():
    for scenario in finished, failed, cancelled, answered:
        await scenario()
        print(scenario.__name__)


asyncio.run(everything())
