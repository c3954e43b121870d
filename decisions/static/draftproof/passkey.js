// Passkeys. A button asks the browser for one and puts its answer into a field of its form.
(() => {
  "use strict";

  const SAID = {
    NotAllowedError: "The browser asked, and no passkey was given. Try again.",
    InvalidStateError: "This device holds a passkey of this account already.",
    SecurityError: "Passkeys need the site’s own name in the address, over TLS; on this machine, localhost.",
  };

  const optionsOf = async (button) => {
    if (button.dataset.given) return JSON.parse(button.dataset.given);
    const answer = await fetch(button.dataset.options, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`The site answered ${answer.status}. Reload the page and try again.`);
    const found = await answer.json();
    return found.request_options ?? found;
  };

  const ask = async (button) => {
    const form = button.form;
    const problem = button.parentElement.querySelector(".problem");
    problem.hidden = true;
    // What is still missing is asked for before a passkey is made or used.
    if (button.hasAttribute("data-send") && !form.reportValidity()) return;
    try {
      const answer = await window.webauthnJSON[button.dataset.passkey](await optionsOf(button));
      form.elements[button.dataset.into].value = JSON.stringify(answer);
    } catch (error) {
      problem.textContent = SAID[error.name] ?? error.message;
      problem.hidden = false;
      return;
    }
    if (button.hasAttribute("data-send")) {
      form.requestSubmit();
    } else {
      button.querySelector("span").textContent = button.dataset.done;
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-passkey]");
    if (button) ask(button);
  });
  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-passkey]")) {
      button.hidden = !window.PublicKeyCredential;
    }
  });
})();
