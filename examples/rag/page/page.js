"use strict";

// Everything that comes from documents or from the model is set as text, never as HTML.

const element = (id) => document.getElementById(id);
let running = null; // aborts the question that is being answered

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function showAnswer(text) {
  const parts = text.split(/\[(\d+)\]/); // odd ones are numbers of sources
  element("answer").replaceChildren(
    ...parts.map((part, index) => {
      if (index % 2 === 0) return document.createTextNode(part);
      const link = make("a", "", part);
      link.href = `#source-${part}`;
      link.setAttribute("aria-label", `source ${part}`);
      return link;
    }),
  );
}

function showSources(sources) {
  element("found").hidden = sources.length === 0;
  element("sources").replaceChildren(
    ...sources.map((source) => {
      const item = make("li");
      item.id = `source-${source.number}`;
      const place = make("div", "place");
      place.append(
        make("b", "", `[${source.number}]`),
        make("span", "", source.name),
        make("span", "lines", `lines ${source.first_line}–${source.last_line}`),
      );
      const details = make("details");
      const passage = make("pre");
      const words = source.match.trim();
      const start = source.text.indexOf(words);
      if (start < 0 || words === source.text) passage.textContent = source.text;
      else passage.append(
        source.text.slice(0, start), make("mark", "", words), source.text.slice(start + words.length),
      );
      details.append(make("summary", "", words.length > 160 ? `${words.slice(0, 160)}…` : words), passage);
      item.append(place);
      if (source.heading) item.append(make("div", "heading", source.heading));
      item.append(details);
      return item;
    }),
  );
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part.replace(/^data: /, ""));
  }
}

function fail(message) {
  element("progress").textContent = "";
  element("answer").className = "error";
  element("answer").textContent = message;
}

async function ask(question) {
  running?.abort();
  const mine = (running = new AbortController());
  for (const id of ["note", "found"]) element(id).hidden = true;
  element("result").hidden = false;
  element("asked").textContent = question;
  element("progress").textContent = "Searching…";
  element("times").textContent = "";
  element("answer").className = "";
  element("answer").textContent = "";
  let answer = "";
  let hasEnded = false;
  let sources = [];
  try {
    const response = await fetch("ask", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ question }),
      signal: mine.signal,
    });
    if (!response.ok) {
      const body = await response.json().catch(() => ({}));
      fail(body.error || `The server answered with the status ${response.status}.`);
      return;
    }
    for await (const event of events(response)) {
      if (event.type === "sources") {
        sources = event.sources;
        showSources(sources);
        element("progress").textContent = sources.length ? "Reading the sources…" : "";
      } else if (event.type === "text") {
        element("progress").textContent = "Answering…";
        showAnswer((answer += event.text));
      } else if (event.type === "end") {
        hasEnded = true;
        element("progress").textContent = "";
        element("note").hidden = sources.length === 0;
        element("times").textContent = Object.entries(event.seconds)
          .map(([name, seconds]) => `${name.replace("_", " ")} ${seconds.toFixed(2)} s`)
          .join(" · ");
      } else if (event.type === "error") {
        hasEnded = true;
        fail(`The answer failed: ${event.error}`);
      }
    }
    if (!hasEnded) fail("The connection ended before the answer did. Ask again.");
  } catch (error) {
    if (!mine.signal.aborted) fail(`The server cannot be reached: ${error.message}`);
  }
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = element("question").value.trim();
  if (question) ask(question);
});

fetch("status")
  .then((response) => response.json())
  .then(({ documents, chunks, model }) => {
    element("status").textContent = `${documents} documents, ${chunks} chunks · ${model}`;
  })
  .catch(() => { element("status").textContent = "The server cannot be reached."; });
