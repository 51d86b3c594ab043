// The conversation as data: a list of messages, and the request made from it.
//
// A message is {id, role, content} and, for the assistant's, {reasoning, status, finish, error,
// stats}. status: "streaming" while the answer grows, then "done", "stopped" or "failed".
import { load, save } from "./storage.js";

export const kDefaultSettings = {
  temperature: "",
  top_p: "",
  top_k: "",
  max_tokens: "",
  seed: "",
  system: "",
  thinking: true,
};

const kNumbers = ["temperature", "top_p", "top_k", "max_tokens", "seed"];

let last_id = Date.now();

export const userMessage = (content) => ({ id: ++last_id, role: "user", content });

export const emptyAnswer = () => ({
  id: ++last_id,
  role: "assistant",
  content: "",
  reasoning: "",
  status: "streaming",
});

// An answer that was growing when the page was closed stays as far as it came.
export function loadMessages() {
  return load("messages", []).map((message) =>
    message.status === "streaming" ? { ...message, status: "stopped" } : message,
  );
}

export const saveMessages = (messages) => save("messages", messages);

export const loadSettings = () => ({ ...kDefaultSettings, ...load("settings", {}) });

export const saveSettings = (settings) => save("settings", settings);

// An empty field is left out, so that the model's own default holds.
export function requestFor(messages, settings, model) {
  const request = {
    model,
    messages: messages
      .filter((message) => message.content !== "")
      .map(({ role, content }) => ({ role, content })),
    chat_template_kwargs: { enable_thinking: settings.thinking },
  };
  if (settings.system.trim()) {
    request.messages.unshift({ role: "system", content: settings.system.trim() });
  }
  for (const name of kNumbers) {
    if (settings[name] !== "") request[name] = Number(settings[name]);
  }
  return request;
}
