// The server stands where this page's files do. Told so, Streamlit does not first ask for it under the page's own path, which the
// browser would log as two errors on every deep link.
window.__streamlit = { BACKEND_BASE_URL: new URL("./", location.href.split(/[?#]/)[0]).href };

// Help icons stay for the mouse. For the keyboard they doubled the way through settings and figures; the same words stand in the sidebar,
// under "What the settings mean" and "What the words mean".
const icons = ":is([data-testid=stWidgetLabel], [data-testid=stMetric]) [data-testid=stTooltipIcon] button:not([tabindex='-1'])";

// A phone shows each row of a wide table as lines of "heading: value" (planner.css); the heading and what the parts are go with each cell.
const label = (table) => {
  const headings = [...table.querySelectorAll("thead th")].map((heading) => heading.textContent);
  if (headings.length < 6) return;
  table.classList.add("planner-wide");
  table.setAttribute("role", "table");
  for (const row of table.querySelectorAll("tbody tr")) {
    row.setAttribute("role", "row");
    [...row.children].forEach((cell, i) => {
      cell.setAttribute("role", "cell");
      if (cell.dataset.heading !== headings[i]) cell.dataset.heading = headings[i];
    });
  }
};
new MutationObserver(() => {
  document.querySelectorAll(icons).forEach((icon) => (icon.tabIndex = -1));
  document.querySelectorAll("[data-testid=stTable] table").forEach(label);
}).observe(document, { childList: true, subtree: true });
