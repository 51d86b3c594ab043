// The Chat tab: the list of conversations beside the one that is open, with its composer.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Dialog } from "../base/dialog.jsx";
import { Icon, Logo } from "../base/icons.jsx";
import { kNarrow, useMedia } from "../base/media.js";
import { memo } from "../base/memo.js";
import { useStore } from "../base/store.js";
import { Composer } from "./composer.jsx";
import { append, choose, newConversation, pathOf, userMessage, versionsOf } from "./conversation.js";
import { history } from "./history.js";
import { List } from "./list.jsx";
import { Message } from "./message.jsx";
import { kStarters } from "./starters.js";

function Welcome({ onPick }) {
  return (
    <div class="welcome" data-testid="welcome">
      <Logo />
      <h2>What would you like to ask?</h2>
      <ul>
        {kStarters.map(({ title, prompt }) => (
          <li key={title}>
            <button type="button" onClick={() => onPick(prompt)} data-testid="starter">
              <strong>{title}</strong>
              <span>{prompt}</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

// Keeps the end in view while text arrives, unless the reader has scrolled up.
function useFollow(conversation, id) {
  const area = useRef(null);
  const [away, setAway] = useState(false);
  const follow = () => {
    area.current?.scrollTo({ top: area.current.scrollHeight });
    setAway(false);
  };
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = area.current;
    setAway(scrollHeight - scrollTop - clientHeight > 60);
  };
  useEffect(follow, [id]);
  useEffect(() => {
    if (conversation && !away) follow();
  }, [conversation]);
  return { area, away, follow, onScroll };
}

// Says to screen readers when an answer begins and ends; reading out each piece would be noise.
function Announcer({ busy, last }) {
  const [said, setSaid] = useState("");
  const was_busy = useRef(false);
  useEffect(() => {
    if (busy) setSaid("Answering");
    else if (was_busy.current) setSaid(last?.status === "done" ? "Answer complete" : "Answer ended");
    was_busy.current = busy;
  }, [busy]);
  return <p class="visually-hidden" role="status" data-testid="announcer">{said}</p>;
}

// What can be done with the messages of one conversation; null before the first one.
function useActions(id, context, onOpen) {
  const now = useRef(context);
  now.current = context;
  return useMemo(() => {
    const answer = (target, parent) => {
      const { options, model } = now.current;
      return history.answer(target, parent, options, model);
    };
    const askIn = (conversation, parent, text) => {
      const asked = history.put(append(conversation, parent, userMessage(text)));
      answer(asked.id, asked.head);
      return asked.id;
    };
    return {
      ask: (text) => {
        const conversation = history.get(id) ?? newConversation();
        const asked = askIn(conversation, conversation.head, text);
        if (asked !== id) onOpen(asked);
      },
      regenerate: ({ parent }) => answer(id, parent),
      choose: (message) => history.update(id, (conversation) => choose(conversation, message)),
      edit: ({ role, parent, reasoning }, text) => {
        if (role === "user") askIn(history.get(id), parent, text);
        else {
          const edited = { role, content: text, reasoning, status: "done" };
          history.update(id, (conversation) => append(conversation, parent, edited));
        }
      },
    };
  }, [id]);
}

const Messages = memo(({ conversation, can, busy, actions }) =>
  pathOf(conversation).map((message) => (
    <Message key={message.id} message={message} can={can} busy={busy} actions={actions}
      versions={versionsOf(conversation, message)} />
  )));

function Sidebar({ id, shown, narrow, onClose, onOpen, onNew }) {
  if (!shown) return null;
  if (!narrow) {
    return (
      <aside class="sidebar" aria-label="Conversations">
        <List current={id} onOpen={onOpen} onNew={onNew} />
      </aside>
    );
  }
  const closing = (run) => (value) => {
    run(value);
    onClose();
  };
  return (
    <Dialog title="Conversations" kind="drawer left" onClose={onClose} testid="list-drawer">
      <List current={id} onOpen={closing(onOpen)}
        onNew={(how) => (how.focus ? closing(onNew)(how) : onNew(how))} />
    </Dialog>
  );
}

export function Chat({ id, ready, model, options, setOptions, drafts, sidebar, onOpen }) {
  const { conversations, phase } = useStore(history);
  const narrow = useMedia(kNarrow);
  const conversation = conversations.get(id);
  const busy = history.isBusy(id);
  const view = useFollow(conversation, id);
  const actions = useActions(id, { options, model }, onOpen);
  const [draft, setDraft] = drafts;

  const send = () => {
    actions.ask(draft.trim());
    setDraft("");
    view.follow();
  };
  const startAnew = ({ focus }) => {
    onOpen("");
    if (focus) requestAnimationFrame(() => document.querySelector("[data-home]")?.focus());
  };
  const missing = id && !conversation && phase === "ready";
  return (
    <div class="chat">
      <Sidebar id={id} shown={sidebar.shown} narrow={narrow} onClose={sidebar.close}
        onOpen={onOpen} onNew={startAnew} />
      <div class="talk">
        <main ref={view.area} onScroll={view.onScroll}>
          {missing && <p class="note center">This conversation is no longer stored here.</p>}
          {!id && <Welcome onPick={ready ? actions.ask : setDraft} />}
          {conversation && (
            <div class="log" role="log" aria-live="off" aria-label="Conversation" aria-busy={busy}>
              <Messages conversation={conversation} can={ready && !busy} busy={busy}
                actions={actions} />
            </div>
          )}
        </main>
        <Announcer key={id} busy={busy} last={conversation && pathOf(conversation).at(-1)} />
        <div class="bottom">
          {view.away && conversation && (
            <button type="button" class="round jump" aria-label="Scroll to the end"
              onClick={view.follow}>
              <Icon name="down" />
            </button>
          )}
          <Composer draft={draft} onDraft={setDraft} thinking={options.thinking} busy={busy}
            ready={ready} onSend={send} onStop={() => history.stop(id)}
            onThinking={() => setOptions({ ...options, thinking: !options.thinking })} />
        </div>
      </div>
    </div>
  );
}
