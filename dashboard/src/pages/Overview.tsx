import { useMemo } from "react";
import { Link } from "wouter";

import { addressOf } from "../addresses";
import { Lines } from "../charts/charts";
import { Bar, Empty, Page, Panel, Pending, Since, State, Stats, type Stat } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { summaryOf } from "../components/RunsPage";
import { WhyButton } from "../components/Why";
import * as format from "../format";
import { useTopic } from "../live";
import type { GpuHistory, History, Overview as Data, Run, Session, Waiting } from "../types";

export function Overview() {
  const topic = useTopic<Data>("/state/overview");
  const { data } = topic;
  return (
    <Page name="Overview">
      {!data && (
        <Panel name="Session">
          <Pending topic={topic} what="The overview" />
        </Panel>
      )}
      {data && (
        <>
          <Counts data={data} />
          <div className="grid">
            <WaitingPanel waiting={data.waiting} />
            <Resources resources={data.resources} />
          </div>
          {data.object_store !== null && <Runs />}
          {data.object_store === null ? <OfRay /> : <Charts history={data.history} store={data.object_store} />}
        </>
      )}
    </Page>
  );
}

function sum(counts: Record<string, number>, wanted: (state: string) => boolean): number {
  return Object.entries(counts).reduce((total, [state, number]) => total + (wanted(state) ? number : 0), 0);
}

function isRunning(state: string): boolean {
  return state.startsWith("RUNNING");
}

function Counts({ data }: { data: Data }) {
  const { tasks, actors, object_store: store } = data;
  const running = sum(tasks, isRunning);
  const calling = sum(data.calls, isRunning);
  const stored: Stat[] =
    store === null
      ? []
      : [
          ["Objects", format.count(store.objects), undefined, "/objects"],
          ["Spilled so far", format.bytes(store.spilled), undefined, "/objects"],
        ];
  return (
    <Stats
      values={[
        [
          "Tasks running",
          format.count(running - calling),
          calling > 0 ? `+ ${format.count(calling)} ${calling === 1 ? "call" : "calls"}` : undefined,
          "/tasks?show=running",
        ],
        ["Tasks waiting", format.count(sum(tasks, format.isWaiting)), undefined, "/tasks?show=waiting"],
        ["Tasks finished", format.count(tasks.FINISHED ?? 0), undefined, "/tasks?show=finished"],
        ["Tasks failed", format.count(tasks.FAILED ?? 0), undefined, "/tasks?show=failed"],
        [
          "Actors alive",
          format.count(actors.ALIVE ?? 0),
          `of ${format.count(sum(actors, (state) => state !== "DEAD"))}`,
          "/actors?show=alive",
        ],
        ["Workers", format.count(data.workers), undefined, "/workers?show=alive"],
        ...stored,
      ]}
    />
  );
}

function last(values: (number | null)[]): number | null {
  return values.at(-1) ?? null;
}

/** What the page has not got of a Ray cluster. */
function OfRay() {
  const url = useTopic<Session>("/state/session").data?.ray_dashboard;
  return (
    <Panel name="Ray cluster">
      <p style={{ margin: 0 }}>
        These pages show what Ray's state API reports. Logs, memory, machines, runs and Serve are in{" "}
        {url ? (
          <a href={url} target="_blank" rel="noreferrer">
            Ray's own dashboard
          </a>
        ) : (
          "Ray's own dashboard, which this cluster has not started"
        )}
        .
      </p>
    </Panel>
  );
}

function Charts({ history, store }: { history: History; store: NonNullable<Data["object_store"]> }) {
  const { time } = history;
  return (
    <div className="grid">
      <Measure
        name="CPU"
        about={`${format.percent(last(history.cpu))} of the machine`}
        time={time}
        values={history.cpu}
        unit={format.percent}
        max={100}
      />
      <Measure
        name="Memory"
        about={`${format.bytes(last(history.memory))} of ${format.bytes(history.memory_limit)}`}
        time={time}
        values={history.memory}
        unit={format.bytes}
        max={history.memory_limit}
      />
      <Measure
        name="Object store"
        about={`${format.bytes(last(history.object_store))} of ${format.bytes(store.limit)}`}
        time={time}
        values={history.object_store}
        unit={format.bytes}
        max={Math.min(store.limit, roundedUp(history.object_store))}
      />
      <Measure
        name="Running tasks"
        about={format.count(last(history.running))}
        time={time}
        values={history.running}
        unit={format.count}
        min={0}
        whole
      />
      {history.gpu.map((gpu) => (
        <Gpu key={gpu.index} gpu={gpu} time={time} />
      ))}
    </div>
  );
}

/** Return a round number of bytes above all values: the memory in use is often a small part of the limit. */
function roundedUp(values: (number | null)[]): number {
  const most = Math.max(1 << 20, ...values.map((value) => value ?? 0));
  const unit = 1024 ** Math.floor(Math.log(most) / Math.log(1024));
  const round = [1, 2, 4, 10, 20, 40, 100, 200, 400, 1024].find((each) => each * unit >= most) ?? 1024;
  return round * unit;
}

const MOST_POINTS = 150; // of a chart that is some 400 pixels wide

/** Return the means of periods: a line through ten minutes of samples would be a block of colour. */
function means(time: number[], values: (number | null)[]): { time: number[]; values: (number | null)[] } {
  const size = Math.ceil(time.length / MOST_POINTS);
  if (size < 2) return { time, values };
  const found = new Map<number, number[]>();
  time.forEach((at, index) => {
    const period = Math.floor(at / size) * size; // of the clock: the line does not change when it moves on
    const value = values[index];
    found.set(period, [...(found.get(period) ?? []), ...(value == null ? [] : [value])]);
  });
  return {
    time: [...found.keys()],
    values: [...found.values()].map((all) => (all.length > 0 ? all.reduce((sum, each) => sum + each) / all.length : null)),
  };
}

interface MeasureProps {
  name: string;
  about: string;
  time: number[];
  values: (number | null)[];
  unit: (value: number) => string;
  max?: number;
  min?: number;
  whole?: boolean;
}

function Measure({ name, about, time, values, unit, max, min, whole }: MeasureProps) {
  const drawn = useMemo(() => means(time, values), [time, values]);
  const series = useMemo(() => [{ name, values: drawn.values }], [name, drawn]);
  return (
    <Panel name={name} about={<b>{about}</b>}>
      <Lines
        label={`${name} over time: now ${about}`}
        time
        x={drawn.time}
        series={series}
        unit={unit}
        max={max || undefined}
        min={min}
        whole={whole}
        height={128}
      />
    </Panel>
  );
}

function Gpu({ gpu, time }: { gpu: GpuHistory; time: number[] }) {
  const name = `GPU ${gpu.index}`;
  return (
    <>
      <Measure
        name={`${name} utilization`}
        about={`${format.percent(last(gpu.utilization))} · ${gpu.name}`}
        time={time}
        values={gpu.utilization}
        unit={format.percent}
        max={100}
      />
      <Measure
        name={`${name} memory`}
        about={`${format.bytes(last(gpu.memory))} of ${format.bytes(gpu.memory_limit)}`}
        time={time}
        values={gpu.memory}
        unit={format.bytes}
        max={gpu.memory_limit}
      />
    </>
  );
}

const RUN_PAGES = { data: "Dataset", train: "Training", tune: "Experiment" };
const MOST_RUNS = 5;

const RUN_COLUMNS: Column<Run>[] = [
  {
    key: "name",
    label: "Run",
    render: (run) => (
      <Link href={addressOf(run.kind, run.id)} title={run.name}>
        {run.name}
      </Link>
    ),
  },
  { key: "kind", label: "Kind", width: 110, hide: "wide", render: (run) => RUN_PAGES[run.kind] },
  { key: "status", label: "Status", width: 110, render: (run) => <State value={run.status} /> },
  {
    key: "summary",
    label: "Progress",
    hide: "wide",
    render: (run) => <span title={summaryOf(run)}>{summaryOf(run)}</span>,
  },
  {
    key: "duration",
    label: "Duration",
    width: 104,
    number: true,
    render: (run) => <Since time={run.started} until={run.ended} />,
  },
];

/** The runs that go on, and then the latest that have ended. */
function Runs() {
  const all = useTopic<{ runs: Run[] }>("/state/runs").data?.runs ?? [];
  if (all.length === 0) return null;
  const running = all.filter((run) => run.status === "RUNNING");
  const ended = all.filter((run) => run.status !== "RUNNING");
  return (
    <Panel name="Runs" about={`${format.count(running.length)} running, ${format.count(ended.length)} ended`} bare>
      <DataTable
        label="Runs"
        columns={RUN_COLUMNS}
        rows={[...running, ...ended].slice(0, Math.max(MOST_RUNS, Math.min(running.length, 2 * MOST_RUNS)))}
        rowKey={(run) => run.id}
      />
    </Panel>
  );
}

const PAGES: Record<string, string> = { task: "tasks", actor: "actors", placement_group: "placement_groups" };

const WAITING_COLUMNS: Column<Waiting>[] = [
  {
    key: "name",
    label: "Name",
    render: (row) => {
      const page = PAGES[row.kind.toLowerCase().replace(" ", "_")];
      return page ? (
        <Link href={addressOf(page, row.id)} title={row.name}>
          {row.name}
        </Link>
      ) : (
        row.name
      );
    },
    sort: (row) => row.name,
  },
  {
    key: "kind",
    label: "Kind",
    width: 130,
    render: (row) => format.words(row.kind),
    sort: (row) => row.kind,
    hide: "narrow",
  },
  {
    key: "since",
    label: "Waits for",
    width: 104,
    number: true,
    render: (row) => <Since time={row.since} />,
    sort: (row) => row.since && -row.since,
  },
  { key: "why", label: "Reason", width: 74, render: (row) => <WhyButton id={row.id} name={row.name} /> },
];

function WaitingPanel({ waiting }: { waiting: Waiting[] }) {
  return (
    <Panel name="Waiting" about={waiting.length > 0 && format.count(waiting.length)} bare>
      <div className="waiting">
        {waiting.length === 0 ? (
          <Empty>Nothing waits: every task, actor and placement group has what it needs.</Empty>
        ) : (
          <DataTable
            label="What waits"
            columns={WAITING_COLUMNS}
            rows={waiting.slice(0, 50)}
            rowKey={(row) => row.id}
          />
        )}
        {waiting.length > 50 && (
          <div className="table-foot">
            The longest waits are shown. <Link href="/tasks">All tasks</Link>
          </div>
        )}
      </div>
    </Panel>
  );
}

function amount(name: string, value: number): string {
  return name.includes("memory") ? format.bytes(value) : format.count(value);
}

function Resources({ resources: all }: { resources: Data["resources"] }) {
  const resources = all.filter(({ name }) => !name.startsWith("node:")); // these only name the machine
  return (
    <Panel name="Resources" about="reserved by tasks and actors">
      <div style={{ minHeight: 198 }}>
        {resources.map(({ name, used, total }) => (
          <div className="resource" key={name}>
            <span className="ellipsis" title={name}>
              {name}
            </span>
            <Bar share={total > 0 ? used / total : 0} label={`${name} reserved`} />
            <span className="number nowrap">
              {amount(name, used)} <span className="muted">of {amount(name, total)}</span>
            </span>
          </div>
        ))}
        {resources.length === 0 && <Empty>The node reports no resources.</Empty>}
      </div>
    </Panel>
  );
}
