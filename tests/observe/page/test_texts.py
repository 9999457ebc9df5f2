"""Texts, spans and JSON as the page draws them, each part by itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import Opener
from .site import Opened

DRAW = """async ([texts, spans, end]) => {
  const { TextPane } = await import("/inspector/text_pane.js");
  const pane = new TextPane({ label: "test" });
  document.body.append(pane.node);
  window.pane = pane;
  for (const text of texts) pane.update(text, spans, end ?? text.length);
  const shown = (node) => node instanceof Text ? node.data
    : node.tagName === "MARK" ? `[${node.dataset.kind} ${[...node.childNodes].map(shown).join("")}]`
    : [...node.childNodes].map(shown).join("");
  return [...pane.node.querySelectorAll(".pane-block")].map(shown).join("\\n");
}"""


@pytest.fixture
def opened(look: Opener) -> Opened:
    opened = look("#/playground")
    opened.sees(".playground .card-call")
    return opened


def span(start: int, end: int, kind: str) -> dict[str, Any]:
    return {"start": start, "end": end, "kind": kind, "label": "", "title": "", "index": 0}


CASES: list[tuple[list[str], list[Any], int | None, str]] = [
    (["plain"], [], None, "plain"),
    (["a call b"], [span(2, 6, "call")], None, "a [call call] b"),
    (["a (x) b"], [span(3, 4, "note"), span(2, 5, "call")], None, "a [call ([note x])] b"),
    (["xy"], [span(0, 1, "call"), span(1, 2, "rejected")], None, "[call x][rejected y]"),
    # What the slider has not reached is not there, be it in the midst of a span.
    (["a (x) b"], [span(2, 5, "call")], 4, "a [call (x]"),
    (["a (x) b"], [span(2, 5, "call")], 1, "a"),
    # A note in the place of a block that is no call says nothing more.
    (["a (x) b"], [span(2, 5, "rejected"), span(2, 5, "note")], None, "a [rejected (x)] b"),
    # It grows, becomes less, or is another text of the same length.
    (["one", "one two", "one two three"], [], None, "one two three"),
    (["one two three", "one"], [], None, "one"),
    (
        ["same beginning, 1, and 2", "same beginning, 3, and 4"],
        [],
        None,
        "same beginning, 3, and 4",
    ),
    (["\u202ea\x1b"], [], None, "⟨202E⟩a⟨1B⟩"),
    (["a\r\nb\rc"], [], None, "a\r\nb⟨0D⟩c"),
    (["👩‍👩‍👧 ok"], [], None, "👩‍👩‍👧 ok"),
    ([""], [], None, ""),
]


def test_texts_with_spans(opened: Opened) -> None:
    for texts, spans, end, shown in CASES:
        assert opened.page.evaluate(DRAW, [texts, spans, end]) == shown, (texts, spans)


def test_long_texts_are_cut_into_blocks(opened: Opened) -> None:
    lines = "\n".join(f"line {number}" for number in range(6000))
    assert opened.page.evaluate(DRAW, [[lines[:5000], lines], [], None]) == lines[:40_000]
    opened.page.locator(".pane-more:visible").click()
    whole = "[...pane.node.querySelectorAll('.pane-block')].map(one => one.textContent).join('\\n')"
    opened.until(f"text => {whole} === text", lines)


def test_a_selection_survives_growth(opened: Opened) -> None:
    opened.page.evaluate(DRAW, [["Some text"], [], None])
    opened.page.evaluate(
        """() => {
          const text = pane.node.querySelector(".pane-block").firstChild;
          getSelection().setBaseAndExtent(text, 0, text, 4);
          pane.update("Some text that goes on, and on", []);
        }"""
    )
    assert opened.page.evaluate("getSelection().toString()") == "Some"


JSON = [
    '{"id": 12345678901234567890}',
    '{"x": 0.1000000000000000055511151231257827}',
    '{"__proto__": {"a": 1}}',
    '{"": [], "b": {}, "c": [null, true, "\\u2028"]}',
]


def test_json_says_what_it_says(opened: Opened) -> None:
    drawn = """async (text) => {
      const { jsonTree, parseExact } = await import("/inspector/json_view.js");
      const tree = jsonTree(parseExact(text));
      for (const held of tree.querySelectorAll(".json-size, .json-end, .json-index")) held.remove();
      return tree.textContent;
    }"""
    for text in JSON:
        told = opened.page.evaluate(drawn, text).replace("⟨2028⟩", "\\u2028")
        assert re.sub("[ :]", "", told) == re.sub("[ :,]", "", text)
