// Wide tables and long lines of code scroll. Focus lets people scroll them without a mouse.
new MutationObserver(() => {
  const wide = ".md-typeset__scrollwrap:not([tabindex]), pre > code:not([tabindex])";
  for (const element of document.querySelectorAll(wide)) element.tabIndex = 0;
}).observe(document.body, { childList: true, subtree: true });
