// A drawer with all that is known about one task, actor, object, …

import { Button, Drawer, Group } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { Link } from "wouter";

import { addressOf } from "../addresses";
import * as format from "../format";
import { act, useTopic } from "../live";
import type { LogFile, Row, Session, Value } from "../types";
import { Pending, State } from "./basics";
import { LogLink } from "./LogLink";
import { WhyButton } from "./Why";

export interface Action {
  label: string;
  /** What the button asks before it acts. */
  question: string;
  path: (id: string) => string;
  allowed: (row: Row) => boolean;
}

interface Props {
  kind: string;
  noun: string;
  id: string | null;
  /** The ID of the row, for actions: the address may have its name. */
  idOf: (row: Row) => string;
  name: (row: Row) => string;
  state?: string;
  action?: Action;
  onClose: () => void;
}

const LINKS: Record<string, string> = {
  task_id: "tasks",
  parent_task_id: "tasks",
  actor_id: "actors",
  placement_group_id: "placement_groups",
  object_id: "objects",
  worker_id: "workers",
  submission_id: "jobs",
};

export function Details({ kind, noun, id, idOf, name, state = "state", action, onClose }: Props) {
  return (
    <Drawer
      opened={id !== null}
      onClose={onClose}
      position="right"
      size="lg"
      title={format.title(noun)}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      {id !== null && <Content kind={kind} id={id} idOf={idOf} name={name} state={state} action={action} />}
    </Drawer>
  );
}

type ContentProps = Pick<Props, "kind" | "idOf" | "name" | "action"> & { id: string; state: string };

function Content({ kind, id, idOf, name, state, action }: ContentProps) {
  const topic = useTopic<Row>(`/state/${kind}/${encodeURIComponent(id)}`);
  const session = useTopic<Session>("/state/session").data;
  const row = topic.data;
  if (!row) return <Pending topic={topic} what={id} />;
  const status = row[state];
  const known = Object.entries(row).filter(([column, value]) => !isEmpty(column, value));
  const error = errorOf(row);
  return (
    <>
      <p style={{ marginTop: 0, overflowWrap: "anywhere" }}>
        <strong>{name(row)}</strong>
      </p>
      <Group gap="sm" mb="md" mih={28}>
        {typeof status === "string" && <State value={status} />}
        {format.isWaiting(status) && <WhyButton id={idOf(row)} name={name(row)} />}
        {session?.engine !== "ray" && <LogLink isLog={(file) => isLogOf(row, file)} />}
        {session?.engine !== "ray" && action?.allowed(row) && <Act action={action} id={idOf(row)} />}
      </Group>
      {topic.error !== undefined && <p className="error-text">{topic.error}</p>}
      {error !== null && (
        <pre className="block" style={{ marginBottom: 14 }} tabIndex={0}>
          {error}
        </pre>
      )}
      <dl className="facts">
        {known
          .filter(([column, value]) => !HIDDEN.has(column) && column !== state && value !== error)
          .filter(([column]) => column !== "func_or_class_name" || row.func_or_class_name !== row.name)
          .map(([column, value]) => (
            <Fact key={column} column={column} value={value} self={idOf(row)} />
          ))}
      </dl>
    </>
  );
}

// Shown elsewhere, or twice.
const HIDDEN = new Set(["error_message", "death_cause", "is_alive", "worker_launch_time_ms", "worker_launched_time_ms"]);

/** Return the error of a task, why an actor is dead or a worker has ended, or the message of a job that has failed. */
function errorOf(row: Row): string | null {
  const died = (row.death_cause as Record<string, Record<string, Value>> | null)?.actor_died_error_context;
  const found = row.error_message ?? died?.error_message ?? (row.status === "FAILED" ? row.message : null);
  return found === null || found === undefined || found === "" ? null : String(found);
}

/** Return whether a file is the log of a row: of its worker, which has a number, of its process or of its job. */
function isLogOf(row: Row, file: LogFile): boolean {
  if (row.submission_id) return file.name === `job-driver-${String(row.submission_id)}.log`;
  if (typeof row.worker_id === "string") return file.name === `worker-${parseInt(row.worker_id, 16)}.log`;
  return "actor_id" in row && Boolean(row.pid) && file.pid === row.pid;
}

/** Return whether a value says nothing: there is none, or it counts or measures nothing. */
function isEmpty(column: string, value: Value): boolean {
  if (value === null || value === "" || value === "{}") return true;
  if (value === 0) return /(time|time_ms|pid)$|^num_(restarts_due|paused)/.test(column);
  if (value === false) return column.startsWith("is_");
  return typeof value === "object" && Object.keys(value).length === 0;
}

function Fact({ column, value, self }: { column: string; value: Value; self: string }) {
  return (
    <>
      <dt>{format.title(column)}</dt>
      <dd>{show(column, value, self)}</dd>
    </>
  );
}

function show(column: string, value: Value, self: string): ReactNode {
  if (column === "events" && Array.isArray(value)) return <Events events={value as Row[]} />;
  if (column === "required_resources") return format.resources(value as Row);
  if (column === "call_site" && value === "disabled") return <NoCallSite />;
  if (typeof value === "number") {
    if (/_time_ms$|^(start|end)_time$/.test(column)) return value ? format.dateTime(value / 1000) : "–";
    if (/pid$/.test(column)) return value;
    if (/size$|bytes$|memory$/.test(column)) return format.bytes(value);
  }
  const linked = LINKS[column];
  if (typeof value === "string" && (linked || /_id$/.test(column))) {
    const text = <span className="mono">{value}</span>;
    return linked && value !== self ? <Link href={addressOf(linked, value)}>{text}</Link> : text;
  }
  if (value !== null && typeof value === "object") return <code>{JSON.stringify(value, null, 1)}</code>;
  return format.plain(value);
}

/** Says how to see the line that creates an object. */
export function NoCallSite() {
  return (
    <>
      not recorded; programs with <code>SKATE_record_ref_creation_sites=1</code> record it
    </>
  );
}

function Events({ events }: { events: Row[] }) {
  const times = events.map((event) => Number(event.created_ms) / 1000);
  return (
    <>
      {events.map((event, index) => (
        <div key={index}>
          {format.clock(times[index])} {format.words(String(event.state))}
          {index > 0 && (
            <span className="muted"> after {format.duration((times[index] ?? 0) - (times[index - 1] ?? 0))}</span>
          )}
        </div>
      ))}
    </>
  );
}

function Act({ action, id }: { action: Action; id: string }) {
  const [asked, setAsked] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const run = async () => {
    setAsked(false);
    try {
      await act(action.path(id));
      setProblem(null);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Group gap="xs" ml="auto" role="group" aria-label={action.label}>
      {asked ? (
        <>
          <span>{action.question}</span>
          <Button size="compact-xs" color="red" onClick={() => void run()} autoFocus>
            {action.label}
          </Button>
          <Button size="compact-xs" variant="default" onClick={() => setAsked(false)}>
            No
          </Button>
        </>
      ) : (
        <Button size="compact-xs" variant="default" onClick={() => setAsked(true)}>
          {action.label}
        </Button>
      )}
      {problem !== null && (
        <span className="error-text" role="alert">
          {problem}
        </span>
      )}
    </Group>
  );
}
