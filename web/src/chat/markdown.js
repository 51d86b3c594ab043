// Markdown to safe HTML, a block at a time.
//
// Two walls stand between what a model writes and the page: markdown-it makes no element of HTML
// in the text (it stays text) and links only to safe schemes, and DOMPurify keeps of the result
// only the elements and attributes named here. A third is the page's Content-Security-Policy.
import DOMPurify from "dompurify";
import katex from "katex";
import MarkdownIt from "markdown-it";
import { tex } from "@mdit/plugin-tex";
import { highlight } from "./highlight.js";

const kElements = ["p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code",
  "pre", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a", "span"];
const kMath = ["math", "semantics", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac",
  "msqrt", "mroot", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mtable", "mtr",
  "mtd", "mpadded", "mphantom", "menclose", "mstyle", "merror", "mmultiscripts", "mprescripts"];
const kMathAttributes = ["display", "mathvariant", "stretchy", "fence", "separator", "lspace",
  "rspace", "minsize", "maxsize", "width", "height", "depth", "voffset", "accent", "accentunder",
  "linethickness", "columnalign", "rowspacing", "columnspacing", "scriptlevel", "displaystyle",
  "movablelimits", "largeop", "symmetric", "notation",
  "mathcolor", "mathbackground"];

const kPlainAttributes = ["class", "start", "data-align", "data-language", ...kMathAttributes];

const kPurify = {
  ALLOWED_TAGS: [...kElements, ...kMath],
  ALLOWED_ATTR: ["href", ...kPlainAttributes],
  ADD_URI_SAFE_ATTR: kPlainAttributes,  // their values are no addresses
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

// MathML, which browsers draw without a style sheet or fonts of ours; the source where it has an
// error. The policy forbids style attributes; annotations repeat the source.
function renderMath(source, display) {
  const options = { output: "mathml", displayMode: display, strict: false, trust: false,
    maxExpand: 500, maxSize: 20 };
  let formula;
  try {
    formula = katex.renderToString(source, options);
  } catch {
    const plain = markdown.utils.escapeHtml(source.trim());
    return display ? `<pre><code>${plain}</code></pre>` : `<code>${plain}</code>`;
  }
  const bare = formula.replace(/ style="[^"]*"/g, "").replace(/<annotation.*?<\/annotation>/gs, "");
  return display ? `<p class="formula">${bare}</p>` : bare;
}

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false });
// "Text\n-" is a heading only until the rest of the list has come: it would flicker.
markdown.disable("lheading");
markdown.use(tex, { delimiters: "all", render: renderMath });
// Nothing is loaded from other hosts: an image is a link to it.
markdown.renderer.rules.image = (tokens, index) => {
  const token = tokens[index];
  const escape = markdown.utils.escapeHtml;
  return `<a href="${escape(token.attrGet("src") ?? "")}">${escape(token.content || "image")}</a>`;
};
markdown.renderer.rules.fence = (tokens, index) => {
  const { content, info } = tokens[index];
  const code = content.replace(/\n$/, "");
  const language = info.trim().split(/\s+/)[0] ?? "";
  const escape = markdown.utils.escapeHtml;
  const html = highlight(code, language.toLowerCase()) ?? escape(code);
  return `<pre data-language="${escape(language)}"><code>${html}</code></pre>`;
};
for (const cell of ["th_open", "td_open"]) {
  markdown.renderer.rules[cell] = (tokens, index) => {
    const align = /text-align:(\w+)/.exec(tokens[index].attrGet("style") ?? "")?.[1];
    return `<${tokens[index].tag}${align ? ` data-align="${align}"` : ""}>`;
  };
}

// The text as blocks of the top level: {key, html}. A block's html depends on its own text alone
// (and on link definitions), so while an answer grows only the last one changes.
export function blocksOf(text) {
  const environment = {};
  const tokens = markdown.parse(text, environment);
  const blocks = [];
  let first = 0;
  for (let index = 0; index < tokens.length; index += 1) {
    if (tokens[index].level !== 0 || tokens[index].nesting > 0) continue;
    const own = tokens.slice(first, index + 1);
    blocks.push(markdown.renderer.render(own, markdown.options, environment));
    first = index + 1;
  }
  return blocks;
}

// A document fragment that holds nothing but what is named above.
export const cleaned = (html) => DOMPurify.sanitize(html, kPurify);
