// The sample tools of the chat: which of them the model has, and what they give.

import { h, line } from "./dom.js";
import { section } from "./parts.js";

export class Samples {
  #rows;

  constructor(samples) {
    this.#rows = samples.map(({ tool, result }) => {
      const { name, description } = tool.function;
      const box = h("input", { type: "checkbox", checked: true });
      const text = typeof result === "string" ? result : JSON.stringify(result);
      const area = h(
        "textarea",
        {
          class: "input mono",
          rows: "2",
          "aria-label": `What ${line(name, 60)} gives`,
          spellcheck: "false",
          value: text,
        },
      );
      const node = h(
        "div",
        { class: "sample" },
        h(
          "label",
          null,
          box,
          " ",
          h("span", { class: "mono" }, name),
          h("span", { class: "faint small" }, ` ${line(description ?? "", 120)}`),
        ),
        area,
      );
      return { name, tool, box, area, node };
    });
    const part = section("Tools", { open: false }, this.#rows.map(({ node }) => node));
    const names = () => this.tools().map((tool) => tool.function.name).join(", ");
    const hint = () => part.setHint(names() || "none");
    for (const { box } of this.#rows) box.addEventListener("change", hint);
    hint();
    this.node = part.node;
  }

  tools() {
    return this.#rows.filter(({ box }) => box.checked).map(({ tool }) => tool);
  }

  resultOf(name) {
    return this.#rows.find((row) => row.name === name)?.area.value ?? `There is no sample for ${name}.`;
  }
}
