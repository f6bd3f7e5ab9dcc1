from typing import Any

import aiohttp


async def approve(inbox: str, token: str, server: str) -> list[str]:
    """A bot that agrees for one server, where nothing but `agree`, yes or no, is asked. The rest is left to people."""
    agreed = []
    async with aiohttp.ClientSession(f"{inbox}/api/v1/", headers={"Authorization": f"Bearer {token}"}) as http:
        async with http.get("items", params={"status": "waiting"}) as response:
            page = await response.json()
        for line in page["items"]:
            async with http.get(f"items/{line['id']}") as response:
                item = await response.json()
            if item["server"] != server or not all(map(_asks_for_agreement, item["questions"].values())):
                continue
            answers = {key: {"action": "accept", "content": {"agree": True}} for key in item["questions"]}
            if await _answered(http, item, answers):
                agreed.append(item["id"])
    return agreed


def _asks_for_agreement(request: dict[str, Any]) -> bool:
    """Whether a question is a form with one field, `agree`, which is yes or no."""
    schema = request.get("params", {}).get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(fields, dict) and list(fields) == ["agree"] and fields["agree"].get("type") == "boolean"


async def _answered(http: aiohttp.ClientSession, item: dict[str, Any], answers: dict[str, Any]) -> bool:
    body = {"round": item["round"], "answers": answers}
    async with http.post(f"items/{item['id']}/answers", json=body) as response:
        return response.status == 200  # 409: somebody was first.
