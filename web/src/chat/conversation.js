// A conversation as data, without the page: messages that form a tree, of which one path is shown.
//
// conversation: {id, title, created, updated, head, messages}. `messages` is a list in which every
// message stands behind its parent; `head` is the last message of the path that is shown. Editing a
// question or asking for another answer adds a sibling, so that nothing is lost.
// message: {id, parent, role, content} and, for the assistant's, {reasoning, status, finish, error,
// stats}. status: "streaming" while the answer grows, then "done", "stopped" or "failed".

const kRoles = ["user", "assistant"];
const kStatuses = ["streaming", "done", "stopped", "failed"];
const kTitleLength = 60;

// crypto.randomUUID() exists on HTTPS and localhost only.
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, head: null, messages: [] };
}

export const userMessage = (content) => ({ role: "user", content });

export const emptyAnswer = () => ({
  role: "assistant",
  content: "",
  reasoning: "",
  status: "streaming",
});

// The messages from the first one to `id`, which is the head if it is not given.
export function pathOf(conversation, id = conversation.head) {
  const by_id = new Map(conversation.messages.map((message) => [message.id, message]));
  const path = [];
  for (let message = by_id.get(id); message; message = by_id.get(message.parent)) {
    path.push(message);
  }
  return path.reverse();
}

// The versions of a message: itself and what stands in its place in other paths, oldest first.
export const versionsOf = (conversation, message) => conversation.messages.filter(
  ({ parent, role }) => parent === message.parent && role === message.role);

// Adds a message behind `parent` and shows it.
export function append(conversation, parent, fields) {
  const message = { id: newId(), parent, ...fields };
  const messages = [...conversation.messages, message];
  return { ...conversation, messages, head: message.id, updated: Date.now() };
}

// Changes fields of one message.
export function patch(conversation, id, fields) {
  const messages = conversation.messages.map((message) =>
    message.id === id ? { ...message, ...fields } : message);
  return { ...conversation, messages };
}

// What is to be stored of a conversation whose message `answer` grows here, when another tab may
// have stored it meanwhile: all else that was stored stays, and what is here alone is added.
export function merge(here, stored, answer) {
  if (!stored) return here;
  const of_id = new Map(stored.messages.map((message) => [message.id, message]));
  const ids = new Set(here.messages.map(({ id }) => id));
  const messages = [
    ...here.messages.map((message) => (message.id !== answer && of_id.get(message.id)) || message),
    ...stored.messages.filter(({ id }) => !ids.has(id)),
  ];
  return { ...here, title: stored.title, head: stored.head, messages };
}

// Shows the path through a message, to the newest end behind it.
export function choose(conversation, id) {
  let head = id;
  for (;;) {
    const next = conversation.messages.findLast(({ parent }) => parent === head);
    if (!next) return { ...conversation, head };
    head = next.id;
  }
}

export function titleOf({ title, messages }) {
  if (title) return title;
  const first = messages.find(({ role }) => role === "user")?.content.trim().split("\n")[0] ?? "";
  return first.length > kTitleLength ? `${first.slice(0, kTitleLength - 1)}…` : first || "New chat";
}

// The messages of a request. An answer without text would be one that failed.
export const turnsOf = (path) => path
  .filter(({ content }) => content !== "")
  .map(({ role, content }) => ({ role, content }));

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const textOr = (value, fallback) => (typeof value === "string" ? value : fallback);
const numberOr = (value, fallback) => (Number.isFinite(value) ? value : fallback);

function asError(value) {
  if (!isObject(value)) return undefined;
  return {
    message: textOr(value.message, "Unknown error"),
    status: numberOr(value.status, undefined),
    param: textOr(value.param, undefined),
  };
}

function asStats(value) {
  if (!isObject(value)) return undefined;
  const numbers = Object.entries(value).filter(([, number]) => Number.isFinite(number));
  return numbers.length > 0 ? Object.fromEntries(numbers) : undefined;
}

// An answer that was growing when the page was closed stays as far as it came.
function asAnswer(value) {
  const status = kStatuses.includes(value.status) ? value.status : "done";
  return {
    reasoning: textOr(value.reasoning, ""),
    status: status === "streaming" ? "stopped" : status,
    finish: textOr(value.finish, undefined),
    error: asError(value.error),
    stats: asStats(value.stats),
  };
}

// A conversation made from stored or imported data of any shape; null if it holds no message. What
// is missing is filled in: old data has no ids, and there each message follows the one before it.
export function asConversation(value) {
  if (!isObject(value) || !Array.isArray(value.messages)) return null;
  const messages = [];
  const ids = new Set();
  for (const item of value.messages) {
    if (!isObject(item) || !kRoles.includes(item.role)) continue;
    if (typeof item.content !== "string") continue;
    const id = typeof item.id === "string" && item.id && !ids.has(item.id) ? item.id : newId();
    const known = item.parent === null || ids.has(item.parent);
    const parent = known ? item.parent : messages.at(-1)?.id ?? null;
    const fields = item.role === "assistant" ? asAnswer(item) : {};
    messages.push({ id, parent, role: item.role, content: item.content, ...fields });
    ids.add(id);
  }
  if (messages.length === 0) return null;
  const now = Date.now();
  return {
    id: textOr(value.id, "") || newId(),
    title: textOr(value.title, ""),
    created: numberOr(value.created, now),
    updated: numberOr(value.updated, now),
    head: ids.has(value.head) ? value.head : messages.at(-1).id,
    messages,
  };
}
