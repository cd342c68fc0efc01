// One EventSource for all that the page shows: a topic is a GET path, and the server pushes its JSON when it changes.

import { useCallback, useEffect, useSyncExternalStore } from "react";

import type { Session } from "./types";

export type Connection = "connecting" | "open" | "lost" | "unauthorized";

export interface Topic<T> {
  data: T | undefined;
  error: string | undefined;
}

interface Entry {
  topic: Topic<unknown>;
  readers: number;
  listeners: Set<() => void>;
}

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 8000;
const SESSION = "/state/session";
const KEPT_TOPICS = 60; // topics without a reader whose last value is kept, for going back to a page

const NOTHING: Topic<unknown> = { data: undefined, error: undefined };

class Live {
  private entries = new Map<string, Entry>();
  private source: EventSource | undefined;
  private subscribed = "";
  private planned = false;
  private retry: number | undefined;
  private retryDelay = FIRST_RETRY_MS;
  private state: Connection = "connecting";
  private stateListeners = new Set<() => void>();

  constructor() {
    // A hidden page needs no updates, and browsers allow only six connections to one server.
    document.addEventListener("visibilitychange", () => this.plan());
  }

  get connection(): Connection {
    return this.state;
  }

  onConnection = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    return () => this.stateListeners.delete(listener);
  };

  read(path: string): Topic<unknown> {
    return this.entry(path).topic;
  }

  subscribe(path: string, listener: () => void): () => void {
    const entry = this.entry(path);
    entry.listeners.add(listener);
    entry.readers += 1;
    this.plan();
    return () => {
      entry.listeners.delete(listener);
      entry.readers -= 1;
      this.plan();
    };
  }

  private entry(path: string): Entry {
    let entry = this.entries.get(path);
    if (!entry) {
      entry = { topic: { data: undefined, error: undefined }, readers: 0, listeners: new Set() };
      this.entries.set(path, entry);
    }
    return entry;
  }

  /** Reconnect after the current render, when the set of topics is known. */
  private plan(): void {
    if (this.planned) return;
    this.planned = true;
    setTimeout(() => {
      this.planned = false;
      this.update();
    });
  }

  private update(): void {
    const paths = document.hidden
      ? []
      : [...this.entries].filter(([, entry]) => entry.readers > 0).map(([path]) => path);
    const query = paths
      .sort()
      .map((path) => `path=${encodeURIComponent(path)}`)
      .join("&");
    this.forget();
    if (query === this.subscribed && this.source) return;
    this.close();
    this.subscribed = query;
    if (query) this.connect();
  }

  private forget(): void {
    const unread = [...this.entries].filter(([, entry]) => entry.readers === 0);
    for (const [path] of unread.slice(0, Math.max(0, unread.length - KEPT_TOPICS))) this.entries.delete(path);
  }

  private connect(): void {
    const source = new EventSource(`/live?${this.subscribed}`);
    this.source = source;
    source.onopen = () => {
      this.retryDelay = FIRST_RETRY_MS;
      this.setState("open");
    };
    source.addEventListener("update", (event) => {
      const { path, data } = JSON.parse((event as MessageEvent<string>).data) as { path: string; data: unknown };
      this.publish(path, data, undefined);
    });
    source.addEventListener("gone", (event) => {
      const gone = JSON.parse((event as MessageEvent<string>).data) as { path: string; status: number; detail: string };
      this.publish(gone.path, undefined, gone.detail || `The server answered ${gone.status}.`);
    });
    source.onerror = () => {
      // The browser would try again by itself only after some failures, and never says why: ask, and try again here.
      this.close();
      this.setState(this.state === "unauthorized" ? "unauthorized" : "lost");
      void this.diagnose();
      this.retry = window.setTimeout(() => this.connect(), this.retryDelay);
      this.retryDelay = Math.min(LONGEST_RETRY_MS, this.retryDelay * 2);
    };
  }

  private async diagnose(): Promise<void> {
    try {
      const answer = await fetch("/state/session");
      if (answer.status === 401) this.setState("unauthorized");
    } catch {
      // The server does not answer: the connection is lost, as the page already says.
    }
  }

  private close(): void {
    window.clearTimeout(this.retry);
    this.source?.close();
    this.source = undefined;
  }

  private publish(path: string, data: unknown, error: string | undefined): void {
    if (path === SESSION && this.isAnotherNode(data)) this.restart();
    const entry = this.entry(path);
    // The last known data stays in view beside an error.
    entry.topic = { data: error === undefined ? data : entry.topic.data, error };
    for (const listener of entry.listeners) listener();
  }

  private isAnotherNode(data: unknown): boolean {
    const before = (this.entries.get(SESSION)?.topic.data as Session | undefined)?.address;
    const now = (data as Session | undefined)?.address;
    return Boolean(before && now && before !== now);
  }

  /** Forget the data of the last node, and ask for all topics again. */
  private restart(): void {
    for (const [path, entry] of this.entries) {
      if (path === SESSION) continue;
      entry.topic = NOTHING;
      for (const listener of entry.listeners) listener();
    }
    this.close();
    this.plan();
  }

  private setState(state: Connection): void {
    if (state === this.state) return;
    this.state = state;
    for (const listener of this.stateListeners) listener();
  }
}

const live = new Live();

/** Return the newest data of a path, updated as the server pushes it. No path: no data. */
export function useTopic<T>(path: string | null): Topic<T> {
  const subscribe = useCallback(
    (listener: () => void) => (path === null ? () => undefined : live.subscribe(path, listener)),
    [path],
  );
  const read = useCallback(() => (path === null ? NOTHING : live.read(path)), [path]);
  return useSyncExternalStore(subscribe, read) as Topic<T>;
}

export function useConnection(): Connection {
  return useSyncExternalStore(live.onConnection, () => live.connection);
}

export function currentConnection(): Connection {
  return live.connection;
}

/** Return a GET path with its query; parameters without a value are left out, lists are repeated. */
export function pathOf(
  path: string,
  query: Record<string, string | number | string[] | null | undefined> = {},
): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value == null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) parameters.append(name, String(each));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

/** Send a request that changes something; raise an Error with the server's words if it fails. */
export async function act(path: string, body?: unknown): Promise<void> {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
  if (!answer.ok) throw new Error(await problemOf(answer));
}

export async function problemOf(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    const { detail, error } = JSON.parse(text) as { detail?: string; error?: { message?: string } | string };
    return detail ?? (typeof error === "string" ? error : error?.message) ?? text;
  } catch {
    return text || `The server answered ${answer.status}.`;
  }
}

/** Set the title of the document. */
export function useTitle(name: string): void {
  useEffect(() => {
    document.title = `${name} · Skate`;
  }, [name]);
}
