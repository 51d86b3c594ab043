// Hands text to the reader as a file.
export function download(name, text, type = "application/json") {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// braid-conversations-2025-01-31.json
export const datedName = (what) => `braid-${what}-${new Date().toISOString().slice(0, 10)}.json`;
