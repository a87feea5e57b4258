// The server stands where this page's files do. Told so, Streamlit does not first ask for it under the page's own path, which the
// browser would log as two errors on every deep link.
window.__streamlit = { BACKEND_BASE_URL: new URL("./", location.href.split(/[?#]/)[0]).href };

// Help icons stay for the mouse. For the keyboard they doubled the way through the settings; the same words stand in "What the settings mean".
const icons = "[data-testid=stWidgetLabel] [data-testid=stTooltipIcon] button:not([tabindex])";
new MutationObserver(() => document.querySelectorAll(icons).forEach((icon) => (icon.tabIndex = -1))).observe(document, {
  childList: true,
  subtree: true,
});
