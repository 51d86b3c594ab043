// The API tab: the same request in several tools' words, filled in for this server.
import { useState } from "preact/hooks";
import { Choices } from "../base/choices.jsx";
import { CopyButton } from "../base/copy.jsx";
import { access } from "../base/http.js";
import { useStore } from "../base/store.js";

// The key itself never stands in an example: it would be copied into files and shell histories.
const pythonKey = (keyed) => (keyed ? 'os.environ["BRAID_API_KEY"]' : '"none"');

const kTools = {
  curl: (base, model, keyed) => `curl ${base}/v1/chat/completions \\
  -H 'Content-Type: application/json' \\
${keyed ? `  -H "Authorization: Bearer $BRAID_API_KEY" \\\n` : ""}  -d '{
    "model": "${model}",
    "messages": [{"role": "user", "content": "Hello!"}],
    "stream": true
  }'`,
  Python: (base, model, keyed) => `${keyed ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${base}/v1", api_key=${pythonKey(keyed)})
stream = client.chat.completions.create(
    model="${model}",
    messages=[{"role": "user", "content": "Hello!"}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
  JavaScript: (base, model, keyed) => `import OpenAI from "openai";

const apiKey = ${keyed ? "process.env.BRAID_API_KEY" : '"none"'};
const client = new OpenAI({ baseURL: "${base}/v1", apiKey });
const stream = await client.chat.completions.create({
  model: "${model}",
  messages: [{ role: "user", content: "Hello!" }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}`,
  Anthropic: (base, model, keyed) => `${keyed ? "import os\n\n" : ""}from anthropic import Anthropic

client = Anthropic(base_url="${base}", api_key=${pythonKey(keyed)})
with client.messages.stream(
    model="${model}",
    max_tokens=500,
    messages=[{"role": "user", "content": "Hello!"}],
) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)`,
};

const kPaths = [
  ["/v1/chat/completions", "OpenAI's chat, with tools, reasoning and structured output"],
  ["/v1/responses", "OpenAI's responses"],
  ["/v1/messages", "Anthropic's messages"],
  ["/v1/completions", "Text that is continued, with log-probabilities"],
  ["/metrics", "For Prometheus"],
  ["/openapi.json", "Every path and field"],
];

export function Api({ server }) {
  const [tool, setTool] = useState("curl");
  const base = location.origin;
  const { key } = useStore(access);
  const text = kTools[tool](base, server.model?.id ?? "model", key !== "");
  return (
    <div class="cards" data-testid="api">
      <section class="card wide" aria-label="Examples">
        <h2>Use it from your code</h2>
        <Choices label="Tool" names={Object.keys(kTools)} chosen={tool} onChoose={setTool}
          testid="tool" />
        <figure class="code">
          <figcaption>
            {tool}
            <CopyButton text={text} label="Copy the example" />
          </figcaption>
          <pre tabIndex={0} aria-label="Example" data-testid="snippet">{text}</pre>
        </figure>
      </section>
      <section class="card wide" aria-label="Paths">
        <h2>Paths</h2>
        <dl class="facts paths">
          {kPaths.map(([path, what]) => (
            <div key={path}>
              <dt><code>{path}</code></dt>
              <dd>{what}</dd>
            </div>
          ))}
        </dl>
      </section>
    </div>
  );
}
