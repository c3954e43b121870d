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

  document.addEventListener("htmx:afterSettle", (event) => addLocalTimes(event.target));
  document.addEventListener("DOMContentLoaded", () => addLocalTimes(document));
})();
