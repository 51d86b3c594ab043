// A value that components follow: set() replaces it and redraws whoever uses it.
import { useLayoutEffect, useReducer } from "preact/hooks";

export class Store {
  #listeners = new Set();

  constructor(state) {
    this.state = state;
  }

  set(fields) {
    this.state = { ...this.state, ...fields };
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

export function useStore(store) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const drawn = store.state;
  useLayoutEffect(() => {
    const stop = store.subscribe(redraw);
    if (store.state !== drawn) redraw();  // it changed between drawing and subscribing
    return stop;
  }, [store]);
  return store.state;
}
