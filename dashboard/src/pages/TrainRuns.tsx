import { useMemo, useState } from "react";

import { Legend, Lines, type Series } from "../charts/charts";
import { Empty, Panel, Since, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { RunsPage } from "../components/RunsPage";
import * as format from "../format";
import type { TrainRun } from "../types";

export default function TrainRuns() {
  return (
    <RunsPage<TrainRun>
      name="Train runs"
      kind="train"
      empty="No training has run in this session. Curves come from what the training loop reports:"
      code={
        'def loop(config):\n    skate.train.report({"loss": 0.5})\n\nTorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()'
      }
    >
      {(run) => <Detail run={run} />}
    </RunsPage>
  );
}

/** Group metrics that belong into one chart: `loss`, `val_loss` and `train/loss` share one. */
function groups(values: TrainRun["metrics"]["values"]): [string, Series[]][] {
  const found = new Map<string, Series[]>();
  for (const [name, series] of Object.entries(values)) {
    if (!series.some((value) => value !== null)) continue;
    const group = name.replace(/^(train|training|valid|validation|val|eval|test)[_/]/, "");
    found.set(group, [...(found.get(group) ?? []), { name, values: series }]);
  }
  return [...found].sort(([one], [other]) => Number(isLoss(other)) - Number(isLoss(one)));
}

function isLoss(name: string): boolean {
  return /loss/i.test(name);
}

function latest(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function Detail({ run }: { run: TrainRun }) {
  const charts = useMemo(() => groups(run.metrics.values), [run.metrics.values]);
  const loss = charts.find(([name]) => isLoss(name))?.[1][0];
  const iteration = run.metrics.iteration.at(-1);
  return (
    <>
      <Stats
        values={[
          ["Status", <State key="status" value={run.status} />],
          ["Reports", format.count(iteration)],
          [loss ? loss.name : "Loss", loss ? format.measure(latest(loss.values)) : "–"],
          ["Workers", format.count(run.workers.length)],
          ["Checkpoints", format.count(run.checkpoints.length)],
          ["Duration", <Since key="duration" time={run.started} until={run.ended} />],
        ]}
      />
      <div className="grid">
        {charts.map(([name, series]) => (
          <Curve key={name} name={name} series={series} iteration={run.metrics.iteration} />
        ))}
      </div>
      {charts.length === 0 && (
        <Panel name="Metrics">
          {run.status === "RUNNING" ? (
            <Empty code={'skate.train.report({"loss": loss})'}>The training loop has not reported metrics yet:</Empty>
          ) : (
            <Empty>The training loop has reported no metrics.</Empty>
          )}
        </Panel>
      )}
      <div className="grid">
        <Panel name="Ranks" bare>
          {run.workers.length > 0 ? (
            <DataTable
              label="Ranks"
              columns={RANK_COLUMNS}
              rows={run.workers}
              rowKey={(worker) => String(worker.rank)}
            />
          ) : (
            <Empty>No worker has joined yet.</Empty>
          )}
        </Panel>
        <Panel name="Checkpoints" bare>
          {run.checkpoints.length > 0 ? (
            <DataTable
              label="Checkpoints"
              columns={CHECKPOINT_COLUMNS}
              rows={run.checkpoints}
              rowKey={(checkpoint) => checkpoint.path}
            />
          ) : (
            <Empty code="skate.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))">
              No checkpoint has been reported:
            </Empty>
          )}
        </Panel>
      </div>
    </>
  );
}

function Curve({ name, series, iteration }: { name: string; series: Series[]; iteration: number[] }) {
  const positive = series.every(({ values }) => values.every((value) => value === null || value > 0));
  const [log, setLog] = useState(false);
  const current = series.map((each) => `${each.name} ${format.measure(latest(each.values))}`).join(", ");
  return (
    <Panel
      name={name}
      about={series.length > 1 ? <Legend series={series} /> : <b>{format.measure(latest(series[0]?.values ?? []))}</b>}
      tools={
        positive && (
          <button type="button" className="chip" aria-pressed={log} onClick={() => setLog(!log)}>
            log
          </button>
        )
      }
    >
      <Lines
        label={`Curve of ${name}: now ${current}`}
        x={iteration}
        xName="report"
        series={series}
        unit={format.measure}
        log={log}
        height={190}
      />
    </Panel>
  );
}

const RANK_COLUMNS: Column<TrainRun["workers"][number]>[] = [
  { key: "rank", label: "Rank", width: 70, render: (row) => row.rank, sort: (row) => row.rank, number: true },
  { key: "status", label: "Status", render: (row) => <State value={row.status} />, sort: (row) => row.status },
  { key: "pid", label: "PID", width: 90, number: true, render: (row) => row.pid, sort: (row) => row.pid },
  { key: "node", label: "Node", width: 130, hide: "wide", render: (row) => format.shortId(row.node) },
];

function metrics(row: TrainRun["checkpoints"][number]): string {
  return Object.entries(row.metrics)
    .map(([name, value]) => `${name} ${format.measure(value)}`)
    .join(", ");
}

const CHECKPOINT_COLUMNS: Column<TrainRun["checkpoints"][number]>[] = [
  {
    key: "iteration",
    label: "Iteration",
    width: 84,
    number: true,
    render: (row) => row.iteration ?? "–",
    sort: (row) => row.iteration,
  },
  { key: "metrics", label: "Metrics", render: (row) => <span title={metrics(row)}>{metrics(row) || "–"}</span> },
  {
    key: "path",
    label: "Path",
    hide: "wide",
    render: (row) => (
      <span className="mono" title={row.path}>
        {row.path}
      </span>
    ),
    sort: (row) => row.path,
  },
];
