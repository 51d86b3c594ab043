// The npm client `openai` against the server in argv[2]; prints one JSON object of what it saw.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const question = "Tell me a story about a fox named Finn in the meadow.";
const messages = [{ role: "user", content: question }];
const base = { model, messages, temperature: 0, max_tokens: 120 };

const whole = await client.chat.completions.create(base);
const choice = whole.choices[0];
assert.ok(choice.message.content.includes("Finn"));
assert.ok(whole.usage.completion_tokens > 0);

let content = "";
let usage = null;
const stream = await client.chat.completions.create({
  ...base,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  content += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(content, choice.message.content);
assert.equal(usage.completion_tokens, whole.usage.completion_tokens);

const response = await client.responses.create({ model, input: "Hello", max_output_tokens: 20 });
assert.ok(["completed", "incomplete"].includes(response.status));
const events = [];
for await (const event of await client.responses.create({
  model,
  input: "Hello",
  max_output_tokens: 20,
  stream: true,
})) {
  events.push(event.type);
}
assert.equal(events[0], "response.created");
assert.ok(["response.completed", "response.incomplete"].includes(events.at(-1)));

const schema = {
  type: "object",
  properties: { name: { type: "string", maxLength: 10 } },
  required: ["name"],
  additionalProperties: false,
};
const shaped = await client.chat.completions.create({
  ...base,
  reasoning_effort: "none",
  response_format: { type: "json_schema", json_schema: { name: "a", strict: true, schema } },
});
assert.equal(typeof JSON.parse(shaped.choices[0].message.content).name, "string");

// A tool-calling loop: the model asks, the program answers, the model concludes. The model was
// trained for such questions, and the schema bounds what it may say.
const task = [{ role: "user", content: "What is 706 + 778? Use the calculator." }];
const parameters = {
  type: "object",
  properties: { expression: { type: "string", maxLength: 20 } },
  required: ["expression"],
};
const description = "Evaluate an expression.";
const tools = [{ type: "function", function: { name: "calculate", description, parameters } }];
const asked = await client.chat.completions.create({
  ...base,
  messages: task,
  reasoning_effort: "none",
  tools,
  tool_choice: "required",
  parallel_tool_calls: false,
});
const call = asked.choices[0].message.tool_calls[0];
assert.equal(asked.choices[0].finish_reason, "tool_calls");
assert.deepEqual(JSON.parse(call.function.arguments), { expression: "706 + 778" });
const concluded = await client.chat.completions.create({
  ...base,
  reasoning_effort: "none",
  messages: [
    ...task,
    asked.choices[0].message,
    { role: "tool", tool_call_id: call.id, content: '{"result": 1484}' },
  ],
  tools,
  tool_choice: "none",
});
assert.ok(concluded.choices[0].message.content.includes("1484"));

await assert.rejects(
  client.chat.completions.create({ ...base, temperature: 9 }),
  (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature",
);

const abort = new AbortController();
const endless = await client.chat.completions.create(
  { ...base, max_tokens: 5000, ignore_eos: true, stream: true },
  { signal: abort.signal },
);
for await (const chunk of endless) {
  if (chunk.choices.length > 0) break;
}
abort.abort();
console.log(JSON.stringify({ model, content, events: events.length }));
