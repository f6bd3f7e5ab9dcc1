"""The API against its own description: whatever Schemathesis makes of that, the replies are what it says."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.core.parameters import ParameterLocation

from tests.inbox.offices import ANN, Line, accept, pending, question, serving_inbox
from turnwise.inbox import door as door_module
from turnwise.inbox.api import UNFIT, describe
from turnwise.inbox.views import LONGEST_WAIT

fitting, unfitting = (schemathesis.openapi.from_dict(describe()) for _ in range(2))
unfitting.config.generation.update(modes=[GenerationMode.NEGATIVE])
fitting.config.generation.update(modes=[GenerationMode.POSITIVE])
SHOWN = {"Authorization": f"Bearer {ANN}"}
NUMBERS = itertools.count()
KNOWN = itertools.cycle(["known", "other", None])
"""Items that there are; Schemathesis would not find them."""


@fitting.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    name = next(KNOWN)
    return path_parameters if name is None or not path_parameters else {**path_parameters, "item_id": name}


@fitting.hook
def map_query(context: Any, query: Any) -> Any:
    """Who waits gets the same reply, only later."""
    wait = query.get("wait") if isinstance(query, dict) else None
    return {**query, "wait": 0.01} if isinstance(wait, int | float) and 0 <= wait <= LONGEST_WAIT else query


@fitting.hook
def map_body(context: Any, body: Any) -> Any:
    """Now and then a call that is one, or answers that are some, in what else was made up."""
    if not isinstance(body, dict) or next(KNOWN) is None:
        return body
    if isinstance(body.get("pending"), dict):
        call = json.loads(pending(f"made-up-{next(NUMBERS)}").to_json())
        return {**body, "pending": {**call, **body["pending"]}}
    if isinstance(body.get("answers"), dict):
        return {**body, "answers": {"title": accept(value="x")}}
    return body


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(door_module, "ATTEMPTS", 1_000_000)  # Schemathesis shows wrong tokens, too.
        with serving_inbox(tmp_path_factory.mktemp("inbox") / "inbox.db") as found:
            for name in ("known", "other"):
                requests = {"title": question(), **{f"more{number}": question() for number in range(3)}}
                call = pending(name, requests=requests)
                assert found.call("POST", "/items", {"pending": json.loads(call.to_json())}).status == 201
            yield found


@fitting.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_replies_are_as_described(case: Any, line: Line) -> None:
    """What fits the description may still be refused, for what it says: a call whose questions are none, answers that
    do not fit their questions. That is told in other words than a request that does not fit the description.
    """
    checks = {"excluded_checks": [CHECKS.get_one("positive_data_acceptance")]}
    response = case.call_and_validate(base_url=f"{line.url}/api/v1", headers=SHOWN, **checks)
    assert response.status_code != 400
    assert response.status_code != 422 or response.json()["detail"] != UNFIT


@unfitting.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_not_as_described_is_refused(case: Any, line: Line) -> None:
    wrong = {place for place, part in case.meta.components.items() if part.mode.is_negative}
    shown = SHOWN if wrong - {ParameterLocation.HEADER} else {}  # Where the token is what is wrong, it stays so.
    case.call_and_validate(base_url=f"{line.url}/api/v1", headers=shown)
