// What scrolls sideways is reached by keys, too: code and tables that are wider than the page.
function reachable() {
  for (const e of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (e.scrollWidth > e.clientWidth) e.tabIndex = 0;
    else e.removeAttribute("tabindex");
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
