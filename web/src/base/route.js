// Where the reader is, from the address: #TAB, and for the chat #chat/ID of a conversation. So
// links and the browser's way back work, and each browser tab has a conversation of its own.
import { Store, useStore } from "./store.js";

export const kTabs = ["Chat", "Playground", "Live", "Model", "API"];

function routeOf(hash) {
  const [name, encoded = ""] = hash.replace(/^#/, "").split("/");
  const tab = kTabs.find((tab) => tab.toLowerCase() === name.toLowerCase()) ?? kTabs[0];
  return { tab, id: tab === "Chat" ? decoded(encoded) : "" };
}

// Imported conversations may have any text as id.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const addressOf = (id) => (id ? `#chat/${encodeURIComponent(id)}` : "#chat");

const route = new Store(routeOf(location.hash));
const follow = () => route.set(routeOf(location.hash));
addEventListener("hashchange", follow);

// The page follows at once: the event comes later, and what is typed until then would go to the
// conversation that was open before.
export function openConversation(id) {
  location.hash = addressOf(id);
  follow();
}

export const useRoute = () => useStore(route);
