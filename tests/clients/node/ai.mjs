// The npm package `ai` against the server in argv[2], with the provider in argv[3]: "openai" (the
// default one, which speaks the Responses API and refers to earlier items by id), or
// "openai-compatible" (chat completions). Prints one JSON object of what it saw.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const [address, provider] = process.argv.slice(2);
const bodies = [];
const options = {
  name: "braid",
  baseURL: `${address}/v1`,
  apiKey: "none",
  supportsStructuredOutputs: true,
  fetch: (url, init) => {
    const body = { ...JSON.parse(init.body), chat_template_kwargs: { enable_thinking: false } };
    bodies.push(body);
    return fetch(url, { ...init, body: JSON.stringify(body) });
  },
};
const create = { openai: createOpenAI, "openai-compatible": createOpenAICompatible }[provider];
const model = create(options)("braid-tiny");
const base = { model, temperature: 0, maxRetries: 0, maxOutputTokens: 200 };

const story = "Tell me a story about a fox named Finn in the meadow.";
const whole = await generateText({ ...base, prompt: story });
assert.ok(whole.text.includes("Finn") && whole.usage.outputTokens > 0);
let streamed = "";
for await (const piece of streamText({ ...base, prompt: story }).textStream) streamed += piece;
assert.equal(streamed, whole.text);

const called = [];
const tools = {
  calculate: tool({
    description: "Evaluate an expression.",
    inputSchema: z.object({ expression: z.string().max(40) }),
    execute: ({ expression }) => {
      called.push(expression);
      return { result: 1484 };
    },
  }),
};
const question = "What is 706 + 778? Use the calculator.";
const loop = { ...base, tools, stopWhen: isStepCount(4) };
bodies.length = 0;
const looped = await generateText({ ...loop, prompt: question });
assert.ok(looped.text.includes("1484"), looped.text);
assert.deepEqual(called, ["706 + 778"]);

// The conversation goes on from the messages that the client made of it.
const messages = [{ role: "user", content: question }, ...looped.response.messages];
const asked = { role: "user", content: "What is 706 + 778? Use the calculator." };
const stream = streamText({ ...loop, messages: [...messages, asked] });
let again = "";
for await (const piece of stream.textStream) again += piece;
assert.ok(again.length > 0);
const kinds = bodies.flatMap((body) => (body.input ?? []).map((item) => item.type ?? item.role));

const shaped = await generateText({
  ...base,
  prompt: "Tell me about Ella, who is 30.",
  output: Output.object({
    schema: z.object({ name: z.string().max(12), age: z.number().int().min(0).max(120) }),
  }),
});
assert.equal(typeof shaped.output.name, "string");

await assert.rejects(
  generateText({ ...base, prompt: "a", temperature: 9 }),
  (error) => error.statusCode === 400 && error.message.includes("temperature"),
);
console.log(JSON.stringify({ text: looped.text, steps: looped.steps.length, kinds }));
