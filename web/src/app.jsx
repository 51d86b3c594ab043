// The page: header, live strip, notices, and one of the tabs.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { Access } from "./base/access.jsx";
import { saveEverything } from "./base/boundary.jsx";
import { Icon, Logo } from "./base/icons.jsx";
import { kNarrow } from "./base/media.js";
import { addressOf, kTabs, openConversation, useRoute } from "./base/route.js";
import { load, save } from "./base/storage.js";
import { useStore } from "./base/store.js";
import { toggleTheme } from "./base/theme.js";
import { Toast } from "./base/toast.jsx";
import { Chat } from "./chat/chat.jsx";
import { history } from "./chat/history.js";
import { loadOptions, saveOptions } from "./chat/options.js";
import { Settings } from "./chat/settings.jsx";
import { Playground } from "./play/playground.jsx";
import { useServer } from "./server/server.js";
import { Api } from "./tabs/api.jsx";
import { Live } from "./tabs/live.jsx";
import { Model } from "./tabs/model.jsx";
import { Strip } from "./tabs/strip.jsx";

const kBanners = {
  loading: "The model is loading…",
  unreachable: "The server does not answer. Trying again…",
};

function ServerBanner({ server }) {
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

// What the reader should know about stored data: that nothing is stored, or some is unreadable.
function StorageBanner() {
  const { problem, unreadable } = useStore(history);
  const [closed, setClosed] = useState(false);
  if (closed || (!problem && unreadable === 0)) return null;
  const text = problem
    ? "Conversations cannot be stored in this browser; they last until the page is closed."
    : `${unreadable === 1 ? "A stored item" : `${unreadable} stored items`} could not be read.`;
  return (
    <div class="banner warn" role="status" data-testid="storage-banner">
      <span title={problem}>{text}</span>
      <button type="button" class="link" onClick={saveEverything}>Export stored data</button>
      <button type="button" class="quiet" aria-label="Dismiss" onClick={() => setClosed(true)}>
        <Icon name="close" />
      </button>
    </div>
  );
}

function Tabs({ tab, id }) {
  const home = addressOf(id);
  return (
    <nav class="tabs" aria-label="Parts of the page">
      {kTabs.map((name) => (
        <a key={name} href={name === "Chat" ? home : `#${name.toLowerCase()}`}
          data-testid={`tab-${name.toLowerCase()}`}
          aria-current={name === tab ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}

function Tool({ icon, label, onClick, testid, pressed }) {
  return (
    <button type="button" class="tool" aria-label={label} title={label} onClick={onClick}
      aria-expanded={pressed} data-testid={testid}>
      <Icon name={icon} />
    </button>
  );
}

function Header({ server, tab, id, sidebar, onSettings }) {
  return (
    <header class="top">
      {tab === "Chat" && (
        <Tool icon="list" label="Conversations" onClick={sidebar.toggle} pressed={sidebar.shown}
          testid="toggle-list" />
      )}
      <h1>
        <Logo />
        Braid
      </h1>
      <span class="model" data-testid="model-name" data-phase={server.phase}
        title={server.model?.id}>
        {server.phase === "locked" ? "API key needed" : server.model?.id ?? "…"}
      </span>
      <Tabs tab={tab} id={id} />
      <div class="tools-right">
        <Tool icon="sliders" label="Settings" onClick={onSettings} testid="open-settings" />
        <Tool icon="theme" label="Light or dark" onClick={toggleTheme} testid="theme" />
      </div>
    </header>
  );
}

// Shown beside the chat where there is room, until the reader closes it; else on demand.
function useSidebar() {
  const [shown, setShown] = useState(
    () => !matchMedia(kNarrow).matches && load("sidebar") !== "closed");
  const show = (value) => {
    setShown(value);
    if (!matchMedia(kNarrow).matches) save("sidebar", value ? "open" : "closed");
  };
  useEffect(() => {
    const list = matchMedia(kNarrow);
    const follow = () => setShown(!list.matches && load("sidebar") !== "closed");
    list.addEventListener("change", follow);
    return () => list.removeEventListener("change", follow);
  }, []);
  return { shown, toggle: () => show(!shown), close: () => show(false) };
}

// The conversation that was open last, so that the way back from another tab leads there.
function useConversationId({ tab, id }) {
  const [last, setLast] = useState(id);
  useEffect(() => {
    if (tab === "Chat") setLast(id);
  }, [tab, id]);
  return tab === "Chat" ? id : last;
}

export function App() {
  const server = useServer();
  const route = useRoute();
  const id = useConversationId(route);
  const sidebar = useSidebar();
  const drafts = useState("");
  const [options, setOptions] = useState(loadOptions);
  const [settings, setSettings] = useState(false);
  const ready = server.phase === "ready";
  const { tab } = route;

  useLayoutEffect(() => saveOptions(options), [options]);
  useEffect(() => {
    const keys = (event) => {
      if (event.key === "Escape" && !event.target.closest?.("dialog")) history.stop(id);
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [id]);

  return (
    <>
      <Header server={server} tab={tab} id={id} sidebar={sidebar}
        onSettings={() => setSettings(true)} />
      <Strip server={server} />
      <ServerBanner server={server} />
      <StorageBanner />
      <Access />
      {tab === "Chat" && (
        <Chat id={id} ready={ready} model={server.model?.id} options={options}
          setOptions={setOptions} drafts={drafts} sidebar={sidebar} onOpen={openConversation} />
      )}
      {tab !== "Chat" && (
        <main class="panel">
          {tab === "Playground" && (
            <Playground ready={ready} model={server.model?.id} options={options} />
          )}
          {tab === "Live" && <Live server={server} />}
          {tab === "Model" && <Model server={server} />}
          {tab === "API" && <Api server={server} />}
        </main>
      )}
      <Toast />
      {settings && (
        <Settings options={options} onChange={setOptions} server={server}
          onClose={() => setSettings(false)} />
      )}
    </>
  );
}
