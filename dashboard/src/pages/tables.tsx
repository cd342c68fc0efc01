// The pages of actors, objects, placement groups, workers and jobs.

import { Link } from "wouter";

import { addressOf } from "../addresses";
import { Bar, Empty, Panel, Pending, Since, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { NoCallSite } from "../components/Details";
import { TablePage } from "../components/TablePage";
import { WhyButton } from "../components/Why";
import * as format from "../format";
import { useTopic } from "../live";
import type { Memory, MemoryObject, Row, Session, Table } from "../types";

export function text(row: Row, column: string): string {
  return format.plain(row[column]);
}

export function idColumn(column: string, kind: string): Column<Row> {
  return {
    key: column,
    label: "ID",
    width: 128,
    hide: "wide",
    render: (row) => (
      <Link
        className="mono"
        href={addressOf(kind, String(row[column]))}
        onClick={(event) => event.stopPropagation()}
        title={String(row[column])}
      >
        {format.shortId(String(row[column]))}
      </Link>
    ),
    sort: (row) => String(row[column]),
  };
}

export function nameColumn(column: string, kind: string, id: string, label = "Name"): Column<Row> {
  return {
    key: column,
    label,
    render: (row) => (
      <Link
        href={addressOf(kind, String(row[id]))}
        title={text(row, column)}
        onClick={(event) => event.stopPropagation()}
      >
        {text(row, column)}
      </Link>
    ),
    sort: (row) => text(row, column),
  };
}

export function stateColumn(column: string, id: string, name: (row: Row) => string, width = 190): Column<Row> {
  return {
    key: column,
    label: "State",
    width,
    render: (row) => (
      <span className="state-cell">
        <State value={row[column] as string | null} />
        {format.isWaiting(row[column]) && <WhyButton id={String(row[id])} name={name(row)} />}
      </span>
    ),
    sort: (row) => text(row, column),
  };
}

export function plainColumn(column: string, options: Partial<Column<Row>> = {}): Column<Row> {
  const { number } = options;
  return {
    key: column,
    label: format.title(column),
    render: (row) => (/pid$/.test(column) ? (row[column] as number | null) || "–" : text(row, column)),
    sort: (row) => (number ? (row[column] as number | null) : text(row, column)),
    ...options,
  };
}

const actorName = (row: Row) => String(row.name || row.class_name);

const ACTOR_COLUMNS: Column<Row>[] = [
  nameColumn("class_name", "actors", "actor_id", "Class"),
  plainColumn("name", { hide: "wide", render: (row) => <span title={text(row, "name")}>{text(row, "name")}</span> }),
  stateColumn("state", "actor_id", actorName, 170),
  plainColumn("pid", { width: 84, number: true, label: "PID", hide: "wide" }),
  plainColumn("ray_namespace", {
    width: 130,
    hide: "wider",
    label: "Namespace",
    // Without a namespace of its own, a program gets a random one.
    render: (row) => (/^[0-9a-f-]{32,36}$/.test(text(row, "ray_namespace")) ? "–" : text(row, "ray_namespace")),
  }),
  plainColumn("num_restarts", { width: 84, number: true, hide: "wider", label: "Restarts" }),
  idColumn("actor_id", "actors"),
];

export function Actors() {
  return (
    <TablePage
      name="Actors"
      kind="actors"
      noun="actor"
      idColumn="actor_id"
      columns={ACTOR_COLUMNS}
      nameOf={actorName}
      filters={[
        { label: "All", filters: [] },
        { label: "Alive", filters: ["state=ALIVE"] },
        { label: "Not alive", filters: ["state!=ALIVE", "state!=DEAD"] },
        { label: "Dead", filters: ["state=DEAD"] },
      ]}
      action={{
        label: "Kill",
        question: "Kill this actor?",
        path: (id) => `/actions/actors/${encodeURIComponent(id)}/kill`,
        allowed: (row) => row.state !== "DEAD",
      }}
      empty="No actor has been created yet. An actor is a class whose methods run in a process of their own:"
      code={"@skate.remote\nclass Counter:\n    def value(self):\n        return 1\n\ncounter = Counter.remote()"}
    />
  );
}

const groupName = (row: Row) => String(row.name || "placement group");

function bundles(row: Row): string {
  const found = Array.isArray(row.bundles) ? (row.bundles as Row[]) : [];
  return found
    .map((bundle) => Object.entries((bundle.unit_resources ?? {}) as Record<string, number>))
    .map((resources) => resources.map(([name, amount]) => `${amount} ${name}`).join(" + "))
    .join(", ");
}

const GROUP_COLUMNS: Column<Row>[] = [
  {
    key: "name",
    label: "Name",
    render: (row) => (
      <Link
        href={addressOf("placement_groups", String(row.placement_group_id))}
        title={groupName(row)}
        onClick={(event) => event.stopPropagation()}
      >
        {groupName(row)}
      </Link>
    ),
    sort: groupName,
  },
  stateColumn("state", "placement_group_id", groupName, 160),
  {
    key: "bundles",
    label: "Bundles",
    hide: "wide",
    render: (row) => <span title={bundles(row)}>{bundles(row) || "–"}</span>,
  },
  plainColumn("creator_job_id", { width: 120, hide: "wider", label: "Job" }),
  idColumn("placement_group_id", "placement_groups"),
];

export function PlacementGroups() {
  return (
    <TablePage
      name="Placement groups"
      kind="placement_groups"
      noun="placement group"
      idColumn="placement_group_id"
      columns={GROUP_COLUMNS}
      nameOf={groupName}
      empty="There is no placement group. A placement group reserves resources for tasks and actors that start together:"
      code={
        'from skate.util.placement_group import placement_group\n\ngroup = placement_group([{"CPU": 1}, {"CPU": 1}])'
      }
    />
  );
}

const workerName = (row: Row) => `${format.words(String(row.worker_type))} ${row.pid}`;

/** The actor that a process hosts. */
function ActorOf({ pid }: { pid: Row[string] | undefined }) {
  const actors = useTopic<Table>("/state/actors?limit=1000&filter=state=ALIVE").data?.rows;
  const actor = pid ? actors?.find((row) => row.pid === pid) : undefined;
  if (actor === undefined) return "–";
  return (
    <Link
      href={addressOf("actors", String(actor.actor_id))}
      title={`${String(actor.class_name)} ${String(actor.name)}`}
      onClick={(event) => event.stopPropagation()}
    >
      {String(actor.class_name)}
    </Link>
  );
}

const WORKER_COLUMNS: Column<Row>[] = [
  {
    key: "pid",
    label: "PID",
    width: 110,
    render: (row) => (
      <Link href={addressOf("workers", String(row.worker_id))} onClick={(event) => event.stopPropagation()}>
        {row.pid as number}
      </Link>
    ),
    sort: (row) => row.pid as number,
  },
  plainColumn("worker_type", {
    label: "Type",
    width: 130,
    hide: "wide",
    render: (row) => format.words(String(row.worker_type)),
  }),
  {
    key: "is_alive",
    label: "State",
    width: 110,
    render: (row) => <State value={row.is_alive ? "ALIVE" : "DEAD"} />,
    sort: (row) => String(row.is_alive),
  },
  { key: "runs", label: "Actor", hide: "wide", render: (row) => <ActorOf pid={row.is_alive ? row.pid : null} /> },
  plainColumn("exit_detail", {
    label: "Exit",
    hide: "wider",
    render: (row) => <span title={text(row, "exit_detail")}>{text(row, "exit_detail")}</span>,
  }),
  {
    key: "start_time_ms",
    label: "Age",
    width: 110,
    number: true,
    render: (row) => (
      <Since time={(row.start_time_ms as number | null) && (row.start_time_ms as number) / 1000} until={ended(row)} />
    ),
    sort: (row) => -(row.start_time_ms as number),
  },
  idColumn("worker_id", "workers"),
];

function ended(row: Row): number | null {
  return typeof row.end_time_ms === "number" && row.end_time_ms > 0 ? row.end_time_ms / 1000 : null;
}

export function Workers() {
  return (
    <TablePage
      name="Workers"
      kind="workers"
      noun="worker"
      idColumn="worker_id"
      columns={WORKER_COLUMNS}
      nameOf={workerName}
      state="worker_state"
      filters={[
        { label: "All", filters: [] },
        { label: "Alive", filters: ["is_alive=True"] },
        { label: "Ended", filters: ["is_alive=False"] },
      ]}
      empty="No process runs tasks yet. Workers start with the first task:"
      code={"skate.init()\nskate.get(skate.remote(lambda: 1).remote())"}
    />
  );
}

const jobName = (row: Row) => String(row.entrypoint || row.submission_id || row.job_id);
const jobId = (row: Row) => String(row.submission_id || row.job_id);

const JOB_COLUMNS: Column<Row>[] = [
  {
    key: "entrypoint",
    label: "Entrypoint",
    render: (row) => (
      <Link
        className="mono"
        href={addressOf("jobs", jobId(row))}
        title={jobName(row)}
        onClick={(event) => event.stopPropagation()}
      >
        {jobName(row)}
      </Link>
    ),
    sort: jobName,
  },
  { ...stateColumn("status", "submission_id", jobName, 130), label: "Status" },
  plainColumn("type", { width: 110, hide: "wide", render: (row) => format.words(String(row.type)) }),
  {
    key: "start_time",
    label: "Started",
    width: 100,
    hide: "wide",
    render: (row) => format.clock((row.start_time as number | null) && (row.start_time as number) / 1000),
    sort: (row) => row.start_time as number | null,
  },
  {
    key: "duration",
    label: "Duration",
    width: 110,
    number: true,
    render: (row) => (
      <Since
        time={row.start_time ? (row.start_time as number) / 1000 : null}
        until={row.end_time ? (row.end_time as number) / 1000 : null}
      />
    ),
  },
  plainColumn("submission_id", { width: 190, hide: "wider", label: "Submission ID" }),
];

export function Jobs() {
  return (
    <TablePage
      name="Jobs"
      kind="jobs"
      noun="job"
      idColumn="submission_id"
      columns={JOB_COLUMNS}
      nameOf={jobName}
      keyOf={(row) => `${String(row.type)} ${jobId(row)}`}
      openOf={jobId}
      state="status"
      filters={[
        { label: "All", filters: [] },
        { label: "Running", filters: ["status=RUNNING"] },
        { label: "Succeeded", filters: ["status=SUCCEEDED"] },
        { label: "Failed", filters: ["status=FAILED"] },
      ]}
      action={{
        label: "Stop",
        question: "Stop this job?",
        path: (id) => `/api/jobs/${encodeURIComponent(id)}/stop`,
        allowed: (row) => row.type === "SUBMISSION" && (row.status === "PENDING" || row.status === "RUNNING"),
      }}
      empty="No program is attached to this node. Submit one:"
      code="skate job submit -- python program.py"
    />
  );
}

const objectName = (row: Row) => `object ${format.shortId(String(row.object_id))}`;

const OBJECT_COLUMNS: Column<Row>[] = [
  { ...idColumn("object_id", "objects"), hide: undefined, width: undefined, label: "Object" },
  {
    key: "object_size",
    label: "Size",
    width: 96,
    number: true,
    render: (row) => format.bytes(row.object_size as number),
    sort: (row) => row.object_size as number,
  },
  { ...stateColumn("task_status", "object_id", objectName, 200), label: "Task" },
  plainColumn("reference_type", {
    width: 190,
    hide: "wide",
    label: "Held as",
    render: (row) => format.words(String(row.reference_type)),
  }),
  plainColumn("pid", { width: 84, number: true, label: "PID", hide: "wide" }),
  plainColumn("call_site", {
    hide: "wider",
    label: "Created at",
    render: (row) =>
      row.call_site === "disabled" ? (
        "–"
      ) : (
        <span className="mono" title={text(row, "call_site")}>
          {format.place(text(row, "call_site"))}
        </span>
      ),
  }),
];

export function Objects() {
  return (
    <TablePage
      name="Objects"
      kind="objects"
      noun="object"
      idColumn="object_id"
      columns={OBJECT_COLUMNS}
      nameOf={objectName}
      keyOf={(row) => ["object_id", "pid", "reference_type"].map((column) => String(row[column])).join(" ")}
      state="task_status"
      above={(open) => <MemoryView onOpen={open} />}
      empty="No object is held. A task's result and a value that is put are objects:"
      code="reference = skate.put(list(range(1_000_000)))"
    />
  );
}

const PROCESS_COLUMNS: Column<Memory["processes"][number]>[] = [
  {
    key: "title",
    label: "Process",
    render: (row) => <span title={row.title}>{row.title}</span>,
    sort: (row) => row.title,
  },
  { key: "pid", label: "PID", width: 72, number: true, render: (row) => row.pid, sort: (row) => row.pid },
  {
    key: "rss",
    label: "Resident",
    width: 84,
    number: true,
    render: (row) => format.bytes(row.rss),
    sort: (row) => row.rss,
  },
  {
    key: "uss",
    label: "Private",
    width: 96,
    number: true,
    hide: "wider",
    render: (row) => format.bytes(row.uss),
    sort: (row) => row.uss,
  },
  {
    key: "bytes",
    label: "Holds",
    width: 84,
    number: true,
    render: (row) => format.bytes(row.bytes),
    sort: (row) => row.bytes,
  },
  {
    key: "objects",
    label: "Objects",
    width: 84,
    number: true,
    hide: "wider",
    render: (row) => format.count(row.objects),
    sort: (row) => row.objects,
  },
];

function holders(object: MemoryObject): string {
  return object.holders.map((holder) => `${holder.title} (${format.words(holder.kind)})`).join(", ");
}

function flags(object: MemoryObject): string {
  return [object.pinned && "pinned", object.spilled && "spilled"].filter(Boolean).join(", ");
}

const MEMORY_COLUMNS: Column<MemoryObject>[] = [
  {
    key: "size",
    label: "Size",
    width: 92,
    number: true,
    render: (row) => format.bytes(row.size),
    sort: (row) => row.size,
  },
  {
    key: "created_at",
    label: "Created at",
    render: (row) => (
      <span className="mono" title={row.created_at ?? undefined}>
        {row.created_at === null ? "–" : format.place(row.created_at)}
      </span>
    ),
    sort: (row) => row.created_at,
  },
  { key: "holders", label: "Held by", render: (row) => <span title={holders(row)}>{holders(row) || "–"}</span> },
  { key: "flags", label: "Kept", width: 130, hide: "wide", render: (row) => flags(row) || "in memory" },
  {
    key: "id",
    label: "Object",
    width: 128,
    hide: "wide",
    render: (row) => (
      <Link className="mono" href={addressOf("objects", row.id)} title={row.id} onClick={(event) => event.stopPropagation()}>
        {format.shortId(row.id)}
      </Link>
    ),
  },
];

function MemoryView({ onOpen }: { onOpen: (id: string) => void }) {
  const session = useTopic<Session>("/state/session").data;
  const topic = useTopic<Memory>(session?.engine === "ray" ? null : "/state/memory");
  const memory = topic.data;
  if (session?.engine === "ray") return null; // a Ray cluster does not say who holds its objects
  if (!memory) {
    return (
      <Panel name="Memory">
        <Pending topic={topic} what="Memory" />
      </Panel>
    );
  }
  return (
    <>
      <Stats
        values={[
          ["Object store", format.bytes(memory.used), `of ${format.bytes(memory.budget)}`],
          ["Spilled so far", format.bytes(memory.spilled)],
          ["Mapped by processes", format.bytes(memory.mapped)],
          ["Processes", format.count(memory.processes.length)],
        ]}
      />
      <Bar share={memory.used / memory.budget} label="Object store in use" />
      <div className="grid">
        <Panel name="By process" about={format.count(memory.processes.length)} bare>
          {memory.processes.length > 0 ? (
            <div className="limited" tabIndex={-1}>
              <DataTable
                label="Memory by process"
                columns={PROCESS_COLUMNS}
                rows={memory.processes.toSorted((one, other) => other.bytes - one.bytes || other.rss - one.rss)}
                rowKey={(row) => String(row.pid)}
              />
            </div>
          ) : (
            <Empty>No process of the session is running.</Empty>
          )}
        </Panel>
        <Panel name="Largest objects" bare>
          {memory.objects.length > 0 ? (
            <DataTable
              label="Largest objects"
              columns={MEMORY_COLUMNS}
              rows={memory.objects.slice(0, 12)}
              rowKey={(row) => row.id}
              onOpen={(row) => onOpen(row.id)}
            />
          ) : (
            <Empty>The object store is empty.</Empty>
          )}
          {memory.objects.length > 0 && memory.objects.every((object) => object.created_at === null) && (
            <div className="table-foot">
              <span>
                Where they are created is <NoCallSite />.
              </span>
            </div>
          )}
        </Panel>
      </div>
    </>
  );
}
