"""Calls the tool gate of fixtures/mesh/provider/consumer.py as any MCP client does, and prints what it answers."""

import asyncio
import sys

from fastmcp import Client
from fastmcp.exceptions import ToolError


async def call():
    """Calls it, once the agent is there and knows who provides what it depends on."""
    async with asyncio.timeout(180):
        while True:
            try:
                async with Client("http://127.0.0.1:9200/mcp") as client:
                    return (await client.call_tool("gate", {"eval_set": sys.argv[1]})).data
            except ToolError as e:
                if "NoneType" not in str(e):  # what it depends on is injected later
                    raise
            except Exception as e:
                print(f"not there yet: {type(e).__name__}: {e}", file=sys.stderr)
            await asyncio.sleep(0.5)


print(asyncio.run(call()))
