"use strict";

const byId = (id) => document.getElementById(id);
const [title, state, leaveButton] = ["title", "state", "leave"].map(byId);
const [entrance, chat, lines, presence, sleepers, text] =
    ["entrance", "chat", "lines", "presence", "sleepers", "text"].map(byId);
const mostLines = 500;
// Attempts in a row to get the name back, with pauses of more than a minute in total: the server takes less to notice
// that a connection is gone.
const mostRefusals = 10;

// The room and the name, for as long as this tab wants to be in a room; a reload keeps them.
let self = JSON.parse(sessionStorage.getItem("self") ?? "null");
let socket = null;
let isMember = false;
let wasMember = false;
let names = new Set();
let memberCount = 0;
// Members that the server has hibernated. The query uses HTTP, because a message would wake connections.
let asleep = new Set();
let lastNumber = 0;
let lastTime = 0;
let pause = 500;
let retry = 0;
let look = 0;
let refusals = 0;
// The message that was sent and neither received nor refused yet: until then it stays in the input field.
let said = null;

function connect() {
    clearTimeout(retry);
    show("connecting …", false);
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    const own = new WebSocket(address);
    socket = own;
    own.onopen = () => { if (socket === own) say({ type: "join", ...self }); };
    own.onmessage = (event) => { if (socket === own) hear(JSON.parse(event.data)); };
    own.onclose = () => { if (socket === own) again(); };
}

// Retries after a pause that grows each time.
function again() {
    socket = null;
    isMember = false;
    if (!self) return show("", false);
    show("connection lost, trying again", false);
    retry = setTimeout(connect, pause * (0.75 + Math.random() / 2));
    pause = Math.min(pause * 2, 15000);
}

function say(words) {
    socket.send(JSON.stringify(words));
}

function hear(words) {
    switch (words.type) {
    case "welcome": return beWelcome(words);
    case "message": return addLine(words);
    case "joined":
        names.add(words.name);
        memberCount += 1;
        addNotice(`${words.name} has come`);
        return showPresence();
    case "left":
        names.delete(words.name);
        memberCount -= 1;
        addNotice(`${words.name} has left`);
        return showPresence();
    case "count":
        memberCount = words.members;
        // Joining and leaving members are not named any more: the old names may be gone.
        names.clear();
        return showPresence();
    case "error": return beRefused(words.text);
    }
}

function beWelcome(words) {
    isMember = true;
    wasMember = true;
    pause = 500;
    refusals = 0;
    sessionStorage.setItem("self", JSON.stringify(self));
    history.replaceState(null, "", "#" + encodeURIComponent(words.room));
    names = new Set(words.names);
    memberCount = words.members;
    // After an interruption: only new lines. Lower numbers, or numbers of other lines, are those of a restarted
    // server.
    const newest = words.history.at(-1)?.number ?? 0;
    const last = words.history.find((line) => line.number === lastNumber);
    if (newest < lastNumber || (last && last.time !== lastTime)) clear();
    for (const line of words.history) if (line.number > lastNumber) addLine(line);
    said = null;
    entrance.hidden = true;
    chat.hidden = leaveButton.hidden = false;
    title.textContent = words.room;
    document.title = `${words.room} – Chat`;
    refuse("");
    show("connected", true);
    showPresence();
    lookWhoSleeps();
    text.focus();
}

function beRefused(reason) {
    if (isMember) {
        said = null;
        return refuse(reason);
    }
    refusals += 1;
    if (!wasMember || refusals === mostRefusals) return goOut(reason);
    // The server may not have noticed yet that this tab's former connection is gone.
    refuse(reason);
    socket.close();
}

// Back to the form with room and name, as entered last.
function goOut(reason) {
    byId("name").value = self.name;
    byId("room").value = self.room;
    self = said = null;
    isMember = wasMember = false;
    refusals = 0;
    sessionStorage.removeItem("self");
    clearTimeout(retry);
    socket?.close();
    socket = null;
    clear();
    entrance.hidden = false;
    chat.hidden = leaveButton.hidden = true;
    title.textContent = document.title = "Chat";
    refuse(reason);
    show("", false);
}

function clear() {
    lines.replaceChildren();
    lastNumber = 0;
    asleep = new Set();
    sleepers.textContent = "";
}

// User input is text, and never markup.
function addLine(line) {
    lastNumber = line.number;
    lastTime = line.time;
    const item = document.createElement("li");
    const isOwn = line.name === self?.name;
    if (isOwn && line.text === said) beHeard();
    item.className = isOwn ? "line own" : "line";
    const name = document.createElement("strong");
    name.textContent = line.name;
    const time = document.createElement("small");
    time.textContent = new Date(line.time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const body = document.createElement("p");
    body.textContent = line.text;
    item.append(time, name, body);
    add(item);
}

function addNotice(words) {
    const item = document.createElement("li");
    item.className = "notice";
    item.textContent = words;
    add(item);
}

// Keeps the scroll position, unless it is at the end.
function add(item) {
    const isAtEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.append(item);
    if (lines.children.length > mostLines) lines.firstElementChild.remove();
    if (isAtEnd) lines.scrollTop = lines.scrollHeight;
}

function show(words, isUp) {
    state.textContent = words;
    state.classList.toggle("up", isUp);
}

function showPresence() {
    presence.replaceChildren();
    if (memberCount === names.size) {
        for (const name of [...names].sort((a, b) => a.localeCompare(b))) {
            if (presence.firstChild) presence.append(", ");
            const item = document.createElement("span");
            item.textContent = name;
            if (asleep.has(name)) {
                item.className = "asleep";
                item.title = "its connection is asleep";
            }
            presence.append(item);
        }
    } else {
        presence.textContent = `${memberCount} people`;
    }
    presence.title = presence.textContent;
}

function showSleepers(room) {
    const words = `${room.asleep} of ${room.members} connections asleep`;
    if (words === sleepers.textContent && room.names.every((name) => asleep.has(name))) return;
    asleep = new Set(room.names);
    sleepers.textContent = words;
    showPresence();
}

async function lookWhoSleeps() {
    clearTimeout(look);
    const room = self?.room;
    if (isMember && !document.hidden) {
        try {
            const answer = await fetch("sleepers?room=" + encodeURIComponent(room));
            const words = await answer.json();
            if (isMember && room === self?.room) showSleepers(words);
        } catch {
            // The server is away; the state of the connection shows that.
        }
    }
    clearTimeout(look);
    look = setTimeout(lookWhoSleeps, 1000);
}

function refuse(reason) {
    for (const place of document.querySelectorAll(".refusal")) place.textContent = reason;
}

function sendText() {
    if (text.value.trim() === "" || !isMember || said !== null) return;
    refuse("");
    said = text.value;
    say({ type: "say", text: said });
}

// Text added meanwhile is not sent yet.
function beHeard() {
    if (text.value.startsWith(said)) text.value = text.value.slice(said.length);
    said = null;
}

byId("join").addEventListener("submit", (event) => {
    event.preventDefault();
    self = { name: byId("name").value.trim(), room: byId("room").value.trim() };
    wasMember = false;
    refuse("");
    socket?.close();
    connect();
});
byId("say").addEventListener("submit", (event) => {
    event.preventDefault();
    sendText();
});
text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    sendText();
});
leaveButton.addEventListener("click", () => goOut(""));
document.addEventListener("visibilitychange", lookWhoSleeps);
window.addEventListener("online", () => { if (self && !socket) connect(); });

if (location.hash.length > 1) {
    try {
        byId("room").value = decodeURIComponent(location.hash.slice(1));
    } catch {
        // Not a room's name.
    }
}
if (self) {
    wasMember = true;
    connect();
}
