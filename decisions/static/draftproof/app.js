// Times are written in UTC; the reader's own clock shows on hover, and in their place once they ask for it.
(() => {
  "use strict";

  const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const DAY = { day: "numeric", month: "short", year: "numeric" };
  const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };

  // Where the browser keeps nothing for the site, the choice lasts for the page.
  let own = false;
  try {
    own = localStorage.getItem("times") === "own";
  } catch { /* as it is */ }

  const inOwnZone = (time) => {
    const at = new Date(time.dateTime);
    const second = /:\d\d:/.test(time.dataset.utc) ? { second: "2-digit" } : {};
    return `${at.toLocaleDateString("en-GB", DAY)}, ${at.toLocaleTimeString("en-GB", { ...CLOCK, ...second })}`;
  };

  const writeTimes = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      time.dataset.utc ??= time.textContent;
      time.title ||= `${local.format(new Date(time.dateTime))} (your time)`;
      // A day stands for the whole of it: that is the same in every zone.
      if (time.dataset.utc.endsWith("UTC")) time.textContent = own ? inOwnZone(time) : time.dataset.utc;
    }
    for (const words of document.querySelectorAll("[data-zone]")) words.textContent = own ? zone : "UTC";
    for (const button of document.querySelectorAll("[data-own-time]")) {
      button.hidden = zone === "UTC";
      button.textContent = own ? "Show them in UTC" : `Show them in ${zone}`;
    }
  };

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-own-time]")) return;
    own = !own;
    try {
      localStorage.setItem("times", own ? "own" : "utc");
    } catch { /* as it is */ }
    writeTimes(document);
  });

  // A form that sends the same act twice helps nobody; one that fetches a file leaves its page as it is.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if ("again" in form.dataset) return;
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

  document.addEventListener("htmx:afterSettle", (event) => writeTimes(event.target));
  document.addEventListener("DOMContentLoaded", () => writeTimes(document));
})();
