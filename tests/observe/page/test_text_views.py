"""The elements that show texts with highlights (`text_pane.js`) and JSON (`json_view.js`)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import OpenInspector
from .inspector_page import InspectorPage

DRAW = """async ([texts, spans, end]) => {
  const { TextPane } = await import("/inspector/text_pane.js");
  const pane = new TextPane({ label: "test" });
  document.body.append(pane.node);
  window.pane = pane;
  for (const text of texts) pane.update(text, spans, end ?? text.length);
  const renderChildren = (node) => [...node.childNodes].map(render).join("");
  const render = (node) => node instanceof Text ? node.data
    : node.tagName === "MARK" ? `[${node.dataset.kind} ${renderChildren(node)}]`
    : renderChildren(node);
  return [...pane.node.querySelectorAll(".pane-block")].map(render).join("\\n");
}"""


@pytest.fixture
def inspector(open_inspector: OpenInspector) -> InspectorPage:
    inspector = open_inspector("#/playground")
    inspector.wait_for(".playground .card-call")
    return inspector


def span(start: int, end: int, kind: str) -> dict[str, Any]:
    return {"start": start, "end": end, "kind": kind, "label": "", "title": "", "index": 0}


CASES: list[tuple[list[str], list[Any], int | None, str]] = [
    (["plain"], [], None, "plain"),
    (["a call b"], [span(2, 6, "call")], None, "a [call call] b"),
    (["a (x) b"], [span(3, 4, "note"), span(2, 5, "call")], None, "a [call ([note x])] b"),
    (["xy"], [span(0, 1, "call"), span(1, 2, "rejected")], None, "[call x][rejected y]"),
    # The text ends where the slider is, even inside a span.
    (["a (x) b"], [span(2, 5, "call")], 4, "a [call (x]"),
    (["a (x) b"], [span(2, 5, "call")], 1, "a"),
    # A note on a rejected block adds nothing.
    (["a (x) b"], [span(2, 5, "rejected"), span(2, 5, "note")], None, "a [rejected (x)] b"),
    # The text grows, shrinks, or changes within the same length.
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


def test_text_pane_with_spans_draws_nested_marks(inspector: InspectorPage) -> None:
    for texts, spans, end, expected in CASES:
        assert inspector.page.evaluate(DRAW, [texts, spans, end]) == expected, (texts, spans)


def test_text_pane_with_long_text_draws_it_in_blocks(inspector: InspectorPage) -> None:
    lines = "\n".join(f"line {number}" for number in range(6000))
    assert inspector.page.evaluate(DRAW, [[lines[:5000], lines], [], None]) == lines[:40_000]
    inspector.page.locator(".pane-more:visible").click()
    whole = (
        "[...pane.node.querySelectorAll('.pane-block')].map(block => block.textContent).join('\\n')"
    )
    inspector.wait_until(f"text => {whole} === text", lines)


def test_text_pane_selection_survives_growth(inspector: InspectorPage) -> None:
    inspector.page.evaluate(DRAW, [["Some text"], [], None])
    inspector.page.evaluate(
        """() => {
          const text = pane.node.querySelector(".pane-block").firstChild;
          getSelection().setBaseAndExtent(text, 0, text, 4);
          pane.update("Some text that goes on, and on", []);
        }"""
    )
    assert inspector.page.evaluate("getSelection().toString()") == "Some"


JSON = [
    '{"id": 12345678901234567890}',
    '{"x": 0.1000000000000000055511151231257827}',
    '{"__proto__": {"a": 1}}',
    '{"": [], "b": {}, "c": [null, true, "\\u2028"]}',
]


def test_json_view_shows_every_value_exactly(inspector: InspectorPage) -> None:
    render = """async (text) => {
      const { jsonTree, parseExact } = await import("/inspector/json_view.js");
      const tree = jsonTree(parseExact(text));
      const extras = tree.querySelectorAll(".json-size, .json-end, .json-index");
      for (const extra of extras) extra.remove();
      return tree.textContent;
    }"""
    for text in JSON:
        shown = inspector.page.evaluate(render, text).replace("⟨2028⟩", "\\u2028")
        assert re.sub("[ :]", "", shown) == re.sub("[ :,]", "", text)
