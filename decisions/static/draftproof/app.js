// Times are written in UTC; the reader's own clock shows on hover.
(() => {
  "use strict";

  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

  const addLocalTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]:not([title])")) {
      time.title = `${local.format(new Date(time.dateTime))} (your time)`;
    }
  };

  // A form that sends the same act twice helps nobody.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.forms) delete form.dataset.sent;
  });

  // Copies a block of text; where the browser has no clipboard for the page, it is marked instead.
  const copy = async (button) => {
    const block = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(block.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(block);
      button.textContent = "Marked: copy it now";
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-copy]")) button.hidden = false;
  });

  document.addEventListener("htmx:afterSettle", (event) => addLocalTimes(event.target));
  document.addEventListener("DOMContentLoaded", () => addLocalTimes(document));
})();
