// One streamed chat completion: posts the request, calls back for every event of the answer.
// Throws ServerError with the server's own words, or the fetch's error when nothing answers.
import { ServerError, ask, errorFrom } from "../base/http.js";

// Yields the payload of each `data:` event. Events end with an empty line; a chunk of the body may
// hold several events or end inside one, even inside a UTF-8 sequence or a CR LF.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest = (rest + value).replaceAll("\r\n", "\n");
    const whole = rest.split("\n\n");
    rest = whole.pop();
    for (const event of whole) {
      const data = event.split("\n").filter((line) => line.startsWith("data:"));
      if (data.length > 0) yield data.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}

// on_event receives {reasoning, content, calls, finish, usage}, each present when the event has it.
export async function streamChat(request, signal, on_event) {
  const json = { ...request, stream: true, stream_options: { include_usage: true } };
  const response = await ask("v1/chat/completions", { json, signal });
  if (!response.ok) throw errorFrom(await response.text(), response.status);
  let finished = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error.message, null, event.error.param);
    const choice = event.choices?.[0];
    const delta = choice?.delta ?? {};
    finished ||= Boolean(choice?.finish_reason);
    on_event({
      reasoning: delta.reasoning_content,
      content: delta.content,
      calls: delta.tool_calls,
      finish: choice?.finish_reason,
      usage: event.usage,
    });
  }
  if (!finished) throw new ServerError("The connection closed before the answer was complete.");
}
