// Tools: the reader defines functions, sees what the model calls, and answers in their place.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { load, save } from "../base/storage.js";
import { runAnswer } from "../chat/answer.js";
import { emptyAnswer } from "../chat/conversation.js";
import { Markup } from "../chat/markup.jsx";
import { Failure, Stats, Thinking, Waiting } from "../chat/message.jsx";
import { requestFields } from "../chat/options.js";
import { kToolQuestion, kTools, pretty } from "./examples.js";
import { Json, JsonField, Question, RunButton, Sent, Verdict, runKeys, useRunner } from "./parts.jsx";
import { parsed, violations } from "./validate.js";

const kChoices = {
  auto: "auto: the model decides",
  required: "required: some tool is called",
  none: "none: no tool is called",
};

const kFirst = { question: kToolQuestion, tools: pretty(kTools), choice: "auto" };

function storedForm() {
  const form = load("tools_form");
  return Object.keys(kFirst).every((key) => typeof form?.[key] === "string") ? form : kFirst;
}

// The tools of a request from what was typed: a list of functions, or of OpenAI's tools.
function checked(text) {
  const { value, problem } = parsed(text);
  if (problem) return { problem };
  const list = Array.isArray(value) ? value : [value];
  const functions = list.map((item) => item?.function ?? item);
  const wrong = functions.findIndex((item) => typeof item?.name !== "string" || item.name === "");
  if (wrong >= 0) return { problem: `Tool ${wrong + 1} has no "name".` };
  return { value: functions.map((item) => ({ type: "function", function: item })) };
}

const choiceOf = (choice) => (choice in kChoices ? choice
  : { type: "function", function: { name: choice } });

function Call({ call, schema, result, onResult }) {
  const { value, problem } = parsed(call.arguments);
  const problems = problem ? [`The arguments are not JSON: ${problem}`] : violations(value, schema);
  return (
    <div class="call" data-testid="tool-call">
      <Json value={problem ? call.arguments : value} language={call.name} />
      <Verdict problems={problems} good="Matches the parameters" />
      {onResult ? (
        <label class="field">
          <span>Result of {call.name}</span>
          <textarea class="mono" rows={2} value={result} spellcheck={false}
            placeholder={'{"result": …}'} onInput={(event) => onResult(event.target.value)}
            data-testid="tool-result" />
        </label>
      ) : (
        result !== undefined && <p class="returned"><span>Result</span> <code>{result}</code></p>
      )}
    </div>
  );
}

function Answer({ turn, tools, onResult }) {
  const { answer } = turn;
  const streaming = answer.status === "streaming";
  const schemaOf = (name) =>
    tools.find((tool) => tool.function.name === name)?.function.parameters ?? {};
  const nothing = !answer.content && !answer.reasoning && !answer.calls;
  return (
    <article class="answer" data-testid="tool-answer" data-status={answer.status}>
      {answer.reasoning.trim() && (
        <Thinking text={answer.reasoning} active={streaming && !answer.content} />
      )}
      {streaming && nothing && <Waiting />}
      {answer.content && <div class="text"><Markup text={answer.content} /></div>}
      {(answer.calls ?? []).map((call, index) => (streaming ? (
        <Json key={index} value={call.arguments} language={call.name} />
      ) : (
        <Call key={index} call={call} schema={schemaOf(call.name)} result={turn.results[index]}
          onResult={onResult && ((text) => onResult(index, text))} />
      )))}
      {answer.error && <Failure error={answer.error} />}
      <footer><Stats answer={answer} /></footer>
    </article>
  );
}

// The messages that one turn adds to the next request: the answer, with its thinking and its calls,
// and the results.
function turnMessages({ answer, results }) {
  const calls = (answer.calls ?? []).map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  }));
  const thought = answer.reasoning && { reasoning_content: answer.reasoning };
  const said = { role: "assistant", ...thought, content: answer.content, tool_calls: calls };
  return [said, ...calls.map(({ id }, index) =>
    ({ role: "tool", tool_call_id: id, content: results[index] ?? "" }))];
}

function Form({ form, setForm, problem, names, children }) {
  return (
    <>
      <Question value={form.question} onInput={(question) => setForm({ ...form, question })}
        testid="tools-question" />
      <JsonField label="Tools: a list of functions" rows={16} value={form.tools} problem={problem}
        onInput={(tools) => setForm({ ...form, tools })} testid="tools-field" />
      <label class="field">
        <span>Tool choice</span>
        <select value={form.choice} data-testid="tool-choice"
          onChange={(event) => setForm({ ...form, choice: event.target.value })}>
          {Object.entries(kChoices).map(([name, label]) => (
            <option key={name} value={name}>{label}</option>
          ))}
          {names.map((name) => <option key={name} value={name}>{name}: this tool</option>)}
        </select>
      </label>
      <div class="actions">{children}</div>
    </>
  );
}

export function ToolsPlay({ ready, model, options }) {
  const [form, setForm] = useState(storedForm);
  const [run, setRun] = useState(null);  // {tools, first, turns: [{answer, results}], request}
  const runner = useRunner();
  const { value: tools, problem } = checked(form.tools);
  const names = (tools ?? []).map((tool) => tool.function.name);
  const last = run?.turns.at(-1);
  const busy = last?.answer.status === "streaming";
  const can = ready && !busy && !problem && form.question.trim() !== "";
  const waits = last?.answer.status === "done" && last.answer.calls?.length > 0;

  useLayoutEffect(() => save("tools_form", form), [form]);
  useEffect(() => runner.stop, []);

  const answer = (begun) => {
    const turns = [begun.first, ...begun.turns.flatMap(turnMessages)];
    const again = begun.turns.length > 0;
    const request = {
      model,
      ...requestFields(options, turns),
      tools: begun.tools,
      // A call that was forced once need not be forced again: then the answer would never come.
      tool_choice: again && begun.choice !== "none" ? "auto" : choiceOf(begun.choice),
    };
    const show = (growing) =>
      setRun({ ...begun, request, turns: [...begun.turns, { answer: growing, results: [] }] });
    show(emptyAnswer());
    runAnswer(request, runner.begin(), show);
  };
  const start = () => {
    const first = { role: "user", content: form.question.trim() };
    const choice = form.choice in kChoices || names.includes(form.choice) ? form.choice : "auto";
    answer({ tools, choice, first, turns: [] });
  };
  const onResult = (index, text) => {
    const results = [...last.results];
    results[index] = text;
    setRun({ ...run, turns: [...run.turns.slice(0, -1), { ...last, results }] });
  };
  const send = () => answer(run);
  return (
    <div class="cards play" data-testid="tools-play">
      <section class="card" aria-label="Request" onKeyDown={runKeys(can, start)}>
        <h2>Request</h2>
        <p class="note">
          The model sees these functions and may call them. No code runs: you give the results.
        </p>
        <Form form={form} setForm={setForm} problem={problem} names={names}>
          <RunButton busy={busy} can={can} onRun={start} onStop={runner.stop} />
          <button type="button" class="plain" onClick={() => setForm(kFirst)}>
            Restore the example
          </button>
        </Form>
      </section>
      <section class="card" aria-label="Answer" aria-busy={busy}
        onKeyDown={runKeys(waits, send)}>
        <h2>Answer</h2>
        {!run && <p class="note">Run the request to see its calls here.</p>}
        {run?.turns.map((turn, index) => (
          <Answer key={index} turn={turn} tools={run.tools}
            onResult={waits && index === run.turns.length - 1 ? onResult : null} />
        ))}
        {waits && (
          <div class="actions">
            <button type="button" class="strong" onClick={send} data-testid="send-results">
              {last.answer.calls.length === 1 ? "Send the result" : "Send the results"}
            </button>
          </div>
        )}
        <Sent request={run?.request} />
      </section>
    </div>
  );
}
