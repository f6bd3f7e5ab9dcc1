from datetime import date, timedelta

from pydantic import BaseModel

from turnwise import Context, MCPServer

server = MCPServer("library")


class Loan(BaseModel):
    book: str
    due: date


def lend(book: str, day: date) -> Loan:
    return Loan(book=book, due=day + timedelta(days=28))


@server.tool()
async def borrow(book: str, ctx: Context) -> str:
    """Borrow a book."""
    loan = await ctx.step(lend, book, date(2026, 7, 28))
    remind = await ctx.elicit(f"Remind you before {loan.due}?", bool)
    return f"{loan.book} until {loan.due.isoformat()}, {'with' if remind.action == 'accept' else 'without'} a reminder."
