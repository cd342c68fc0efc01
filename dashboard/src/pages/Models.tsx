import { Button, NativeSelect, Textarea } from "@mantine/core";
import { useEffect, useRef, useState } from "react";

import { Empty, Page, Panel, Pending, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import * as format from "../format";
import { problemOf, useTopic } from "../live";
import type { Model } from "../types";

const CODE =
  'from skate.serve.llm import LLMConfig, build_openai_app\n\nserve.run(build_openai_app({"llm_configs": [LLMConfig(model_loading_config={"model_id": "my-model"})]}))';

export default function Models() {
  const topic = useTopic<{ models: Model[] }>("/state/llm");
  const models = topic.data?.models;
  return (
    <Page name="Language models">
      {!models && (
        <Panel name="Models">
          <Pending topic={topic} what="Language models" />
        </Panel>
      )}
      {models?.length === 0 && (
        <Panel name="Models">
          <Empty code={CODE}>No language model is served. Deploy one:</Empty>
        </Panel>
      )}
      {models && models.length > 0 && (
        <>
          <Stats
            values={[
              ["Tokens generated", format.rate(sum(models, "tokens_per_s"))],
              ["Prompt tokens", format.rate(sum(models, "prompt_tokens_per_s"))],
              ["Requests running", format.count(sum(models, "running"))],
              ["Requests waiting", format.count(sum(models, "waiting"))],
            ]}
          />
          <Panel name="Models" bare>
            <DataTable label="Language models" columns={COLUMNS} rows={models} rowKey={(model) => model.id} />
          </Panel>
          <Chat models={models.map((model) => model.id)} />
        </>
      )}
    </Page>
  );
}

function sum(
  models: Model[],
  field: "tokens_per_s" | "prompt_tokens_per_s" | "running" | "waiting",
): number | null {
  const known = models.map((each) => each[field]).filter((value) => value !== null);
  return known.length > 0 ? known.reduce((total, value) => total + value, 0) : null;
}

/** The share of prompt tokens that were in the prefix cache, in percent. */
function cached(model: Model): number | null {
  return model.prompt_tokens > 0 ? (100 * model.cached_prompt_tokens) / model.prompt_tokens : null;
}

const COLUMNS: Column<Model>[] = [
  {
    key: "id",
    label: "Model",
    render: (row) => <span title={`${row.application} ${row.base_url ?? ""}`}>{row.id}</span>,
    sort: (row) => row.id,
  },
  {
    key: "tokens",
    label: "Tokens",
    about: "Generated tokens per second",
    width: 80,
    number: true,
    render: (row) => format.rate(row.tokens_per_s),
    sort: (row) => row.tokens_per_s,
  },
  {
    key: "prompt",
    label: "Prompt",
    about: "Prompt tokens per second",
    width: 92,
    number: true,
    hide: "wide",
    render: (row) => format.rate(row.prompt_tokens_per_s),
    sort: (row) => row.prompt_tokens_per_s,
  },
  {
    key: "running",
    label: "Running",
    width: 74,
    number: true,
    render: (row) => format.count(row.running),
    sort: (row) => row.running,
  },
  {
    key: "waiting",
    label: "Waiting",
    width: 74,
    number: true,
    render: (row) => format.count(row.waiting),
    sort: (row) => row.waiting,
  },
  {
    key: "cached",
    label: "Cached",
    about: "Prompt tokens that were found in the prefix cache",
    width: 84,
    number: true,
    hide: "wide",
    render: (row) => format.percent(cached(row)),
    sort: cached,
  },
  {
    key: "ttft",
    label: "TTFT p50",
    about: "Time to the first token: half of the requests took less",
    width: 92,
    number: true,
    hide: "wide",
    render: (row) => format.duration(row.ttft?.p50),
    sort: (row) => row.ttft?.p50,
  },
  {
    key: "ttft99",
    label: "TTFT p99",
    about: "Time to the first token: 99 of 100 requests took less",
    width: 92,
    number: true,
    hide: "wider",
    render: (row) => format.duration(row.ttft?.p99),
    sort: (row) => row.ttft?.p99,
  },
  {
    key: "itl",
    label: "Token p50",
    about: "Time between two tokens: half of the requests took less",
    width: 92,
    number: true,
    hide: "wider",
    render: (row) => format.duration(row.itl?.p50),
    sort: (row) => row.itl?.p50,
  },
  {
    key: "itl99",
    label: "Token p99",
    about: "Time between two tokens: 99 of 100 requests took less",
    width: 92,
    number: true,
    hide: "wider",
    render: (row) => format.duration(row.itl?.p99),
    sort: (row) => row.itl?.p99,
  },
];

interface Message {
  role: "user" | "assistant";
  content: string;
  note?: string;
  error?: string;
}

function Chat({ models }: { models: string[] }) {
  const [chosen, setChosen] = useState("");
  const [messages, setMessages] = useState<Message[]>([]);
  const [text, setText] = useState("");
  const [running, setRunning] = useState<AbortController | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const model = models.includes(chosen) ? chosen : (models[0] ?? "");

  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [messages]);
  useEffect(() => () => running?.abort(), [running]);

  const send = async () => {
    const content = text.trim();
    if (!content || running) return;
    const asked: Message[] = [...messages.filter((message) => !message.error), { role: "user", content }];
    const control = new AbortController();
    setText("");
    setRunning(control);
    setMessages([...asked, { role: "assistant", content: "" }]);
    const answer = (change: (last: Message) => Message) =>
      setMessages((now) => now.map((message, index) => (index === now.length - 1 ? change(message) : message)));
    try {
      const note = await stream(model, asked, control.signal, (piece) =>
        answer((last) => ({ ...last, content: last.content + piece })),
      );
      answer((last) => ({ ...last, note }));
    } catch (error) {
      const problem = control.signal.aborted ? undefined : error instanceof Error ? error.message : String(error);
      answer((last) => ({ ...last, note: problem ? undefined : "stopped", error: problem }));
    }
    setRunning(null);
  };

  return (
    <Panel
      name="Try a model"
      tools={
        <>
          <NativeSelect
            size="xs"
            aria-label="Model"
            data={models}
            value={model}
            onChange={(event) => setChosen(event.currentTarget.value)}
          />
          <Button
            size="xs"
            variant="default"
            disabled={messages.length === 0 || running !== null}
            onClick={() => setMessages([])}
          >
            Clear
          </Button>
        </>
      }
    >
      <div className="chat">
        <div
          className="chat-messages"
          ref={box}
          role="log"
          aria-label="Conversation"
          aria-busy={running !== null}
          tabIndex={0}
        >
          {messages.length === 0 && <p className="muted">What you write goes to {model}; the answer streams in.</p>}
          {messages.map((message, index) => (
            <div className="chat-message" key={index}>
              <div className="who">{message.role === "user" ? "You" : model}</div>
              <div className="said">
                {message.content || (message.error ? "" : "…")}
                {message.error && (
                  <span className="error-text" role="alert">
                    {message.error}
                  </span>
                )}
              </div>
              {message.note && <div className="who">{message.note}</div>}
            </div>
          ))}
        </div>
        <form
          style={{ display: "flex", gap: 8, alignItems: "flex-end" }}
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
        >
          <Textarea
            style={{ flex: 1 }}
            size="sm"
            aria-label="Message"
            placeholder="Message"
            autosize
            minRows={1}
            maxRows={8}
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
              event.preventDefault();
              void send();
            }}
          />
          {running ? (
            <Button size="sm" variant="default" onClick={() => running.abort()}>
              Stop
            </Button>
          ) : (
            <Button size="sm" type="submit" disabled={!text.trim()}>
              Send
            </Button>
          )}
        </form>
      </div>
    </Panel>
  );
}

const SHORTEST_S = 0.1; // of an answer whose rate is shown

interface Chunk {
  choices?: { delta?: { content?: string | null } }[];
  usage?: { completion_tokens?: number } | null;
  error?: { message?: string };
}

/** Ask a model, pass on the pieces of its answer, and return what was measured. */
async function stream(
  model: string,
  messages: Message[],
  signal: AbortSignal,
  onPiece: (piece: string) => void,
): Promise<string> {
  const started = performance.now();
  let first: number | undefined;
  let last = started;
  let tokens: number | undefined;
  const answer = await fetch("/actions/llm/chat", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      model,
      messages: messages.map(({ role, content }) => ({ role, content })),
      stream: true,
      stream_options: { include_usage: true },
    }),
    signal,
  });
  if (!answer.ok) throw new Error(await problemOf(answer));
  if (!answer.body) throw new Error("The server sent no answer.");
  for await (const data of events(answer.body)) {
    const chunk = JSON.parse(data) as Chunk;
    if (chunk.error) throw new Error(chunk.error.message ?? "The model failed.");
    tokens = chunk.usage?.completion_tokens ?? tokens;
    const piece = chunk.choices?.[0]?.delta?.content;
    if (!piece) continue;
    last = performance.now();
    first ??= last;
    onPiece(piece);
  }
  if (first === undefined) return "The model answered with nothing.";
  const parts = [`first token after ${format.duration((first - started) / 1000)}`];
  if (tokens !== undefined) parts.push(`${format.count(tokens)} ${tokens === 1 ? "token" : "tokens"}`);
  // Text that arrives at once says nothing about the speed of the model.
  const seconds = (last - first) / 1000;
  if (tokens !== undefined && tokens > 1 && seconds >= SHORTEST_S) parts.push(format.rate((tokens - 1) / seconds));
  return parts.join(" · ");
}

/** Yield the data of server-sent events up to [DONE]. */
async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const lines = rest.split(/\r?\n/);
    rest = done ? "" : (lines.pop() ?? "");
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      if (data) yield data;
    }
    if (done) return;
  }
}
