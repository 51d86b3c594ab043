// Where conversations are kept: one record each, in the browser's IndexedDB.
import { deleteDB, openDB } from "idb";

export const kDatabase = "braid";
const kVersion = 1;
const kRecords = "conversations";

let opening = null;

const create = (database) => database.createObjectStore(kRecords, { keyPath: "id" });

function open() {
  opening ??= openDB(kDatabase, kVersion, {
    upgrade: create,
    blocking: (_, __, event) => {  // another tab wants to delete it
      opening = null;
      event.target.close();
    },
    terminated: () => {
      opening = null;
    },
  }).catch((error) => {
    opening = null;
    throw error;
  });
  return opening;
}

export const readAll = async () => (await open()).getAll(kRecords);
export const readOne = async (id) => (await open()).get(kRecords, id);
export const write = async (record) => (await open()).put(kRecords, record);
export const remove = async (id) => (await open()).delete(kRecords, id);

// Writes what `change` makes of the stored record; no other tab writes in between.
export async function update(id, change) {
  const transaction = (await open()).transaction(kRecords, "readwrite");
  await transaction.store.put(change(await transaction.store.get(id)));
  await transaction.done;
}

export async function destroy() {
  const database = await opening?.catch(() => null);
  database?.close();
  opening = null;
  await deleteDB(kDatabase);
}

// Every record of every store, whatever made them: for an export when the page cannot read them.
export async function rawRecords() {
  const database = await openDB(kDatabase, undefined, { upgrade: create });
  try {
    const stores = {};
    for (const name of database.objectStoreNames) stores[name] = await database.getAll(name);
    return stores;
  } finally {
    database.close();
  }
}
