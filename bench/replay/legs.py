"""What a round costs and what a token weighs, by how many answers the flow has: for any application in this process.

A leg is the retry that brings an answer: the state is opened, the earlier answers are read from it, the function comes
to its next question or to its end. A server keeps nothing of a flow, so one retry can be sent over and over. Legs take
turns in short batches, and of each the cheapest batch counts: other processes only ever add to one.
"""

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.replay.posting import Application, Caller
from bench.wire import WrongReply

FEW, MANY = 1, 10
LENGTHS = (FEW, FEW + 1, MANY, MANY + 1)
"""How many questions there are tools for: those that end with an answer, and those that go on to one more question."""
TOPICS = [f"topic {number:02}" for number in range(16)]
WARM_UP = 5
SHORT = "an answer of 20 byte"
CJK = "一百字の漢字仮名文。" * 10


@dataclass(frozen=True, slots=True)
class Round:
    """A request, and what came back."""

    body: bytes
    reply: bytes

    @property
    def token(self) -> str:
        state: str = json.loads(self.reply)["result"]["requestState"]
        return state


@dataclass(frozen=True, slots=True)
class Leg:
    """A round of several flows that differ in their topic only: requests, and what each reply contains."""

    caller: Caller
    bodies: list[bytes]
    expected: list[bytes]

    async def batch(self) -> float:
        """Send each request once; CPU microseconds for one."""
        post = self.caller.post
        began = time.process_time_ns()
        replies = [await post(body) for body in self.bodies]
        spent = time.process_time_ns() - began
        for reply, text in zip(replies, self.expected, strict=True):
            verify(reply, text)
        return spent / len(replies) / 1e3


def parse_seconds() -> float:
    """How long the process is to measure, from its command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    seconds: float = parser.parse_args().seconds
    return seconds


async def figures_of(application: Application, rows: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """The figures of each row; its tools are `<row>_<number of questions>`."""
    legs = {(row, name): leg for row in rows for name, leg in (await legs_of(application, row)).items()}
    costs = await _go_round([*legs.values()], seconds)
    found = {row: await _weights(application, row) for row in rows}
    for (row, name), cost in zip(legs, costs, strict=True):
        found[row][f"{name}.cpu_us"] = cost
    for figures in found.values():
        added = figures[f"finish_{MANY}.cpu_us"] - figures[f"finish_{FEW}.cpu_us"]
        figures["replay_us"] = added / (MANY - FEW)
    return found


async def legs_of(application: Application, row: str) -> dict[str, Leg]:
    """The four legs that are measured: few answers or many, to the end or to one more question."""
    legs = {}
    for answers in (FEW, MANY):
        for name, questions in ((f"finish_{answers}", answers), (f"ask_{answers}", answers + 1)):
            caller = Caller(application, f"{row}_{questions}")
            bodies = [(await flow(caller, topic, SHORT, answers))[answers].body for topic in TOPICS]
            legs[name] = Leg(caller, bodies, [expected(topic, answers, questions) for topic in TOPICS])
    return legs


async def _go_round(legs: Sequence[Leg], seconds: float) -> list[float]:
    """Let the legs take turns; of each the cheapest batch."""
    for _ in range(WARM_UP):
        for leg in legs:
            await leg.batch()
    gc.collect()
    best, deadline = [float("inf")] * len(legs), time.perf_counter() + seconds * len(legs)
    while time.perf_counter() < deadline:
        best = [min(least, await leg.batch()) for least, leg in zip(best, legs, strict=True)]
    return best


async def _weights(application: Application, row: str) -> dict[str, float]:
    """The lengths of tokens, and by how much one answer makes them longer."""
    caller = Caller(application, f"{row}_{MANY + 1}")
    short, cjk = [await flow(caller, TOPICS[0], answer, MANY) for answer in (SHORT, CJK)]
    return {
        f"token_{FEW}_bytes": len(short[FEW].token),
        f"token_{MANY}_bytes": len(short[MANY].token),
        "answer_bytes": (len(short[MANY].token) - len(short[FEW].token)) / (MANY - FEW),
        "cjk_answer_bytes": (len(cjk[MANY].token) - len(cjk[FEW].token)) / (MANY - FEW),
    }


async def flow(caller: Caller, topic: str, answer: str, answers: int) -> list[Round]:
    """The rounds of a flow, up to the one that brings the last of these answers."""
    arguments = {"topic": topic}
    body = caller.written(arguments)
    rounds = [Round(body, await caller.post(body))]
    for number in range(1, answers + 1):
        reply = rounds[-1].reply
        verify(reply, question(topic, number).encode())
        (key,) = json.loads(reply)["result"]["inputRequests"]
        given: dict[str, Any] = {key: {"action": "accept", "content": {"value": answer}}}
        body = caller.written(arguments, inputResponses=given, requestState=rounds[-1].token)
        rounds.append(Round(body, await caller.post(body)))
    return rounds


def question(topic: str, number: int) -> str:
    return f"Question {number:02} about {topic}?"


def conclusion(topic: str, questions: int, last: str) -> str:
    return f"{questions} answers about {topic}, the last is {last}"


def expected(topic: str, answers: int, questions: int) -> bytes:
    """What the reply to this many answers contains."""
    text = question(topic, answers + 1) if answers < questions else conclusion(topic, questions, SHORT)
    return text.encode()


def verify(reply: bytes, text: bytes) -> None:
    if text not in reply:
        raise WrongReply(f"expected {text!r}, got {reply!r}")
