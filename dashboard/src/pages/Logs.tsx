import { Switch, TextInput } from "@mantine/core";
import { useEffect, useMemo, useRef, useState } from "react";
import { Link, useSearchParams } from "wouter";

import { Empty, Page, Panel, Pending, Search } from "../components/basics";
import * as format from "../format";
import { pathOf, problemOf, useTopic } from "../live";
import type { LogFile, LogText } from "../types";

const TAIL = 1000;
const MOST_LINES = 5000;
const FEW_FILES = 8; // which need no filter

export default function Logs() {
  const topic = useTopic<{ files: LogFile[] }>("/state/logs");
  const [query] = useSearchParams();
  const chosen = query.get("file");
  const [search, setSearch] = useState("");
  const [wanted, setWanted] = useState("");
  const files = useSteadyOrder(topic.data?.files);
  const [first, setFirst] = useState<string | undefined>();
  const name = chosen ?? first;
  const shown = files?.filter((file) =>
    `${file.name} ${file.title ?? ""} ${file.pid ?? ""}`.toLowerCase().includes(wanted.toLowerCase()),
  );
  useEffect(() => {
    // The log that is shown stays, whichever is written to.
    if (files && !files.some((file) => file.name === first)) setFirst(files[0]?.name);
  }, [files, first]);
  const none = files?.length === 0 && chosen === null;
  return (
    <Page name="Logs" tools={!none && <Search label="Search in this log" value={search} onChange={setSearch} />}>
      {none ? (
        <Panel name="Files">
          <Empty code={'@skate.remote\ndef hello():\n    print("hello")\n\nskate.get(hello.remote())'}>
            No process has written a log yet. What tasks and actors print is kept here:
          </Empty>
        </Panel>
      ) : (
        <div className="logs">
          <Panel name="Files" about={files && format.count(files.length)} bare>
            <Pending topic={topic} what="The list of logs" />
            {files && files.length > FEW_FILES && (
              <div style={{ padding: "0 10px 6px" }}>
                <TextInput
                  type="search"
                  size="xs"
                  aria-label="Filter the files"
                  placeholder="Name, actor or PID"
                  value={wanted}
                  onChange={(event) => setWanted(event.currentTarget.value)}
                />
              </div>
            )}
            <nav className="log-files" aria-label="Log files" data-filter={files && files.length > FEW_FILES ? "" : undefined}>
              {shown?.length === 0 && <Empty>No file matches.</Empty>}
              {shown?.map((file) => (
                <Link
                  key={file.name}
                  href={pathOf("/logs", { file: file.name })}
                  aria-current={file.name === name ? "true" : undefined}
                >
                  <span title={file.name}>{file.name}</span>
                  <span className="muted">
                    {format.bytes(file.size)}
                    {file.title ? ` · ${file.title}` : ""}
                    {file.pid ? ` · PID ${file.pid}` : ""}
                  </span>
                </Link>
              ))}
            </nav>
          </Panel>
          {name !== undefined && <Log key={name} name={name} search={search} />}
        </div>
      )}
    </Page>
  );
}

/** Return the files in an order that does not change when they are written to: the latest first, and new ones on top. */
function useSteadyOrder(files: LogFile[] | undefined): LogFile[] | undefined {
  const places = useRef(new Map<string, number>());
  return useMemo(() => {
    if (files === undefined) return undefined;
    const known = places.current;
    for (const file of files.toSorted((one, other) => one.modified - other.modified)) {
      if (!known.has(file.name)) known.set(file.name, known.size);
    }
    return files.toSorted((one, other) => (known.get(other.name) ?? 0) - (known.get(one.name) ?? 0));
  }, [files]);
}

function encoded(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

function Log({ name, search }: { name: string; search: string }) {
  const [follow, setFollow] = useState(true);
  const [found, setFound] = useState<{ lines: string[]; search: string } | undefined>();
  const [truncated, setTruncated] = useState(false);
  const [problem, setProblem] = useState<string | undefined>();
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);

  useEffect(() => {
    const ended = new AbortController();
    const fail = (error: unknown) => {
      if (!ended.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
    };
    const setLines = (lines: string[]) => setFound({ lines, search });
    const read = async (): Promise<string[]> => {
      const answer = await fetch(pathOf(`/state/logs/${encoded(name)}`, { tail: TAIL, search }), {
        signal: ended.signal,
      });
      if (!answer.ok) throw new Error(await problemOf(answer));
      const text = (await answer.json()) as LogText;
      setTruncated(text.truncated);
      setProblem(undefined);
      return text.lines;
    };
    if (!follow) {
      read().then(setLines, fail);
      return () => ended.abort();
    }
    // The log is followed first and read then, so that no line is missed; lines that are in both are shown once. After
    // a reconnection it is read again.
    let added: string[] | undefined;
    const source = new EventSource(`/state/logs/${encoded(name)}/follow`);
    const start = async () => {
      added = [];
      const before = await read();
      setLines(joined(before, added));
      added = undefined;
    };
    source.onopen = () => void start().catch(fail);
    source.addEventListener("lines", (event) => {
      const { lines: all } = JSON.parse((event as MessageEvent<string>).data) as { lines: string[] };
      const wanted = search ? all.filter((line) => line.toLowerCase().includes(search.toLowerCase())) : all;
      if (added) added.push(...wanted);
      else if (wanted.length > 0) {
        setFound((before) => ({ lines: [...(before?.lines ?? []), ...wanted].slice(-MOST_LINES), search }));
      }
    });
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) void read().then(setLines, fail); // says what is wrong
    };
    return () => {
      ended.abort();
      source.close();
    };
  }, [name, search, follow]);

  useEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [found]);

  const lines = found?.lines;
  return (
    <Panel
      name={name}
      about={found && describe(found.lines.length, found.search, truncated)}
      tools={
        <Switch
          size="xs"
          label="Follow"
          checked={follow}
          onChange={(event) => setFollow(event.currentTarget.checked)}
        />
      }
      bare
    >
      <div
        ref={box}
        className="log-lines"
        role="log"
        aria-label={`Lines of ${name}`}
        tabIndex={0}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          atEnd.current = scrollTop + clientHeight > scrollHeight - 24;
        }}
      >
        {problem !== undefined && <div className="error-text">{problem}</div>}
        {lines?.map((line, index) => (
          <div key={index}>{found?.search ? <Marked line={line} search={found.search} /> : line || " "}</div>
        ))}
        {lines?.length === 0 && (
          <div className="muted">{found?.search ? `No line has “${found.search}”.` : "The log is empty."}</div>
        )}
      </div>
    </Panel>
  );
}

function describe(count: number, search: string, truncated: boolean): string {
  const lines = `${format.count(count)} ${search ? "matching " : ""}${count === 1 ? "line" : "lines"}`;
  return truncated && !search ? `${lines}, the newest` : lines;
}

function Marked({ line, search }: { line: string; search: string }) {
  const at = line.toLowerCase().indexOf(search.toLowerCase());
  if (at < 0) return line;
  const end = at + search.length;
  return (
    <>
      {line.slice(0, at)}
      <mark>{line.slice(at, end)}</mark>
      <Marked line={line.slice(end)} search={search} />
    </>
  );
}

/** Join lines that were read and lines that were added meanwhile, of which the first may have been read already. */
function joined(read: string[], added: string[]): string[] {
  for (let shared = Math.min(read.length, added.length); shared > 0; shared -= 1) {
    const end = read.slice(-shared);
    if (end.every((line, index) => line === added[index])) return [...read, ...added.slice(shared)];
  }
  return [...read, ...added];
}
