// A button that copies text and says so. Outside a secure context (plain HTTP on a LAN address)
// there is no clipboard API; then a hidden field and the old command do it.
import { useState } from "preact/hooks";
import { Icon } from "./icons.jsx";

async function copyText(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden-field";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

export function CopyButton({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" class="quiet" aria-label={label} title={label} onClick={copy}
      data-testid="copy">
      <Icon name={copied ? "check" : "copy"} />
      <span class="visually-hidden" role="status">{copied ? "Copied" : ""}</span>
    </button>
  );
}
