// Not a module: it runs before the first paint, so that the page never flashes in wrong colors.
(() => {
  const KEY = "toolspeak.theme";
  const root = document.documentElement;
  const kept = localStorage.getItem(KEY);
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;

  window.toolspeakTheme = {
    get isDark() {
      return root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
    },
    toggle() {
      root.dataset.theme = this.isDark ? "light" : "dark";
      localStorage.setItem(KEY, root.dataset.theme);
    },
  };
})();
