// The list of conversations: search, open, rename, delete (with a way back), export and import.
// Arrow keys, Home and End move through it; F2 renames and Delete deletes the focused one.
import { useRef, useState } from "preact/hooks";
import { stepOf } from "../base/choices.jsx";
import { datedName, download } from "../base/download.js";
import { some } from "../base/format.js";
import { Icon } from "../base/icons.jsx";
import { useStore } from "../base/store.js";
import { say } from "../base/toast.jsx";
import { asConversation, titleOf } from "./conversation.js";
import { exportText, history, importText, listOf } from "./history.js";

const kDay = 24 * 3600 * 1000;

// "Today", "Yesterday", … from the local midnight.
function ageOf(updated) {
  const days = Math.ceil((new Date().setHours(0, 0, 0, 0) - updated) / kDay);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days <= 7) return "Previous 7 days";
  return days <= 30 ? "Previous 30 days" : "Older";
}

function NameField({ conversation, onDone }) {
  const done = useRef(false);
  const finish = (name) => {
    if (done.current) return;
    done.current = true;
    if (name.trim()) {
      history.update(conversation.id, (now) => ({ ...now, title: name.trim() }));
    }
    onDone();
  };
  const keys = (event) => {
    if (event.key === "Enter" && !event.isComposing) finish(event.target.value);
    if (event.key === "Escape") {
      event.preventDefault();
      finish("");
    }
    event.stopPropagation();
  };
  return (
    <input class="name-field" aria-label="Name of the conversation" data-testid="rename-field"
      defaultValue={titleOf(conversation)} onKeyDown={keys} maxLength={200}
      onBlur={(event) => finish(event.target.value)}
      ref={(element) => {
        if (!element || element.dataset.seen) return;
        element.dataset.seen = "yes";
        element.focus();
        element.select();
      }} />
  );
}

function Item({ conversation, current, reachable, onFocus, onOpen, onDelete }) {
  const [naming, setNaming] = useState(false);
  const opener = useRef(null);
  const title = titleOf(conversation);
  const named = () => {
    setNaming(false);
    requestAnimationFrame(() => opener.current?.focus());
  };
  if (naming) return <li><NameField conversation={conversation} onDone={named} /></li>;
  const keys = (event) => {
    if (event.key === "F2") setNaming(true);
    else if (event.key === "Delete") onDelete();
    else return;
    event.preventDefault();
  };
  const tab = reachable ? 0 : -1;
  return (
    <li class="item" data-testid="conversation" onFocusIn={onFocus}>
      <button type="button" class="open" aria-current={current ? "true" : undefined} ref={opener}
        tabIndex={tab} title={title} onClick={onOpen} onKeyDown={keys} data-item
        data-testid="open-conversation">
        <span>{title}</span>
        {history.isBusy(conversation.id) && <i class="pulse" aria-label="answering" />}
      </button>
      <span class="tools">
        <button type="button" class="quiet" tabIndex={tab} aria-label={`Rename “${title}”`}
          title="Rename (F2)" onClick={() => setNaming(true)} data-testid="rename">
          <Icon name="edit" />
        </button>
        <button type="button" class="quiet" tabIndex={tab} aria-label={`Delete “${title}”`}
          title="Delete (Del)" onClick={onDelete} data-testid="delete">
          <Icon name="trash" />
        </button>
      </span>
    </li>
  );
}

// Reads chosen files into the list; says what came of it.
async function importFiles(files) {
  try {
    let added = 0;
    for (const file of files) added += history.import(importText(await file.text()).conversations);
    say(added > 0 ? `${some(added, "conversation")} imported.` : "All of these are here already.");
  } catch (error) {
    say(error.message);
  }
}

function Files({ conversations }) {
  const field = useRef(null);
  const choose = async (event) => {
    await importFiles([...event.target.files]);
    field.current.value = "";
  };
  return (
    <div class="files">
      <button type="button" class="quiet" disabled={conversations.size === 0}
        onClick={() => download(datedName("conversations"), exportText(conversations))}
        data-testid="export">
        <Icon name="save" />
        Export
      </button>
      <button type="button" class="quiet" onClick={() => field.current.click()}
        data-testid="import">
        <Icon name="open" />
        Import
      </button>
      <input type="file" accept=".json,application/json" multiple hidden ref={field}
        onChange={choose} aria-label="File to import" data-testid="import-file" />
    </div>
  );
}

function grouped(list) {
  const groups = new Map();
  for (const item of list) {
    const age = ageOf(item.updated);
    groups.set(age, [...(groups.get(age) ?? []), item]);
  }
  return [...groups];
}

export function List({ current, onOpen, onNew }) {
  const { conversations, phase } = useStore(history);
  const [search, setSearch] = useState("");
  const box = useRef(null);
  const list = listOf(conversations, search);
  const [focused, setFocused] = useState(null);
  // One item is in the order of the Tab key, with its buttons; arrows reach the others.
  const reachable = [focused, current].find((id) => list.some((item) => item.id === id)) ??
    list[0]?.id;

  const focusItem = (index) => {
    const items = [...box.current.querySelectorAll("[data-item]")];
    (items[Math.min(index, items.length - 1)] ?? box.current.querySelector("input")).focus();
  };
  const keys = (event) => {
    const items = [...box.current.querySelectorAll("[data-item]")];
    const index = items.indexOf(document.activeElement);
    if (index < 0) return;
    const next = stepOf(event.key, index, items.length);
    if (next < 0) return;
    event.preventDefault();
    items[next].focus();
  };
  const searchKeys = (event) => {
    if (event.key === "ArrowDown" && list.length > 0) {
      event.preventDefault();
      focusItem(0);
    } else if (event.key === "Escape" && search) {
      event.preventDefault();
      event.stopPropagation();
      setSearch("");
    }
  };
  const remove = (conversation) => {
    const index = list.indexOf(conversation);
    history.remove(conversation.id);
    if (conversation.id === current) onNew({ focus: false });
    requestAnimationFrame(() => focusItem(index));
    const restore = () => {
      history.put(asConversation(conversation));  // an answer that grew has ended
      onOpen(conversation.id);
    };
    say(`Deleted “${titleOf(conversation)}”.`, { label: "Undo", run: restore });
  };
  return (
    <div class="list" ref={box} data-testid="list">
      <button type="button" class="plain new" onClick={() => onNew({ focus: true })}
        data-testid="new-chat">
        <Icon name="plus" />
        New chat
      </button>
      <label class="search">
        <Icon name="search" />
        <input type="search" placeholder="Search" aria-label="Search conversations" value={search}
          onInput={(event) => setSearch(event.target.value)} onKeyDown={searchKeys}
          data-testid="search" />
      </label>
      <nav aria-label="Conversations" onKeyDown={keys}>
        {grouped(list).map(([age, items]) => (
          <section key={age} aria-label={age}>
            <h3>{age}</h3>
            <ul>
              {items.map((conversation) => (
                <Item key={conversation.id} conversation={conversation}
                  current={conversation.id === current}
                  reachable={conversation.id === reachable}
                  onFocus={() => setFocused(conversation.id)}
                  onOpen={() => onOpen(conversation.id)} onDelete={() => remove(conversation)} />
              ))}
            </ul>
          </section>
        ))}
        {list.length === 0 && phase === "ready" && (
          <p class="note" role="status">{search ? "Nothing found." : "No conversations yet."}</p>
        )}
      </nav>
      <Files conversations={conversations} />
    </div>
  );
}
