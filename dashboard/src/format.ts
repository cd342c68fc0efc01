// Numbers, sizes, times and states as text.

const NONE = "–";
const LOCALE = "en-US"; // digits and separators that fit the English of the page

export function count(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return NONE;
  if (Math.abs(value) >= 1e6) {
    return value.toLocaleString(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
  }
  return value.toLocaleString(LOCALE, { maximumFractionDigits: Number.isInteger(value) ? 0 : 2 });
}

/** A measured value, such as a loss or a learning rate, with four significant digits. */
export function measure(value: unknown): string {
  if (typeof value === "number") {
    if (!Number.isFinite(value)) return String(value);
    if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString(LOCALE);
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return value.toLocaleString(LOCALE, { maximumSignificantDigits: 4 });
  }
  return plain(value);
}

export function rate(value: number | null | undefined, unit = ""): string {
  if (value == null || !Number.isFinite(value)) return NONE;
  const digits = value === 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const text =
    value >= 1e5
      ? value.toLocaleString(LOCALE, { notation: "compact", maximumSignificantDigits: 3 })
      : value.toLocaleString(LOCALE, { maximumFractionDigits: digits });
  return `${text}${unit ? ` ${unit}` : ""}/s`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value) || value < 0) return NONE;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return `${unit === "B" ? size : Number(size.toPrecision(3))} ${unit}`;
    size /= 1024;
  }
  return `${Number(size.toPrecision(3))} TiB`;
}

export function percent(value: number | null | undefined): string {
  return value == null || !Number.isFinite(value) ? NONE : `${Math.round(value)} %`;
}

/** Seconds in the largest suitable unit: 350 µs, 12.5 ms, 3.2 s, 4 min 10 s, 2 h 5 min. */
export function duration(seconds: number | null | undefined): string {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  const value = Math.max(0, seconds);
  // Each limit is where the value would be rounded up to the next unit.
  if (value < 0.9995e-3) return `${Math.round(value * 1e6)} µs`;
  if (value < 0.9995) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 59.5) return `${value.toFixed(value < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return pair(Math.floor(whole / 60), "min", whole % 60, "s");
  if (whole < 86400) return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "min");
  return pair(Math.floor(whole / 86400), "d", Math.floor((whole % 86400) / 3600), "h");
}

function pair(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
}

export function milliseconds(value: number | null | undefined): string {
  return value == null ? NONE : duration(value / 1000);
}

export function clock(seconds: number | null | undefined): string {
  if (!seconds) return NONE;
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export function dateTime(seconds: number | null | undefined): string {
  if (!seconds) return NONE;
  const date = new Date(seconds * 1000);
  return `${date.toLocaleDateString("sv-SE")} ${date.toLocaleTimeString("en-GB")}`;
}

export function shortId(id: string | null | undefined): string {
  if (!id) return NONE;
  if (id.length <= 12) return id;
  // Ids begin with zeros and a counter, or with random digits, and end with parts that many of them share. The task
  // that creates an actor has the actor's id behind sixteen f.
  // Objects of Ray that a driver put begin with more of them, and end with a counter.
  if (/^f{32}/.test(id)) return id.replace(/^f+/, "").slice(-12);
  const own = id.replace(/^f{16}/, "");
  return (own.slice(0, 16).replace(/^0+/, "") || own.replace(/^0+/, "") || "0").slice(-12);
}

/** A column or state as words: `object_size` is "object size", `PENDING_NODE_ASSIGNMENT` is "pending node assignment". */
export function words(name: string): string {
  return name.replaceAll("_", " ").toLowerCase();
}

// States whose names say little to those who do not know Ray's scheduler.
const STATES: Record<string, string> = {
  PENDING_NODE_ASSIGNMENT: "waits for resources",
  PENDING_ARGS_AVAIL: "waits for arguments",
  PENDING_ARGS_FETCH: "fetches arguments",
  PENDING_OBJ_STORE_MEM_AVAIL: "waits for memory",
  PENDING_ACTOR_TASK_ARGS_FETCH: "fetches arguments",
  PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY: "waits for its turn",
  SUBMITTED_TO_WORKER: "submitted",
  PENDING_CREATION: "waits for resources",
  DEPENDENCIES_UNREADY: "waits for arguments",
  NIL: "not computed yet",
};

/** The state of a task, an actor, an object, … as words. */
export function state(name: string): string {
  return STATES[name] ?? words(name);
}

/** The end of a path, which tells more than its beginning: `dir/program.py:31`. */
export function place(site: string): string {
  return site.split("/").slice(-2).join("/");
}

export function title(name: string): string {
  const text = words(name)
    .replace(/\b(id|ip|pid)\b/g, (found) => found.toUpperCase())
    .replace(/ ms$/, "");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Amounts of resources: `1 CPU, 0.5 GPU`. */
export function resources(amounts: Record<string, unknown>): string {
  return Object.entries(amounts)
    .map(([name, amount]) => (name.includes("memory") ? `${bytes(Number(amount))} ${name}` : `${plain(amount)} ${name}`))
    .join(", ");
}

export function plain(value: unknown): string {
  if (value == null || value === "") return NONE;
  if (typeof value === "number") return count(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** What kind of state it is: decides its colour. */
export type Tone = "good" | "busy" | "wait" | "bad" | "idle";

const TONES: Record<string, Tone> = {
  ALIVE: "good",
  CREATED: "good",
  HEALTHY: "good",
  RUNNING: "busy",
  FINISHED: "idle",
  SUCCEEDED: "good",
  TERMINATED: "idle",
  COMPLETED: "idle",
  DEAD: "idle",
  REMOVED: "idle",
  STOPPED: "idle",
  NIL: "wait",
  FAILED: "bad",
  ERROR: "bad",
  UNHEALTHY: "bad",
  DEPLOY_FAILED: "bad",
  INTERRUPTED: "bad",
  ERRORED: "bad",
  RESTARTING: "wait",
  UPDATING: "wait",
  DEPLOYING: "wait",
  STARTING: "wait",
  RESCHEDULING: "wait",
  DEPENDENCIES_UNREADY: "wait",
  PAUSED: "wait",
  UPSCALING: "wait",
  DOWNSCALING: "wait",
  INFEASIBLE: "bad",
  WAITING: "wait",
  STOPPING: "wait",
  DELETING: "wait",
  RECOVERING: "wait",
  READY: "good",
};

export function tone(state: string): Tone {
  const name = state.toUpperCase();
  return TONES[name] ?? (name.startsWith("PENDING") ? "wait" : name.startsWith("RUNNING") ? "busy" : "idle");
}

export function isWaiting(state: unknown): boolean {
  return (
    typeof state === "string" && tone(state) === "wait" && !["STOPPING", "DELETING", "DOWNSCALING"].includes(state)
  );
}
