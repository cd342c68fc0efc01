// Small parts that every page is made of.

import { TextInput } from "@mantine/core";
import { useEffect, useState, useSyncExternalStore, type ReactNode } from "react";
import { Link } from "wouter";

import * as format from "../format";
import { useTitle, useTopic, type Topic } from "../live";
import type { Session } from "../types";

export function Page({ name, tools, children }: { name: string; tools?: ReactNode; children: ReactNode }) {
  useTitle(name);
  return (
    <div className="page">
      <div className="page-head">
        <h1>{name}</h1>
        {tools && <div className="tools">{tools}</div>}
      </div>
      {children}
    </div>
  );
}

interface PanelProps {
  name: string;
  about?: ReactNode;
  tools?: ReactNode;
  bare?: boolean;
  children: ReactNode;
}

/** A framed part of a page. `bare` leaves out the padding, for tables. */
export function Panel({ name, about, tools, bare, children }: PanelProps) {
  return (
    <section className="panel" aria-label={name}>
      <div className="panel-head">
        <h2>{name}</h2>
        {about && <span className="chart-figures">{about}</span>}
        {tools && <div className="tools">{tools}</div>}
      </div>
      {bare ? children : <div className="panel-body">{children}</div>}
    </section>
  );
}

export type Stat = [label: string, value: ReactNode, note?: ReactNode, page?: string];

/** A row of figures, of which some lead to a page. */
export function Stats({ values }: { values: Stat[] }) {
  return (
    <dl className="stats" style={{ margin: 0 }}>
      {values.map(([label, value, note, page]) => (
        <div className="stat" key={label}>
          <dt title={label}>{label}</dt>
          <dd>
            {page === undefined ? (
              <span className="nowrap">{value}</span>
            ) : (
              <Link className="nowrap" href={page} aria-label={`${label}: ${String(value)}`}>
                {value}
              </Link>
            )}
            {note != null && <small>{note}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

export function State({ value }: { value: string | null | undefined }) {
  if (!value) return <span className="muted">–</span>;
  return (
    <span className="state" data-tone={format.tone(value)} title={format.words(value)}>
      <span className="dot" aria-hidden="true" />
      <span className="ellipsis">{format.state(value)}</span>
    </span>
  );
}

export function Empty({ children, code }: { children: ReactNode; code?: string }) {
  return (
    <div className="empty">
      <p>{children}</p>
      {code && <pre className="block">{code}</pre>}
    </div>
  );
}

/** What stands in the place of data that is not there yet or could not be read; nothing once there is data. */
export function Pending({ topic, what }: { topic: Topic<unknown>; what: string }) {
  const session = useTopic<Session>("/state/session").data;
  if (topic.error !== undefined) {
    // The page says once that the node has ended, and keeps the last state in view.
    if (session?.connected === false) return topic.data === undefined ? <Empty>No node is running.</Empty> : null;
    return (
      <div className="empty" role="status">
        <p className="error-text">
          {what} cannot be shown: {topic.error}
        </p>
      </div>
    );
  }
  if (topic.data === undefined) {
    return (
      <div className="loading" role="status">
        Loading…
      </div>
    );
  }
  return null;
}

interface SearchProps {
  label: string;
  value: string;
  onChange: (text: string) => void;
}

/** A search field, which the key / focuses. It reports its text when typing pauses. */
export function Search({ label, value, onChange }: SearchProps) {
  const [text, setText] = useState(value);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text), 200);
    return () => clearTimeout(timer);
  }, [text, value, onChange]);
  return (
    <TextInput
      className="search"
      type="search"
      size="xs"
      w={220}
      maw="100%"
      aria-label={label}
      placeholder={label}
      data-search
      value={text}
      rightSection={text ? undefined : <kbd aria-hidden="true">/</kbd>}
      onChange={(event) => setText(event.currentTarget.value)}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        if (text) setText("");
        else event.currentTarget.blur();
      }}
    />
  );
}

// One clock for all durations that grow, which runs while there are any.
const ticking = new Set<() => void>();
let ticks: number | undefined;
let now = Date.now() / 1000;

function onTick(listener: () => void): () => void {
  ticking.add(listener);
  if (ticks === undefined) now = Date.now() / 1000;
  ticks ??= window.setInterval(() => {
    now = Date.now() / 1000;
    for (const each of ticking) each();
  }, 1000);
  return () => {
    ticking.delete(listener);
    if (ticking.size > 0) return;
    window.clearInterval(ticks);
    ticks = undefined;
  };
}

/** The time since a moment: until another one, or until now. */
export function Since({ time, until }: { time: number | null; until?: number | null }) {
  if (!time) return <>–</>;
  return until ? <Seconds value={until - time} /> : <Growing since={time} />;
}

function Growing({ since }: { since: number }) {
  return <Seconds value={useSyncExternalStore(onTick, () => now) - since} />;
}

function Seconds({ value }: { value: number }) {
  return <>{value < 0.001 ? "< 1 ms" : format.duration(value)}</>; // times are in milliseconds
}

export function Bar({ share, label }: { share: number; label: string }) {
  const value = Math.max(0, Math.min(100, Number.isFinite(share) ? share * 100 : 0));
  return (
    <div
      className="bar"
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(value)}
    >
      <span style={{ width: `${value}%` }} />
    </div>
  );
}
