// Model output as elements: fenced code, paragraphs, `code` and **bold**. Everything else stays the
// text it is; the output reaches the page only as text nodes, never as HTML.
import { CopyButton } from "./copy.jsx";

// Splits into {code, language, text} blocks. A fence that is still open ends with the text.
export function blocksOf(text) {
  const blocks = [];
  let fence = null;
  let lines = [];
  const flush = () => {
    const body = lines.join("\n");
    if (fence) blocks.push({ code: true, language: fence.language, text: body });
    else if (body.trim()) blocks.push({ code: false, text: body.trim() });
    lines = [];
  };
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,})\s*([\w+-]*)[^`]*$/.exec(line);
    if (!fence && mark) {
      flush();
      fence = { ticks: mark[1], language: mark[2] };
    } else if (fence && mark && !mark[2] && mark[1].length >= fence.ticks.length) {
      flush();
      fence = null;
    } else {
      lines.push(line);
    }
  }
  if (lines.length > 0 || fence) flush();
  return blocks;
}

function Inline({ text }) {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, index) => {
    if (index % 2 === 0) return part;
    if (part.startsWith("`")) return <code key={index}>{part.slice(1, -1)}</code>;
    return <strong key={index}>{part.slice(2, -2)}</strong>;
  });
}

function CodeBlock({ block }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{block.language || "code"}</span>
        <CopyButton text={block.text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0}>
        <code>{block.text}</code>
      </pre>
    </figure>
  );
}

export function Markup({ text }) {
  return blocksOf(text).map((block, index) =>
    block.code ? (
      <CodeBlock key={index} block={block} />
    ) : (
      block.text.split(/\n{2,}/).map((paragraph, part) => (
        <p key={`${index}.${part}`}>
          <Inline text={paragraph} />
        </p>
      ))
    ),
  );
}
