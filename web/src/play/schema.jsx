// Structured output: a schema goes out as response_format, and the answer is checked against it.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { load, save } from "../base/storage.js";
import { runAnswer } from "../chat/answer.js";
import { emptyAnswer } from "../chat/conversation.js";
import { Failure, Stats, Thinking, Waiting } from "../chat/message.jsx";
import { requestFields } from "../chat/options.js";
import { kSchemas, pretty } from "./examples.js";
import { Json, JsonField, Question, RunButton, Sent, Verdict, runKeys, useRunner } from "./parts.jsx";
import { parsed, violations } from "./validate.js";

const kFirst = Object.keys(kSchemas)[0];
const formOf = ({ question, schema }) => ({ question, schema: pretty(schema) });

function storedForm() {
  const form = load("schema_form");
  const whole = typeof form?.question === "string" && typeof form?.schema === "string";
  return whole ? form : formOf(kSchemas[kFirst]);
}

// A schema is an object; true and false are schemas too, but say nothing.
function checked(text) {
  const { value, problem } = parsed(text);
  if (problem) return { problem };
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    return { problem: "A schema is a JSON object, such as {\"type\": \"object\"}." };
  }
  return { value };
}

function Result({ answer, schema }) {
  const streaming = answer.status === "streaming";
  const { value, problem } = parsed(answer.content);
  const done = answer.status === "done";
  return (
    <div class="result" data-testid="schema-result" data-status={answer.status}>
      {answer.reasoning.trim() && (
        <Thinking text={answer.reasoning} active={streaming && !answer.content} />
      )}
      {streaming && !answer.content && !answer.reasoning && <Waiting />}
      {answer.content && <Json value={problem ? answer.content : value} />}
      {done && (
        <Verdict problems={problem ? [`Not JSON: ${problem}`] : violations(value, schema)} />
      )}
      {answer.error && <Failure error={answer.error} />}
      <footer><Stats answer={answer} /></footer>
    </div>
  );
}

export function SchemaPlay({ ready, model, options }) {
  const [form, setForm] = useState(storedForm);
  const [run, setRun] = useState(null);  // {request, schema, answer}
  const runner = useRunner();
  const { value: schema, problem } = checked(form.schema);
  const busy = run?.answer.status === "streaming";
  const can = ready && !busy && !problem && form.question.trim() !== "";

  useLayoutEffect(() => save("schema_form", form), [form]);
  useEffect(() => runner.stop, []);

  const start = () => {
    const turns = [{ role: "user", content: form.question.trim() }];
    const request = {
      model,
      ...requestFields(options, turns),
      response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
    };
    const signal = runner.begin();
    const show = (answer) => setRun({ request, schema, answer });
    show(emptyAnswer());
    runAnswer(request, signal, show);
  };
  return (
    <div class="cards play" data-testid="schema-play">
      <section class="card" aria-label="Request" onKeyDown={runKeys(can, start)}>
        <h2>Request</h2>
        <p class="note">
          The answer can only be JSON that matches the schema: the server leaves the model no other
          token to choose.
        </p>
        <div class="examples">
          {Object.keys(kSchemas).map((name) => (
            <button key={name} type="button" class="chip" data-testid={`example-${name}`}
              onClick={() => setForm(formOf(kSchemas[name]))}>
              {name}
            </button>
          ))}
        </div>
        <Question value={form.question} onInput={(question) => setForm({ ...form, question })}
          testid="schema-question" />
        <JsonField label="JSON schema" rows={16} value={form.schema} problem={problem}
          onInput={(text) => setForm({ ...form, schema: text })} testid="schema-field" />
        <div class="actions">
          <RunButton busy={busy} can={can} onRun={start} onStop={runner.stop} />
        </div>
      </section>
      <section class="card" aria-label="Answer" aria-busy={busy}>
        <h2>Answer</h2>
        {run ? <Result answer={run.answer} schema={run.schema} /> : (
          <p class="note">Run the request to see its answer here.</p>
        )}
        <Sent request={run?.request} />
      </section>
    </div>
  );
}
