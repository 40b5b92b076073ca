"""Graphs that suspend in every way."""

import contextlib
import operator
import os
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt


class State(TypedDict):
    log: Annotated[list, operator.add]


def ask(name):
    def node(state):
        return {"log": [f"{name}:{interrupt({'ask': name})}"]}

    return node


def graph(**nodes):
    made = StateGraph(State)
    for name, node in nodes.items():
        made.add_node(name, node)
        made.add_edge(START, name)
    return made


def both(state):
    return {"log": [interrupt({"ask": "first"}) + "+" + interrupt({"ask": "second"})]}


builder = graph(one=ask("one"))
single = builder.compile()
own = builder.compile(checkpointer=MemorySaver())
parallel = graph(a=ask("a"), b=ask("b")).compile()
twice = graph(both=both).compile()
breakpoint = graph(n=lambda state: {"log": ["ran"]}).compile(interrupt_before=["n"])
breakpoints = graph(a=lambda state: {"log": ["a"]}, b=lambda state: {"log": ["b"]}).compile(interrupt_before=["a", "b"])
number = 1


async def factory(config):
    assert config == {"configurable": {}}
    return builder


@contextlib.asynccontextmanager
async def context():
    print("entered")
    yield single
    print("left")


def mid(state):
    return {"log": ["mid"]}


def end(state):
    crash = os.path.join(os.environ["EVALRUN_WORKSPACE"], "crash")
    if os.path.exists(crash):
        os.remove(crash)
        os._exit(1)
    return {"log": ["end", os.environ["FROM_PROJECT"]]}


crashing = StateGraph(State)
crashing.add_sequence([("one", ask("one")), ("mid", mid), ("end", end)])
crashing.add_edge(START, "one")
crashing = crashing.compile()


class Messages(TypedDict):
    messages: Annotated[list, add_messages]


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def pay(amount: int) -> str:
    """Pays, if a person says yes."""
    return f"paid {amount}" if interrupt({"ask": "pay"}) else "not paid"


def model(state):
    message = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "c1"}, {"name": "pay", "args": {"amount": 5}, "id": "c2"}])
    return {"messages": [message]}


def answer(state):
    return {"messages": [AIMessage([{"type": "text", "text": "; ".join(m.content for m in state["messages"][-2:])}])]}


tools = StateGraph(Messages)
tools.add_sequence([("model", model), ("tools", ToolNode([weather, pay])), ("answer", answer)])
tools.add_edge(START, "model")
tools = tools.compile()
