// One tooltip for all elements with `data-tip`: shown on hover and on focus, gone with Escape.

import { h, setText } from "./dom.js";

const WAIT = 250;

export function installTips() {
  const tip = h("div", { class: "tip", role: "tooltip", id: "tip", hidden: true });
  document.body.append(tip);
  let timer = 0;

  const hide = () => {
    clearTimeout(timer);
    tip.hidden = true;
  };
  const show = (target) => {
    setText(tip, target.dataset.tip);
    tip.hidden = false;
    // A mark may go over several lines: its first box is where it begins.
    const box = target.getClientRects()[0];
    if (!box) return hide();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + 6;
    const fits = below + tip.offsetHeight < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${fits ? below : Math.max(4, box.top - tip.offsetHeight - 6)}px`;
  };
  const consider = (event) => {
    const target = event.target instanceof Element && event.target.closest("[data-tip]");
    hide();
    if (target && target.dataset.tip) timer = setTimeout(show, WAIT, target);
  };

  document.addEventListener("pointerover", consider);
  document.addEventListener("focusin", consider);
  document.addEventListener("pointerdown", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
