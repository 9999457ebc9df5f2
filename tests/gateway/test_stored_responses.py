"""Stored responses: bound to their client, and not confused with missing ones in an outage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec import structs

from tests.gateway.gateway_process import wait_until
from tests.gateway.running_gateway import RunningGateway, make_config, run_gateway
from toolspeak import Finish, TextDelta
from toolspeak.config.settings import Config, ServerSettings, StoreLimits
from toolspeak.store.base import MemoryStore
from toolspeak.store.external import ExternalStore
from toolspeak.testing import ScriptedServer

HTTP = httpx.Client(trust_env=False, timeout=60)
ALICE, BOB = "alice-0123456789", "bob-0123456789"
UPSTREAM_WIRES = ["openai_responses", "openai_chat", "anthropic"]
every_upstream = pytest.mark.parametrize("wire", UPSTREAM_WIRES)


class SwitchedStore(ExternalStore):
    """A store in memory that can be made to fail, all of it or only its writes."""

    def __init__(self) -> None:
        self.now = 1000.0
        super().__init__(now=lambda: self.now)
        self._memory = MemoryStore()
        self.failing: tuple[str, ...] = ()

    async def _execute(self, name: str, *arguments: Any) -> Any:
        kind = "reads" if name in ("get", "list_items", "read_counters") else "writes"
        if kind in self.failing:
            raise ConnectionError("the store is switched off")
        return await self._memory._run(name, *arguments)  # pyright: ignore[reportPrivateUsage]

    def switch(self, *failing: str) -> None:
        """Let these kinds of operations fail, and others be tried at once."""
        self.failing = failing
        self.now += 60

    def _is_reachable(self, error: Exception) -> bool:
        return self.failing == ("writes",)

    def _describe_error(self, error: Exception) -> str:
        return str(error)

    async def close(self) -> None:
        pass


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer([TextDelta("Hello."), Finish("stop")]) as server:
        yield server


def with_keys(config: Config, *keys: str) -> Config:
    return structs.replace(config, server=ServerSettings(keys=keys))


def send(
    gateway: RunningGateway, body: dict[str, Any], key: str = "", path: str = "/v1/responses"
) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return HTTP.post(gateway.url + path, json={"model": "m", **body}, headers=headers)


def fetch(gateway: RunningGateway, path: str, key: str = "") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return HTTP.get(gateway.url + path, headers=headers)


def sent_ids(model: ScriptedServer) -> list[str]:
    """Return all `previous_response_id`s that the upstream has received."""
    bodies = [json.dumps(body) for body in model.bodies]
    return [body for body in bodies if "previous_response_id" in body]


# Ids belong to clients.


@every_upstream
def test_response_id_of_another_client_is_not_found_and_not_forwarded(
    model: ScriptedServer, wire: str
) -> None:
    with run_gateway(with_keys(make_config(model.url, wire), ALICE, BOB)) as gateway:
        identity = send(gateway, {"input": "My secret."}, ALICE).json()["id"]
        follow_up = {"input": "What did I say?", "previous_response_id": identity}
        served = len(model.bodies)
        response = send(gateway, follow_up, BOB)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "previous_response_not_found"
        assert fetch(gateway, f"/v1/responses/{identity}", BOB).status_code == 404
        assert len(model.bodies) == served
        assert send(gateway, follow_up, ALICE).status_code == 200
        assert "My secret." in json.dumps(model.bodies[-1])
        assert sent_ids(model) == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_response_id_in_a_request_of_another_api_is_not_forwarded(
    model: ScriptedServer, path: str
) -> None:
    config = with_keys(make_config(model.url, "openai_responses"), ALICE, BOB)
    with run_gateway(config) as gateway:
        identity = send(gateway, {"input": "My secret."}, ALICE).json()["id"]
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "stream": False}
        response = send(gateway, {**body, "previous_response_id": identity}, BOB, path)
        assert response.status_code == 200
        assert sent_ids(model) == []


@pytest.mark.parametrize("odd", [["resp_1"], {"id": "resp_1"}, 7, True])
def test_response_id_that_is_no_text_is_not_forwarded(model: ScriptedServer, odd: Any) -> None:
    config = with_keys(make_config(model.url, "openai_responses"), ALICE)
    with run_gateway(config) as gateway:
        response = send(gateway, {"input": "Hi", "previous_response_id": odd}, ALICE)
        assert response.status_code == 400
        assert model.bodies == []


def test_unknown_response_id_without_client_keys_is_forwarded_to_the_same_api(
    model: ScriptedServer,
) -> None:
    """All responses at the upstream belong to the only client, also those of earlier runs."""
    with run_gateway(make_config(model.url, "openai_responses")) as gateway:
        body = {"input": "And?", "previous_response_id": "resp_of_an_earlier_run"}
        assert send(gateway, body).status_code == 200
        assert model.bodies[-1]["previous_response_id"] == "resp_of_an_earlier_run"


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic"])
def test_unknown_response_id_at_another_api_is_an_error(model: ScriptedServer, wire: str) -> None:
    with run_gateway(make_config(model.url, wire)) as gateway:
        body = {"input": "And?", "previous_response_id": "resp_unknown"}
        response = send(gateway, body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "previous_response_id"


def test_response_that_is_too_large_is_not_stored_and_counted(model: ScriptedServer) -> None:
    config = structs.replace(make_config(model.url), store_limits=StoreLimits(value_bytes=5000))
    with run_gateway(config) as gateway:
        identity = send(gateway, {"input": "x" * 5000}).json()["id"]
        assert fetch(gateway, f"/v1/responses/{identity}").status_code == 404
        sample = 'toolspeak_store_problems_total{kind="too-large"} 1\n'
        assert sample in fetch(gateway, "/metrics").text
        small = send(gateway, {"input": "x"}).json()["id"]
        assert fetch(gateway, f"/v1/responses/{small}").status_code == 200


# Outages.


def check_unavailable(response: httpx.Response) -> None:
    """Check that a response is a retryable error in the format of OpenAI's API."""
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "store is unavailable" in response.json()["error"]["message"]


@every_upstream
def test_stored_response_in_an_outage_is_unavailable_and_found_again(
    model: ScriptedServer, wire: str
) -> None:
    store = SwitchedStore()
    with run_gateway(with_keys(make_config(model.url, wire), ALICE), store=store) as gateway:
        identity = send(gateway, {"input": "Hi"}, ALICE).json()["id"]
        path = f"/v1/responses/{identity}"
        follow_up = {"input": "And?", "previous_response_id": identity}
        store.switch("reads", "writes")
        for _ in range(2):
            check_unavailable(fetch(gateway, path, ALICE))
            check_unavailable(send(gateway, follow_up, ALICE))
            check_unavailable(send(gateway, {**follow_up, "stream": True}, ALICE))
        odd = {**follow_up, "previous_response_id": "no/id at all"}
        assert send(gateway, odd, ALICE).status_code == 400
        assert send(gateway, {"input": "Hi"}, ALICE).status_code == 200, "it needs no store"
        store.switch()
        assert fetch(gateway, path, ALICE).status_code == 200
        assert send(gateway, follow_up, ALICE).status_code == 200


def test_response_that_cannot_be_deleted_is_not_reported_as_deleted(model: ScriptedServer) -> None:
    store = SwitchedStore()
    with run_gateway(make_config(model.url), store=store) as gateway:
        identity = send(gateway, {"input": "Hi"}).json()["id"]
        store.switch("writes")
        check_unavailable(HTTP.delete(f"{gateway.url}/v1/responses/{identity}"))
        assert fetch(gateway, f"/v1/responses/{identity}").status_code == 200


@pytest.mark.parametrize("failing", [("reads", "writes"), ("writes",)], ids=" and ".join)
def test_outage_degrades_readiness_and_is_logged_and_counted_once(
    model: ScriptedServer,
    failing: tuple[str, ...],
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = SwitchedStore()
    with run_gateway(make_config(model.url), store=store) as gateway:

        def is_ready(status: str) -> bool:
            # The gateway's own requests are counted in the store, which ends the outage.
            response = fetch(gateway, "/ready")
            assert response.status_code == 200
            return response.json() == {"status": status}

        assert is_ready("ready")
        store.switch(*failing)
        wait_until(lambda: is_ready("degraded"))
        for _ in range(5):
            send(gateway, {"input": "Hi"})
            store.now += 1
        assert is_ready("degraded")
        store.switch()
        wait_until(lambda: is_ready("ready"))
        sample = 'toolspeak_store_problems_total{kind="outage"} 1\n'
        assert sample in fetch(gateway, "/metrics").text
    lines = [one.getMessage() for one in caplog.records if one.name == "toolspeak.store"]
    assert len(lines) == 2, lines
    assert lines[0].startswith("the store is unavailable: the store is switched off")
    assert lines[1].startswith("the store is available again after")
