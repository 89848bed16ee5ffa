"use strict";
// The dashboard. It asks the gateway that it came from, and nothing else. The token is held by this tab only.

const $ = (id) => document.getElementById(id);
const shownClients = 200;
const shownEvents = 200;
const asleepStates = new Set(["suspended", "dormant", "not_running"]);
let token = sessionStorage.getItem("token") ?? "";
let stream = null;
// The stream whose events arrive.
let connected = null;
let lastEvent = null;
// The clients shown, by identifier, with the moment their state began.
let clients = new Map();
let total = 0;
let isStale = true;
// The load that is under way.
let loading = null;

function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
}

async function ask(path, options = {}) {
    const response = await fetch(path, { ...options, headers: { Authorization: `Bearer ${token}`, ...options.headers } });
    if (response.ok) return response;
    let problem = { code: "ERROR", message: response.statusText };
    try { problem = (await response.json()).error; } catch { }
    throw Object.assign(new Error(problem.message), { status: response.status, code: problem.code });
}

// ── Text ──────────────────────────────────────────────────────────────────────────────────────────────────

function duration(milliseconds) {
    const seconds = Math.max(0, Math.floor(milliseconds / 1000));
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min`;
    return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds % 86400 / 3600)} h`;
}

function bytes(count) {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
        if (count < 1024) return `${count < 10 && unit !== "B" ? count.toFixed(1) : Math.round(count)} ${unit}`;
        count /= 1024;
    }
    return `${count.toFixed(1)} TiB`;
}

const number = new Intl.NumberFormat();
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// Why a client is awake, or why it last was woken.
function reason(client) {
    if (asleepStates.has(client.state)) return client.lastWake ? `last woken: ${client.lastWake}` : "";
    const tasks = client.background_tasks.join(", ");
    if (client.state_detail) return tasks ? `${client.state_detail} (${tasks})` : client.state_detail;
    const reasons = [];
    if (tasks) reasons.push(`background tasks: ${tasks}`);
    if (client.media_active) reasons.push("media");
    if (client.state === "active") reasons.push("in the foreground");
    if (client.lastWake && !reasons.length) reasons.push(`woken: ${client.lastWake}`);
    return reasons.join(", ");
}

// ── Totals ────────────────────────────────────────────────────────────────────────────────────────────────

function showTotals(status) {
    const states = status.clients_by_state;
    const asleep = (states.suspended ?? 0) + (states.dormant ?? 0);
    const avoided = Object.values(status.offload_by_profile).reduce((sum, each) => sum + each.wakes_avoided, 0);
    const entries = [
        ["asleep", number.format(asleep)],
        ["awake", number.format(status.clients - asleep)],
        ["wakes", number.format(status.counters.wakes ?? 0)],
        ["wakes avoided", number.format(avoided)],
        ["sockets", number.format(status.sockets)],
        ["asleep together", duration(status.counters.asleep_ns / 1e6)],
        ["memory of the supervisor", bytes(status.memory_bytes)],
        ["memory reclaimed", bytes(status.memory_reclaimed_bytes)],
        [`of ${number.format(status.descriptors_limit)} descriptors`, number.format(status.descriptors_open)],
        ["recoveries", number.format(status.restarts)],
        ["up for", duration(status.uptime_ms)],
    ];
    $("totals").replaceChildren(...entries.map(([name, value]) => {
        const total = element("div", "total", element("dt", "", name), element("dd", "", value));
        total.dataset.name = name;
        return total;
    }));
    // A request that failed before is over.
    if (connected) $("health").className = "";
    const problems = [...status.warnings, status.stopping ? "the supervisor is stopping" : ""].filter(Boolean);
    $("health").textContent = problems.join("; ") || `supervisor ${status.version}, ${status.suspension}`;
}

// ── Clients ───────────────────────────────────────────────────────────────────────────────────────────────

// The rows shown, by identifier. A row stays the same element as long as its client is shown: a press and its release
// on two elements are no click, and an element that is removed loses the focus.
const rows = new Map();
// Until then, by performance.now(), rows keep their places: a pointer is over them.
let heldUntil = 0;

function actionsOf(client) {
    if (!asleepStates.has(client.state)) return ["suspend", "quit"];
    if (client.state === "suspended") return ["wake", "quit"];
    return [client.can_launch ? "launch" : "", "quit"];
}

function makeRow(identifier) {
    const cell = (className, label) => {
        const made = element("td", className);
        if (label) made.dataset.label = label;
        return made;
    };
    const buttons = ["", ""].map(() => {
        const made = element("button", "");
        made.type = "button";
        return made;
    });
    const made = element("tr", "", element("td", "name", identifier), cell(), cell("for", "for"), cell("why"),
        cell("number", "wakes"), cell("number", "avoided"), cell("number", "asleep"),
        element("td", "actions", ...buttons));
    made.dataset.identifier = identifier;
    return made;
}

function setText(shown, text) {
    if (shown.textContent !== text) shown.textContent = text;
}

function update(row, client, isHeld) {
    const [, state, since, why, wakes, avoided, asleep, actions] = row.children;
    state.className = asleepStates.has(client.state) ? "asleep" : "awake";
    setText(state, client.state);
    setText(since, duration(Date.now() - client.since));
    // More or fewer lines would move the rows below.
    if (!isHeld) setText(why, [reason(client), ...client.warnings].filter(Boolean).join("; "));
    setText(wakes, number.format(client.counters.wakes ?? 0));
    setText(avoided, number.format(client.offload?.wakes_avoided ?? 0));
    setText(asleep, duration(client.counters.asleep_ns / 1e6));
    actionsOf(client).forEach((action, index) => {
        const button = actions.children[index];
        if (button.dataset.action === action) return;
        button.dataset.action = action;
        button.textContent = action;
        button.hidden = !action;
        button.setAttribute("aria-label", `${action} ${client.identifier}`);
    });
}

// Brings the rows into the order of the clients.
function arrange() {
    for (const [identifier, row] of rows) {
        if (clients.has(identifier)) continue;
        row.remove();
        rows.delete(identifier);
    }
    const focused = document.activeElement?.closest?.("tr");
    let place = $("rows").firstChild;
    for (const identifier of clients.keys()) {
        const row = rows.get(identifier);
        // The others move around the one with the focus, which would lose it.
        while (row === focused && place !== row) {
            const next = place.nextSibling;
            $("rows").append(place);
            place = next;
        }
        if (row === place) place = place.nextSibling;
        else $("rows").insertBefore(row, place);
    }
}

function showClients() {
    // A button must not become another one while it is pressed.
    if ($("rows").querySelector(":active")) return;
    const isHeld = performance.now() < heldUntil;
    for (const [identifier, client] of clients) {
        if (!rows.has(identifier)) {
            if (isHeld && rows.size >= shownClients) continue;
            rows.set(identifier, makeRow(identifier));
            $("rows").append(rows.get(identifier));
        }
        update(rows.get(identifier), client, isHeld);
    }
    if (!isHeld) arrange();
    $("more").textContent = total > clients.size ? `${number.format(clients.size)} of ${number.format(total)}: search to see others`
        : total ? "" : "no client";
}

async function load() {
    if (loading) return;
    const own = loading = {};
    isStale = false;
    try {
        const query = new URLSearchParams({ order: "recent", limit: shownClients });
        if ($("search").value) query.set("search", $("search").value);
        if ($("state").value) query.set("state", $("state").value);
        const [status, list] = await Promise.all(
            [ask("/v1/status"), ask(`/v1/clients?${query}`)].map(async (response) => (await response).json()));
        // It was left meanwhile.
        if (loading !== own) return;
        const takenAt = Date.now() - list.age_ms;
        const known = clients;
        listed = list.as_of_unix_ns;
        clients = new Map(list.clients.map((client) => {
            const shown = { ...client, since: takenAt - client.in_state_ms, lastWake: wakes.get(client.identifier) };
            const before = known.get(client.identifier);
            // The list may be older than events that were received since.
            if (isNewer(before?.notedAt)) {
                const { notedAt, state, since, counters } = before;
                Object.assign(shown, { notedAt, state, since, counters, state_detail: "" });
            }
            return [client.identifier, shown];
        }));
        isStale ||= isNewer(notedAt);
        total = list.total;
        showTotals(status);
        showClients();
        $("house").hidden = false;
        $("door").hidden = true;
        $("leave").hidden = false;
    } catch (error) {
        if (loading === own) refused(error);
    } finally {
        // Another one may have been begun since it was left.
        if (loading === own) loading = null;
    }
}

// ── Events ────────────────────────────────────────────────────────────────────────────────────────────────

// Why clients were last woken; of the latest ones only.
const wakes = new Map();
let waiting = [];
// The time of the latest event, and of the list, by the clock of the supervisor's machine.
let notedAt = 0;
let listed = 0;
// Whether an event came after the list. Lists are some seconds old at most: otherwise that clock was set back.
const isNewer = (time) => time > listed && time < listed + 60e9;

function note(event) {
    if (event.kind === "wake") {
        wakes.delete(event.identifier);
        wakes.set(event.identifier, event.detail);
        if (wakes.size > 5000) wakes.delete(wakes.keys().next().value);
    }
    const client = clients.get(event.identifier);
    // What was before the list is in it.
    if (client && event.at_unix_ns > listed) {
        client.notedAt = event.at_unix_ns;
        if (event.kind === "wake") {
            client.lastWake = event.detail;
            client.counters.wakes = (client.counters.wakes ?? 0) + 1;
        }
        if (event.state !== client.state && event.state !== "unknown") {
            client.state = event.state;
            client.since = event.at_unix_ns / 1e6;
            client.state_detail = "";
        }
    }
    waiting.push(event);
    if (waiting.length > shownEvents) waiting.shift();
    notedAt = event.at_unix_ns;
    isStale = true;
}

function line(event) {
    const time = element("time", "", clock.format(new Date(event.at_unix_ns / 1e6)));
    return element("li", event.kind === "wake" ? "wake" : "", time, element("span", "", event.identifier),
        element("b", "", event.kind), element("span", "", event.detail));
}

function showEvents() {
    if (!waiting.length) return;
    $("log").prepend(...waiting.reverse().map(line));
    waiting = [];
    while ($("log").children.length > shownEvents) $("log").lastChild.remove();
    showClients();
}

function receive(block) {
    let kind = "message";
    let data = "";
    for (const text of block.split("\n")) {
        if (text.startsWith("id: ")) lastEvent = text.slice(4);
        else if (text.startsWith("event: ")) kind = text.slice(7);
        else if (text.startsWith("data: ")) data += text.slice(6);
    }
    if (kind === "message" && data) note(JSON.parse(data));
    else if (kind !== "message") isStale = true;
}

// EventSource cannot send a token, and a token does not belong into an address.
async function follow() {
    // It may have been entered before another load has ended.
    stream?.abort();
    const own = stream = new AbortController();
    while (stream === own) {
        // The gateway gives a sign of life every 15 s.
        const silence = new AbortController();
        let patience = setTimeout(() => silence.abort(), 40000);
        try {
            const signal = AbortSignal.any([own.signal, silence.signal]);
            const response = await ask(`/v1/events?after=${lastEvent ?? 0}`, { signal });
            connected = own;
            $("health").className = "";
            const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
            let rest = "";
            for (;;) {
                const { done, value } = await reader.read();
                if (done) break;
                clearTimeout(patience);
                patience = setTimeout(() => silence.abort(), 40000);
                const blocks = (rest + value).split("\n\n");
                rest = blocks.pop();
                blocks.forEach(receive);
            }
        } catch (error) {
            if (error.status === 401 || error.status === 403) return refused(error);
        } finally {
            clearTimeout(patience);
            if (connected === own) connected = null;
        }
        if (stream !== own) return;
        $("health").className = "off";
        $("health").textContent = "not connected; trying again";
        isStale = true;
        await new Promise((done) => setTimeout(done, 1000));
    }
}

// ── The door ──────────────────────────────────────────────────────────────────────────────────────────────

function refused(error) {
    if (error.status === 401 || error.status === 403) {
        leave();
        $("refusal").textContent = error.message;
    } else {
        $("health").className = "off";
        $("health").textContent = error.status ? error.message : "the gateway does not answer";
        isStale = true;
    }
}

function leave() {
    token = "";
    loading = null;
    sessionStorage.removeItem("token");
    stream?.abort();
    stream = null;
    clients = new Map();
    $("house").hidden = true;
    $("door").hidden = false;
    $("leave").hidden = true;
    $("log").replaceChildren();
    $("rows").replaceChildren();
    rows.clear();
    heldUntil = 0;
    $("totals").replaceChildren();
    $("health").className = "off";
    $("health").textContent = "not connected";
}

async function enter() {
    $("refusal").textContent = "";
    await load();
    if (token) follow();
}

let noticeTimer = 0;
function notice(text) {
    $("notice").textContent = text;
    $("notice").hidden = false;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(() => { $("notice").hidden = true; }, 4000);
}

$("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value.trim();
    $("token").value = "";
    sessionStorage.setItem("token", token);
    loading = null;
    enter();
});
$("leave").addEventListener("click", leave);
function search() {
    isStale = true;
    // Other rows are asked for, wherever the pointer rests.
    heldUntil = 0;
}
$("search").addEventListener("input", search);
$("state").addEventListener("change", search);
for (const kind of ["pointermove", "pointerdown"]) {
    $("rows").addEventListener(kind, () => { heldUntil = Infinity; });
}
// A finger has left before its click comes.
$("rows").addEventListener("pointerleave", () => { heldUntil = performance.now() + 500; });
$("rows").addEventListener("click", async (event) => {
    const action = event.target.dataset?.action;
    const identifier = event.target.closest("tr")?.dataset.identifier;
    if (!action || !identifier) return;
    if (action === "quit" && !confirm(`Quit ${identifier}?`)) return;
    try {
        await ask(`/v1/clients/${encodeURIComponent(identifier)}/${action}`, { method: "POST" });
        notice(`${identifier}: ${action}`);
    } catch (error) {
        notice(`${identifier}: ${error.message}`);
    }
});

setInterval(() => {
    if (!token || document.hidden) return;
    showEvents();
}, 250);
let ticks = 0;
setInterval(() => {
    if (!token || document.hidden) return;
    ticks += 1;
    // Durations go on without events.
    if (isStale || ticks % 5 === 0) load();
}, 1000);
if (token) enter();
