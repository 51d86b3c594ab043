// Where the reader is, from the address: #TAB, and for the chat #chat/ID of a conversation. So
// links and the browser's way back work, and each browser tab has a conversation of its own.
import { useEffect, useState } from "preact/hooks";

export const kTabs = ["Chat", "Playground", "Live", "Model", "API"];

function routeOf(hash) {
  const [name, id = ""] = hash.replace(/^#/, "").split("/");
  const tab = kTabs.find((tab) => tab.toLowerCase() === name.toLowerCase()) ?? kTabs[0];
  return { tab, id: tab === "Chat" ? id : "" };
}

export const openConversation = (id) => {
  location.hash = id ? `chat/${id}` : "chat";
};

export function useRoute() {
  const [route, setRoute] = useState(() => routeOf(location.hash));
  useEffect(() => {
    const follow = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}
