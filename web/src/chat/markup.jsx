// Model output as elements. The cleaned HTML is turned into components, so that a growing answer
// changes in place: what is selected stays selected, and code has its copy button.
import { h } from "preact";
import { memo } from "../base/memo.js";
import { CopyButton } from "../base/copy.jsx";
import { blocksOf, cleaned } from "./markdown.js";

export function CodeBlock({ language, text, children }) {
  return (
    <figure class="code">
      <figcaption>
        <span>{language || "code"}</span>
        <CopyButton text={text} label="Copy code" />
      </figcaption>
      <pre tabIndex={0} aria-label={`Code, ${language || "plain"}`}>
        <code>{children ?? text}</code>
      </pre>
    </figure>
  );
}

const kOutside = { target: "_blank", rel: "noopener noreferrer nofollow" };

function elementOf(node, index) {
  if (node.nodeType === Node.TEXT_NODE) return node.data;
  const name = node.localName;
  const children = [...node.childNodes].map(elementOf);
  const props = { key: index };
  for (const { name: attribute, value } of node.attributes) props[attribute] = value;
  if (name === "pre") {
    return (
      <CodeBlock key={index} language={node.dataset.language} text={node.textContent}>
        {elementsOf(node.firstElementChild ?? node)}
      </CodeBlock>
    );
  }
  if (name === "table") {
    return <div key={index} class="table" tabIndex={0}>{h("table", props, children)}</div>;
  }
  if (name === "a") return h("a", { ...props, ...kOutside }, children);
  return h(name, props, children);
}

export const elementsOf = (fragment) => [...fragment.childNodes].map(elementOf);

const Block = memo(({ html }) => elementsOf(cleaned(html)));

export const Markup = memo(({ text }) => {
  let blocks;
  try {
    blocks = blocksOf(text);
  } catch {
    return <p class="plain-text">{text}</p>;  // whatever it is, it can be read
  }
  return blocks.map((html, index) => <Block key={index} html={html} />);
});
