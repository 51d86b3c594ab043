// All conversations: in memory for the page, in IndexedDB for later, and told to other tabs.
//
// state: {phase, conversations, problem, unreadable}. phase is "loading" until the stored ones were
// read. `problem` says why nothing can be stored (then they live as long as the page); `unreadable`
// counts stored items that are no conversations: they are left as they are.
import { Store } from "../base/store.js";
import { forget, load } from "../base/storage.js";
import { runAnswer } from "./answer.js";
import * as tree from "./conversation.js";
import * as database from "./database.js";
import { requestFields } from "./options.js";

// A growing answer is stored at most this often, ms.
const kSaveEvery = 250;

// Up to version 0.1 there was one conversation, in localStorage.
const kOldMessages = "messages";

const kEmpty = { phase: "loading", conversations: new Map(), problem: "", unreadable: 0 };

// FNV-1a of a text, in hexadecimal digits.
function fingerprint(text) {
  let hash = 0x811c9dc5;
  for (const letter of text) hash = Math.imul(hash ^ letter.codePointAt(0), 0x01000193);
  return (hash >>> 0).toString(16);
}

// What a conversation says, in the form in which it would be read again.
const textOf = (conversation) => JSON.stringify(tree.asConversation(conversation).messages);

class History extends Store {
  #growing = new Map();  // by conversation: its growing answer and what ends that, {answer, abort}
  #timers = new Map();  // by conversation: its next save
  #channel = null;

  constructor() {
    super(kEmpty);
  }

  async start() {
    let stored = [];
    try {
      stored = await database.readAll();
    } catch (error) {
      this.#cannotStore(error);
    }
    const read = stored.map(tree.asConversation);
    const conversations = new Map(this.state.conversations);
    for (const item of read) {
      if (item && !conversations.has(item.id)) conversations.set(item.id, item);
    }
    const unreadable = read.filter((item) => item === null).length;
    this.set({ conversations, unreadable, phase: "ready" });
    await this.#takeOldMessages();
    this.#listen();
  }

  get(id) {
    return this.state.conversations.get(id);
  }

  isBusy(id) {
    return this.#growing.has(id);
  }

  put(conversation) {
    this.#show(conversation);
    this.#save(conversation.id);
    return conversation;
  }

  update(id, change) {
    const conversation = this.get(id);
    if (conversation) this.put(change(conversation));
  }

  remove(id) {
    this.stop(id);
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    const conversations = new Map(this.state.conversations);
    conversations.delete(id);
    this.set({ conversations });
    database.remove(id).then(() => this.#tell(id), (error) => this.#cannotStore(error));
  }

  // Adds imported conversations; one that is here already with the same id gets a new one, unless
  // it says the same.
  import(list) {
    let added = 0;
    for (const item of list) {
      const here = this.get(item.id);
      if (here && textOf(here) === textOf(item)) continue;
      this.put(here ? { ...item, id: tree.newId() } : item);
      added += 1;
    }
    return added;
  }

  // Asks the model for an answer to the path that ends with the message `parent`.
  async answer(id, parent, options, model) {
    const before = this.get(id);
    const followed = new Set(before.messages.map((message) => message.parent));
    const empty = (message) => message.parent === parent && message.role === "assistant" &&
      !message.content && !message.reasoning && !followed.has(message.id);
    const kept = { ...before, messages: before.messages.filter((message) => !empty(message)) };
    const growing = tree.append(kept, parent, tree.emptyAnswer());
    const answer_id = growing.head;
    const abort = new AbortController();
    this.#growing.set(id, { answer: answer_id, abort });
    this.put(growing);
    const turns = tree.turnsOf(tree.pathOf(growing, parent));
    const request = { model, ...requestFields(options, turns) };
    const show = (answer) => {
      if (this.get(id)) this.#show(tree.patch(this.get(id), answer_id, answer));
      this.#saveSoon(id, answer_id);
    };
    await runAnswer(request, abort.signal, show);
    if (this.#growing.get(id)?.abort === abort) this.#growing.delete(id);
    if (!this.get(id)) return;
    this.#show({ ...this.get(id), updated: Date.now() });
    this.#save(id, answer_id);
  }

  stop(id) {
    this.#growing.get(id)?.abort.abort();
  }

  // Before the page goes: begins to store what has not been stored yet of growing answers.
  flush() {
    for (const id of [...this.#timers.keys()]) this.#save(id, this.#growing.get(id)?.answer);
  }

  // Deletes all conversations and, with them, what could not be read.
  async reset() {
    const ids = [...this.state.conversations.keys()];
    for (const id of ids) this.stop(id);
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    this.set({ conversations: new Map(), unreadable: 0, problem: "" });
    forget(kOldMessages);
    try {
      await database.destroy();
      for (const id of ids) this.#tell(id);
    } catch (error) {
      this.#cannotStore(error);
    }
  }

  #show(conversation) {
    const conversations = new Map(this.state.conversations);
    conversations.set(conversation.id, conversation);
    this.set({ conversations });
  }

  // With an `answer`, only that message has grown: what other tabs have changed stays.
  #save(id, answer = null) {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    const conversation = this.get(id);
    if (!conversation) return Promise.resolve();
    const merged = (stored) => tree.merge(conversation, tree.asConversation(stored), answer);
    const written = answer ? database.update(id, merged) : database.write(conversation);
    return written.then(() => this.#tell(id), (error) => this.#cannotStore(error));
  }

  #saveSoon(id, answer) {
    if (this.#timers.has(id)) return;
    this.#timers.set(id, setTimeout(() => this.#save(id, answer), kSaveEvery));
  }

  #cannotStore(error) {
    this.set({ problem: error?.message || String(error) });
  }

  async #takeOldMessages() {
    const old = load(kOldMessages);
    if (old === null) return;
    // The same messages always have the same id: a page that was closed before it could forget
    // them, or another tab, has taken them already.
    const id = `${kOldMessages}-${fingerprint(JSON.stringify(old))}`;
    const conversation = tree.asConversation({ id, messages: old });
    if (conversation) {
      if (!this.get(conversation.id)) await this.#save(this.put(conversation).id);
      if (this.state.problem) return;
    } else if (!Array.isArray(old) || old.length > 0) {
      this.set({ unreadable: this.state.unreadable + 1 });
      return;
    }
    forget(kOldMessages);
  }

  // Other tabs say which conversation they have changed or removed.
  #listen() {
    if (!globalThis.BroadcastChannel) return;
    this.#channel = new BroadcastChannel("braid");
    this.#channel.onmessage = async ({ data: id }) => {
      const stored = await database.readOne(id).catch(() => undefined);
      const conversation = tree.asConversation(stored);
      const here = this.get(id);
      if (here && this.isBusy(id)) {
        const { answer } = this.#growing.get(id);
        this.#show({ ...tree.merge(here, conversation, answer), head: here.head });
        return;
      }
      const conversations = new Map(this.state.conversations);
      if (conversation) conversations.set(id, conversation);
      else conversations.delete(id);
      this.set({ conversations });
    };
  }

  #tell(id) {
    this.#channel?.postMessage(id);
  }
}

export const history = new History();

// The newest first, and of them those whose title or text has every word of the search.
export function listOf(conversations, search) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (conversation) => {
    if (words.length === 0) return true;
    const texts = conversation.messages.map(({ content }) => content);
    const text = [tree.titleOf(conversation), ...texts].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  return [...conversations.values()].filter(has).sort((a, b) => b.updated - a.updated);
}

// --- Files ---

const kFormat = "braid-conversations";

export const exportText = (conversations) => JSON.stringify(
  { format: kFormat, version: 1, conversations: [...conversations.values()] }, null, 1);

// The conversations of a file: an export, a list of conversations, or one of them.
export function importText(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new Error(`This file is not JSON: ${error.message}`);
  }
  const items = Array.isArray(data) ? data : data?.conversations ?? [data];
  const read = Array.isArray(items) ? items.map(tree.asConversation).filter(Boolean) : [];
  if (read.length === 0) throw new Error("This file has no conversations.");
  return { conversations: read, skipped: items.length - read.length };
}

// Everything that the page has stored, readable or not.
export async function exportEverything(values) {
  let stores;
  try {
    stores = await database.rawRecords();
  } catch (error) {
    stores = { unreadable: String(error) };
  }
  return JSON.stringify({ local_storage: values, database: stores,
    ...JSON.parse(exportText(history.state.conversations)) }, null, 1);
}
