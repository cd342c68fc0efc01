import { Drawer } from "@mantine/core";
import { useCallback, useMemo, useState } from "react";

import { Parallel, type Dimension, type ParallelLine } from "../charts/charts";
import { Empty, Panel, Since, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { RunsPage } from "../components/RunsPage";
import * as format from "../format";
import type { Trial, TuneRun, Value } from "../types";

export default function TuneRuns() {
  return (
    <RunsPage<TuneRun>
      name="Tune experiments"
      kind="tune"
      empty="No experiment has run in this session. A tuner tries configurations and compares what they report:"
      code={
        'Tuner(trainable, param_space={"lr": tune.loguniform(1e-4, 1e-1)},\n      tune_config=TuneConfig(metric="loss", mode="min", num_samples=20)).fit()'
      }
    >
      {(run) => <Detail run={run} />}
    </RunsPage>
  );
}

function Detail({ run }: { run: TuneRun }) {
  const [opened, setOpened] = useState<string | null>(null);
  const open = useCallback((id: string) => setOpened(id), []);
  const best = run.trials.find((trial) => trial.id === run.best);
  const by = (wanted: string) => run.trials.filter((trial) => trial.status === wanted).length;
  const trial = run.trials.find((each) => each.id === opened);
  const columns = useMemo(() => trialColumns(run), [run]);
  return (
    <>
      <Stats
        values={[
          ["Status", <State key="status" value={run.status} />],
          ["Trials", format.count(run.trials.length)],
          ["Running", format.count(by("RUNNING"))],
          ["Failed", format.count(by("ERROR") + by("FAILED"))],
          [
            run.metric ? `Best ${run.metric}` : "Best",
            best && run.metric ? format.measure(best.metrics[run.metric]) : "–",
            run.mode ?? undefined,
          ],
          ["Duration", <Since key="duration" time={run.started} until={run.ended} />],
        ]}
      />
      {best && (
        <Panel
          name="Best trial"
          about={best.id}
          tools={
            <button type="button" className="link" onClick={() => open(best.id)}>
              Details
            </button>
          }
        >
          <code style={{ overflowWrap: "anywhere" }}>
            {Object.entries(best.config)
              .map(([name, value]) => `${name}=${format.measure(value)}`)
              .join("  ")}
          </code>
        </Panel>
      )}
      <Panel
        name="Parallel coordinates"
        about={run.trials.length > 1 && about(run)}
      >
        <Coordinates run={run} onOpen={open} />
      </Panel>
      <Panel name="Trials" about={format.count(run.trials.length)} bare>
        {run.trials.length > 0 ? (
          <DataTable
            label="Trials"
            columns={columns}
            rows={run.trials.slice(-500)}
            rowKey={(row) => row.id}
            onOpen={(row) => open(row.id)}
          />
        ) : (
          <Empty>No trial has started yet.</Empty>
        )}
      </Panel>
      <Drawer
        opened={trial !== undefined}
        onClose={() => setOpened(null)}
        position="right"
        size="md"
        title="Trial"
        closeButtonProps={{ "aria-label": "Close" }}
      >
        {trial && <TrialDetails trial={trial} />}
      </Drawer>
    </>
  );
}

function about(run: TuneRun): string {
  const failed = run.trials.some(hasFailed) ? "; dashed ones failed" : "";
  return `each line is a trial: the stronger, the better; the thick one is the best${failed}`;
}

function hasFailed(trial: Trial): boolean {
  return trial.status === "ERROR" || trial.status === "FAILED";
}

function trialColumns(run: TuneRun): Column<Trial>[] {
  const { metric } = run;
  return [
    {
      key: "id",
      label: "Trial",
      width: 124,
      render: (row) => (
        <button type="button" className="link ellipsis mono">
          {row.id}
        </button>
      ),
      sort: (row) => row.id,
    },
    {
      key: "status",
      label: "Status",
      width: 140,
      render: (row) => (
        <>
          <State value={row.status} />
          {row.id === run.best && <strong> best</strong>}
        </>
      ),
      sort: (row) => row.status,
    },
    ...(metric
      ? [
          {
            key: "metric",
            label: metric,
            width: 90,
            number: true,
            render: (row: Trial) => format.measure(row.metrics[metric]),
            sort: (row: Trial) => numeric(row.metrics[metric]),
          },
        ]
      : []),
    {
      key: "iteration",
      label: "Iteration",
      width: 84,
      number: true,
      hide: "wide",
      render: (row) => format.count(row.iteration),
      sort: (row) => row.iteration,
    },
    ...run.parameters.slice(0, 6).map((name): Column<Trial> => ({
      key: `config ${name}`,
      label: name,
      number: run.trials.every((trial) => typeof trial.config[name] !== "string"),
      hide: "wide",
      render: (row) => <span title={format.plain(row.config[name])}>{format.measure(row.config[name])}</span>,
      sort: (row) => {
        const value = row.config[name];
        return typeof value === "number" ? value : format.plain(value);
      },
    })),
  ];
}

function numeric(value: Value | undefined): number | null {
  return typeof value === "number" ? value : null;
}

function Coordinates({ run, onOpen }: { run: TuneRun; onOpen: (id: string) => void }) {
  const { dimensions, lines } = useMemo(() => coordinates(run), [run]);
  if (lines.length < 2 || dimensions.length < 2) return <Empty>Two trials that have reported are needed.</Empty>;
  return (
    <Parallel
      label={`Parallel coordinates of ${lines.length} trials`}
      dimensions={dimensions}
      lines={lines}
      onOpen={onOpen}
    />
  );
}

function coordinates(run: TuneRun): { dimensions: Dimension[]; lines: ParallelLine[] } {
  const shown = run.trials.slice(-300);
  const parameters = run.parameters.slice(0, 7);
  const axes = parameters.map((name) =>
    dimension(
      name,
      shown.map((trial) => trial.config[name]),
    ),
  );
  if (run.metric)
    axes.push(
      dimension(
        run.metric,
        shown.map((trial) => trial.metrics[run.metric ?? ""]),
      ),
    );
  const ranks = ranksOf(shown, run);
  const lines = shown.map((trial) => ({
    id: trial.id,
    values: [...parameters.map((name) => trial.config[name]), ...(run.metric ? [trial.metrics[run.metric]] : [])].map(
      (value, index) => (axes[index]?.names ? format.plain(value) : numeric(value)),
    ),
    best: trial.id === run.best,
    failed: hasFailed(trial),
    rank: ranks.get(trial.id) ?? null,
  }));
  return { dimensions: axes, lines: lines.filter((line) => line.values.some((value) => value !== null)) };
}

/** Return the place of each trial that has a result among the others: 0 is the best, 1 the worst. */
function ranksOf(trials: Trial[], { metric, mode }: TuneRun): Map<string, number> {
  if (metric === null) return new Map();
  const sign = mode === "max" ? -1 : 1;
  const known = trials
    .map((trial) => ({ id: trial.id, value: numeric(trial.metrics[metric]) }))
    .filter((each): each is { id: string; value: number } => each.value !== null)
    .sort((one, other) => sign * (one.value - other.value));
  return new Map(known.map(({ id }, index) => [id, index / Math.max(1, known.length - 1)]));
}

function dimension(name: string, values: (Value | undefined)[]): Dimension {
  const known = values.filter((value) => value != null);
  if (known.some((value) => typeof value !== "number")) {
    return { name, names: [...new Set(known.map((value) => format.plain(value)))].sort() };
  }
  const numbers = known as number[];
  const distinct = [...new Set(numbers)].sort((one, other) => one - other);
  // A few choices, such as batch sizes, are easier to read as names.
  if (distinct.length <= 6 && numbers.length > 2 * distinct.length) return { name, names: distinct.map(format.plain) };
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  return { name, log: low > 0 && high / low > 50 };
}

function TrialDetails({ trial }: { trial: Trial }) {
  return (
    <>
      <p style={{ marginTop: 0 }}>
        <strong className="mono">{trial.id}</strong> <State value={trial.status} />
      </p>
      {trial.error && (
        <pre className="block error-text" style={{ marginBottom: 14 }}>
          {trial.error}
        </pre>
      )}
      <h2>Config</h2>
      <Values values={trial.config} />
      <h2>Metrics</h2>
      <Values values={trial.metrics} />
    </>
  );
}

function Values({ values }: { values: Record<string, Value> }) {
  return (
    <dl className="facts" style={{ margin: "6px 0 16px" }}>
      {Object.entries(values).map(([name, value]) => (
        <div key={name} style={{ display: "contents" }}>
          <dt style={{ overflowWrap: "anywhere" }}>{name}</dt>
          <dd>{format.measure(value)}</dd>
        </div>
      ))}
    </dl>
  );
}
