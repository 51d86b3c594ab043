// Requests to the server that served the page, with the API key where it wants one.
//
// The key is kept for this browser tab only (sessionStorage) and travels in the Authorization
// header, never in an address. The first 401 sets `needed`, which makes the page ask for a key.
import { Store } from "./store.js";

const kStored = "braid.key";

function storedKey() {
  try {
    return sessionStorage.getItem(kStored) ?? "";
  } catch {
    return "";
  }
}

function keepKey(key) {
  try {
    if (key) sessionStorage.setItem(kStored, key);
    else sessionStorage.removeItem(kStored);
  } catch {
    // The key then holds until the page is reloaded.
  }
}

export const access = new Store({ key: storedKey(), needed: false, refused: false });

export class ServerError extends Error {
  constructor(message, status, param) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

// The OpenAI form of an error, or whatever text came instead.
export function errorFrom(text, status) {
  const plain = text.trim() || `The server answered with status ${status}.`;
  try {
    const { error } = JSON.parse(text);
    const said = typeof error?.message === "string" ? error.message : plain;
    return new ServerError(said, status, error?.param ?? null);
  } catch {
    return new ServerError(plain, status, null);
  }
}

const withKey = (key, headers) => (key ? { ...headers, Authorization: `Bearer ${key}` } : headers);

// fetch() with the key. options.json becomes the body of a POST.
export async function ask(path, { json, ...options } = {}) {
  const { key } = access.state;
  const request = { cache: "no-store", ...options, headers: withKey(key, {}) };
  if (json !== undefined) {
    request.method = "POST";
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(json);
  }
  const response = await fetch(path, request);
  if (response.status === 401 && key === access.state.key) {
    access.set({ needed: true, refused: key !== "" });
  }
  return response;
}

export async function askJson(path, options) {
  const response = await ask(path, options);
  const text = await response.text();
  if (!response.ok) throw errorFrom(text, response.status);
  return JSON.parse(text);
}

// Tries a key on a cheap path and keeps it if the server takes it. Returns what is wrong, or "".
export async function tryKey(key) {
  if (/[^\x21-\x7e]/.test(key)) return "A key has only letters, digits and signs, without spaces.";
  try {
    const response = await fetch("v1/models", { cache: "no-store", headers: withKey(key, {}) });
    if (response.status === 401) return "The server does not accept this key.";
    if (!response.ok && response.status !== 503) {
      return errorFrom(await response.text(), response.status).message;
    }
  } catch {
    return "The server cannot be reached.";
  }
  keepKey(key);
  access.set({ key, needed: false, refused: false });
  return "";
}

export function forgetKey() {
  keepKey("");
  access.set({ key: "", needed: false, refused: false });
}
