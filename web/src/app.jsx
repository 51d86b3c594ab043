// The page: header, live strip, and one of the tabs: the conversation with its composer, which it
// owns the state of, or what the server does, serves and takes.
import { useEffect, useRef, useState } from "preact/hooks";
import { runAnswer } from "./answer.js";
import { Api } from "./api.jsx";
import { Composer } from "./composer.jsx";
import * as conversation from "./conversation.js";
import { Icon, Logo } from "./icons.jsx";
import { Live } from "./live.jsx";
import { Message } from "./message.jsx";
import { Model } from "./model.jsx";
import { useServer } from "./server.js";
import { Settings } from "./settings.jsx";
import { kStarters } from "./starters.js";
import { Strip } from "./strip.jsx";
import { toggleTheme } from "./theme.js";

const kBanners = {
  loading: "The model is loading…",
  unreachable: "The server does not answer. Trying again…",
};

function Banner({ server }) {
  const text = kBanners[server.phase];
  if (!text) return null;
  return (
    <div class="banner" role="status" data-testid="banner" data-phase={server.phase}>
      <span class="spinner" aria-hidden="true" />
      {text}
      {server.note && <small>{server.note}</small>}
    </div>
  );
}

const kTabs = ["Chat", "Live", "Model", "API"];
const tabOfAddress = () =>
  kTabs.find((tab) => tab.toLowerCase() === location.hash.slice(1).toLowerCase()) ?? kTabs[0];

// The tab stands in the address, so that it can be linked to and the browser's way back works.
function useTab() {
  const [tab, setTab] = useState(tabOfAddress);
  useEffect(() => {
    const follow = () => setTab(tabOfAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return tab;
}

function Tabs({ tab }) {
  return (
    <nav class="tabs" aria-label="Parts of the page">
      {kTabs.map((name) => (
        <a key={name} href={`#${name.toLowerCase()}`} data-testid={`tab-${name.toLowerCase()}`}
          aria-current={name === tab ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}

function Header({ server, tab, onNew, onSettings }) {
  const tool = (name, label, onClick, testid) => (
    <button type="button" class="tool" aria-label={label} title={label} onClick={onClick}
      data-testid={testid}>
      <Icon name={name} />
    </button>
  );
  return (
    <header class="top">
      <h1>
        <Logo />
        Braid
      </h1>
      <span class="model" data-testid="model-name" data-phase={server.phase}>
        {server.model?.id ?? "…"}
      </span>
      <Tabs tab={tab} />
      <nav aria-label="Page">
        {tab === "Chat" && tool("plus", "New chat", onNew, "new-chat")}
        {tab === "Chat" && tool("sliders", "Settings", onSettings, "open-settings")}
        {tool("theme", "Light or dark", toggleTheme, "theme")}
      </nav>
    </header>
  );
}

function Welcome({ onPick, previous, onRestore }) {
  return (
    <div class="welcome" data-testid="welcome">
      <Logo />
      <h2>What shall we ask?</h2>
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
      {previous && (
        <button type="button" class="plain" onClick={onRestore} data-testid="restore">
          Back to the previous chat
        </button>
      )}
    </div>
  );
}

// Keeps the end in view while text arrives, unless the reader has scrolled up.
function useFollow(messages) {
  const area = useRef(null);
  const [away, setAway] = useState(false);
  const follow = () => area.current.scrollTo({ top: area.current.scrollHeight });
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = area.current;
    setAway(scrollHeight - scrollTop - clientHeight > 60);
  };
  useEffect(() => {
    if (messages.length > 0 && !away) follow();
  }, [messages]);
  return { area, away, follow, onScroll };
}

// The conversation and the one answer that may be growing.
function useConversation(model) {
  const [messages, setMessages] = useState(conversation.loadMessages);
  const [settings, setSettings] = useState(conversation.loadSettings);
  const [previous, setPrevious] = useState(null);
  const running = useRef(null);
  const busy = messages.at(-1)?.status === "streaming";

  useEffect(() => {
    if (!busy) conversation.saveMessages(messages);
  }, [messages, busy]);
  useEffect(() => conversation.saveSettings(settings), [settings]);

  const answer = (history) => {
    const abort = new AbortController();
    running.current = abort;
    const request = conversation.requestFor(history, settings, model);
    runAnswer(request, abort.signal, (growing) => {
      if (running.current === abort) setMessages([...history, growing]);
    });
  };
  const stop = () => running.current?.abort();
  const ask = (text, history = messages) => answer([...history, conversation.userMessage(text)]);
  const replace = (list) => {
    stop();
    running.current = null;
    setMessages(list);
  };
  const startAnew = () => {
    if (messages.length > 0) setPrevious(messages);
    replace([]);
  };
  const restore = () => {
    replace(previous);
    setPrevious(null);
  };
  const settle = { messages, busy, settings, setSettings, previous };
  return { ...settle, answer, ask, stop, startAnew, restore };
}

function Chat({ chat, view, ready, draft, setDraft }) {
  const { messages, busy, settings } = chat;
  const send = () => {
    chat.ask(draft.trim());
    setDraft("");
    view.follow();
  };
  const last_question = messages.findLastIndex(({ role }) => role === "user");
  return (
    <>
      <main ref={view.area} onScroll={view.onScroll}>
        {messages.length === 0 ? (
          <Welcome onPick={ready ? chat.ask : setDraft} previous={chat.previous}
            onRestore={chat.restore} />
        ) : (
          <div class="log" role="log" aria-label="Conversation" aria-busy={busy}>
            {messages.map((message, index) => (
              <Message key={message.id} message={message} busy={busy}
                last={index === messages.length - 1}
                editable={ready && !busy && index === last_question}
                onEdit={(text) => chat.ask(text, messages.slice(0, index))}
                onRegenerate={() => chat.answer(messages.slice(0, index))} />
            ))}
          </div>
        )}
      </main>
      <div class="bottom">
        {view.away && messages.length > 0 && (
          <button type="button" class="round jump" aria-label="To the end" onClick={view.follow}>
            <Icon name="down" />
          </button>
        )}
        <Composer draft={draft} onDraft={setDraft} thinking={settings.thinking} busy={busy}
          ready={ready} onSend={send} onStop={chat.stop}
          onThinking={() => chat.setSettings({ ...settings, thinking: !settings.thinking })} />
      </div>
    </>
  );
}

export function App() {
  const server = useServer();
  const chat = useConversation(server.model?.id);
  const view = useFollow(chat.messages);
  const [draft, setDraft] = useState("");
  const [drawer, setDrawer] = useState(false);
  const tab = useTab();
  const { settings } = chat;
  const ready = server.phase === "ready";

  useEffect(() => {
    const keys = (event) => {
      if (event.key !== "Escape") return;
      if (drawer) setDrawer(false);
      else chat.stop();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [drawer]);

  return (
    <>
      <Header server={server} tab={tab} onNew={chat.startAnew} onSettings={() => setDrawer(true)} />
      <Strip server={server} />
      <Banner server={server} />
      {tab === "Chat" ? (
        <Chat chat={chat} view={view} ready={ready} draft={draft} setDraft={setDraft} />
      ) : (
        <main class="panel">
          {tab === "Live" && <Live server={server} />}
          {tab === "Model" && <Model server={server} />}
          {tab === "API" && <Api server={server} />}
        </main>
      )}
      {drawer && (
        <Settings settings={settings} onChange={chat.setSettings} server={server}
          onClose={() => setDrawer(false)} />
      )}
    </>
  );
}
