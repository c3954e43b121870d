// A file on its way: what a traffic file's columns may be, how much of it is sent, and where it leads. The form works
// without this script too; then the browser sends it, and the page that comes back says what is wrong.
(() => {
  "use strict";

  const form = document.querySelector("form[data-upload]");
  if (!form) return;

  const LOOK_BYTES = 65536;
  const AJAX = { "X-Requested-With": "XMLHttpRequest" };
  const part = (name) => form.querySelector(`[data-${name}]`);
  const file = form.elements.namedItem("file");
  const sending = part("sending");
  const button = form.querySelector(".go .button");
  const stopped = new WeakSet();
  let request = null;

  const size = (bytes) =>
    bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))}\u202fkB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)}\u202fMB` : `${(bytes / 1e9).toFixed(2)}\u202fGB`;

  const say = (words) => {
    const note = part("note").content.cloneNode(true);
    note.querySelector("p").textContent = words;
    part("problems").replaceChildren(note);
    showProblems();
  };

  const showProblems = () => {
    const refused = document.getElementById("refused");
    if (!refused) return;
    // What an earlier try was told no longer counts.
    document.querySelector("[data-before]")?.remove();
    refused.scrollIntoView({ block: "start" });
    refused.focus();
  };

  // A part of a page is shown as it is; any other answer is a page of its own, such as signing in again.
  const answer = (status, text) => {
    if ((status === 422 || status === 413 || status === 507) && !text.includes("<html")) {
      part("problems").innerHTML = text;
      showProblems();
    }
    else if (status === 0) say("The connection broke. Nothing was kept: try again.");
    else if (status === 200) say("You were signed out meanwhile. Sign in again in another tab, then send the file again.");
    else say(`The server answered ${status}. Nothing was kept.`);
  };

  const withoutFiles = () => {
    const fields = new FormData(form);
    for (const [name, value] of [...fields]) if (value instanceof File) fields.delete(name);
    fields.set("check", "yes");
    return fields;
  };

  const busy = (is) => {
    sending.hidden = !is;
    button.disabled = is;
    if (!is) delete form.dataset.sent;
  };

  const progress = (event) => {
    if (!event.lengthComputable) return;
    sending.querySelector("progress").value = event.loaded / event.total;
    part("sent").textContent = `${size(event.loaded)} of ${size(event.total)}`;
    if (event.loaded === event.total) part("what").textContent = form.dataset.then ?? "Sent; the server keeps it";
  };

  const send = () => {
    request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("X-Requested-With", AJAX["X-Requested-With"]);
    request.upload.addEventListener("progress", progress);
    request.addEventListener("loadend", () => {
      const { status, responseText } = request;
      const wasStopped = stopped.has(request);
      request = null;
      if (status === 201) {
        window.location.assign(JSON.parse(responseText).to);
        return;
      }
      busy(false);
      if (!wasStopped) answer(status, responseText);
    });
    request.send(new FormData(form));
  };

  form.addEventListener("submit", async (event) => {
    if (event.submitter?.hasAttribute("formaction")) return;
    event.preventDefault();
    if (!sending.hidden) return;
    if (file && !file.files.length) {
      say("Choose the file to import.");
      return;
    }
    part("problems").replaceChildren();
    part("what").textContent = "Sending";
    part("sent").textContent = "";
    sending.querySelector("progress").value = 0;
    busy(true);
    try {
      const asked = await fetch(form.action, { method: "POST", body: withoutFiles(), headers: AJAX });
      if (asked.status === 204) {
        if (!sending.hidden) send();
        return;
      }
      busy(false);
      answer(asked.status, await asked.text());
    } catch {
      busy(false);
      answer(0, "");
    }
  });

  part("stop").addEventListener("click", () => {
    if (request) {
      stopped.add(request);
      request.abort();
    }
    busy(false);
  });

  const tooLarge = () => file.files[0]?.size > Number(form.dataset.limit);

  let looks = 0;
  const look = async () => {
    const chosen = file.files[0];
    const place = part("looked");
    const mine = ++looks;
    place?.replaceChildren();
    if (!place || !chosen || tooLarge()) return;
    const fields = new FormData();
    fields.set("csrfmiddlewaretoken", form.elements.namedItem("csrfmiddlewaretoken").value);
    fields.set("file", chosen.slice(0, LOOK_BYTES), chosen.name);
    try {
      const seen = await fetch(form.dataset.look, { method: "POST", body: fields, headers: AJAX });
      // Another file may have been chosen while this one was looked at.
      const words = await seen.text();
      if (!seen.ok || seen.redirected || mine !== looks) return;
      place.innerHTML = words;
      if (place.querySelector("[data-lengths]")) part("donors").open = true;
    } catch {
      // Looking is a courtesy: the import says what is wrong with the file.
    }
  };

  const chosen = () => {
    const one = file.files[0];
    part("chosen").textContent = one ? `${one.name}, ${size(one.size)}` : "Choose a file, or drop it here";
    const name = form.elements.namedItem("name");
    if (name) name.placeholder = one ? one.name.split(".")[0] : "the file’s name";
    file.setCustomValidity(tooLarge() ? form.dataset.tooLarge : "");
    if (tooLarge()) say(form.dataset.tooLarge);
    else part("problems").replaceChildren();
    look();
  };

  // The whole box takes the file: the input lies over it and is what the keyboard reaches.
  if (file) {
    const drop = file.closest(".drop");
    drop.classList.add("scripted");
    if (part("plain")) part("plain").hidden = true;
    file.addEventListener("change", chosen);
    for (const kind of ["dragenter", "dragover"]) file.addEventListener(kind, () => drop.classList.add("over"));
    for (const kind of ["dragleave", "drop"]) file.addEventListener(kind, () => drop.classList.remove("over"));
    if (file.files.length) chosen();
  }

  // Choosing what a choice is made with makes the choice.
  for (const one of form.querySelectorAll(".choices select, .choices input[type=file]")) {
    one.addEventListener("change", () => { one.closest("label").querySelector("input[type=radio]").checked = true; });
  }

  const service = part("service");
  const privacy = () => {
    for (const one of form.querySelectorAll("[data-of]")) one.hidden = one.dataset.of !== service.value;
  };
  if (service) {
    service.addEventListener("change", privacy);
    privacy();
  }

  // A field of a closed part can't say what is wrong with it.
  form.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);
})();
