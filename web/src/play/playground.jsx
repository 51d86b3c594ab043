// The Playground tab: structured output and tools, without the chat around them.
import { useState } from "preact/hooks";
import { Choices } from "../base/choices.jsx";
import { load, save } from "../base/storage.js";
import { SchemaPlay } from "./schema.jsx";
import { ToolsPlay } from "./tools.jsx";

const kParts = { "JSON schema": SchemaPlay, Tools: ToolsPlay };
const kNames = Object.keys(kParts);

export function Playground(props) {
  const [name, setName] = useState(() => {
    const stored = load("playground");
    return kNames.includes(stored) ? stored : kNames[0];
  });
  const choose = (next) => {
    setName(next);
    save("playground", next);
  };
  const Part = kParts[name];
  return (
    <div class="playground" data-testid="playground">
      <Choices label="What to try" names={kNames} chosen={name} onChoose={choose} testid="play" />
      <Part {...props} />
    </div>
  );
}
