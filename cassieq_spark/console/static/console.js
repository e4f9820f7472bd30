// Renews pages, copies texts, switches to local time, and knows some keys. All else works without.
"use strict";

(() => {
  const EVERY_MOST = 60000;
  let paused = false;
  let failed = 0;
  let timer = 0;

  const main = () => document.getElementById("main");
  const every = () => Number(main().dataset.live || 0) * 1000;

  function prepare(root) {
    for (const button of root.querySelectorAll(".copy")) {
      button.hidden = !navigator.clipboard;
    }
    for (const each of root.querySelectorAll(".without-script")) {
      each.hidden = true;
    }
    const foot = document.getElementById("foot");
    foot.querySelector(".zone-switch").hidden = false;
    foot.querySelector(".keys").hidden = false;
    const pause = foot.querySelector(".pause");
    pause.hidden = !every();
    pause.textContent = paused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    showTimes();
    showState();
  }

  function showState() {
    const state = document.querySelector("#foot .live-state");
    state.textContent = failed ? " · no answer, tried again" : paused ? " · paused" : "";
    state.classList.toggle("bad", failed > 0);
  }

  // -- local time ---------------------------------------------------------------------------

  const isLocal = () => localStorage.getItem("cassieq-zone") === "local";

  function zoneName(at) {
    const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(at);
    return parts.find((each) => each.type === "timeZoneName").value;
  }

  function two(number) {
    return String(number).padStart(2, "0");
  }

  function showTimes() {
    const local = isLocal();
    for (const each of document.querySelectorAll("time[datetime]")) {
      if (!each.dataset.utc) {
        each.dataset.utc = each.textContent;
      }
      const at = new Date(each.dateTime);
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
      const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
      const text = each.dataset.form === "clock" ? clock : `${day} ${clock}`;
      each.textContent = local ? text : each.dataset.utc;
    }
    const foot = document.getElementById("foot");
    foot.querySelector(".zone").textContent = local ? zoneName(new Date()) : "UTC";
    foot.querySelector(".zone-switch").textContent = local ? "show UTC" : "show local";
  }

  // -- renewing -----------------------------------------------------------------------------

  function keepsOpen(before, after) {
    if (before.nodeName === "DETAILS" && after.nodeName === "DETAILS") {
      after.open = before.open;
    }
    if (before.nodeName === "TIME") {
      delete before.dataset.utc;
    }
    return true;
  }

  async function renew() {
    clearTimeout(timer);
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Refresh": "1" },
        credentials: "same-origin",
        signal: AbortSignal.timeout(20000),
      });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("main");
      if (!answer.ok || !next) {
        throw new Error(String(answer.status));
      }
      failed = 0;
      const options = { ignoreActiveValue: true, callbacks: { beforeNodeMorphed: keepsOpen } };
      Idiomorph.morph(main(), next, options);
      Idiomorph.morph(document.getElementById("foot"), page.getElementById("foot"), options);
      document.title = page.title;
      prepare(document);
    } catch {
      failed += 1;
      showState();
    }
    plan();
  }

  function plan() {
    clearTimeout(timer);
    if (every() && !paused && !document.hidden) {
      timer = setTimeout(renewIfQuiet, Math.min(every() * 2 ** failed, EVERY_MOST));
    }
  }

  function renewIfQuiet() {
    // Whoever selects a text, or has a list open, is not disturbed.
    const chosen = document.getSelection();
    const inside = main().contains(document.activeElement) && document.activeElement;
    const busy = inside && ["SELECT", "INPUT", "TEXTAREA"].includes(inside.nodeName);
    if (busy || (chosen && !chosen.isCollapsed && main().contains(chosen.anchorNode))) {
      plan();
    } else {
      renew();
    }
  }

  function togglePause() {
    paused = !paused;
    prepare(document);
    if (paused) {
      clearTimeout(timer);
    } else {
      renew();
    }
  }

  // -- what somebody does -------------------------------------------------------------------

  document.addEventListener("click", async (event) => {
    const target = event.target.closest("button");
    if (!target) {
      return;
    }
    if (target.matches(".copy")) {
      await navigator.clipboard.writeText(target.dataset.copy);
      target.textContent = "Copied";
      setTimeout(() => { target.textContent = "Copy"; }, 1500);
    } else if (target.matches(".pause")) {
      togglePause();
    } else if (target.matches(".zone-switch")) {
      localStorage.setItem("cassieq-zone", isLocal() ? "UTC" : "local");
      showTimes();
    }
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-submit]")) {
      event.target.form.requestSubmit();
    }
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && typing) {
      typing.blur();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const search = document.getElementById("search");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "r" && every()) {
      renew();
    } else if (event.key === "p" && every()) {
      togglePause();
    }
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && every() && !paused) {
      renew();
    }
  });

  prepare(document);
  plan();
})();
