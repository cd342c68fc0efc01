import { useLayoutEffect, useMemo, useRef, useState } from "react";

import { Bar, Panel, Since, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { RunsPage } from "../components/RunsPage";
import * as format from "../format";
import type { DataRun, Operator } from "../types";

export default function DataRuns() {
  return (
    <RunsPage<DataRun>
      name="Data runs"
      kind="data"
      empty="No dataset has been executed yet. A dataset runs when its rows are asked for:"
      code={"dataset = skate.data.range(1_000_000).map_batches(lambda batch: batch)\ndataset.materialize()"}
    >
      {(run) => <Detail run={run} />}
    </RunsPage>
  );
}

function Detail({ run }: { run: DataRun }) {
  const running = run.operators.filter((operator) => operator.state === "running");
  const last = run.operators.at(-1);
  const progress = run.total_rows ? run.rows / run.total_rows : null;
  return (
    <>
      <Stats
        values={[
          ["Status", <State key="status" value={run.status} />],
          ["Rows out", format.count(run.rows), run.total_rows ? `of ${format.count(run.total_rows)}` : undefined],
          ["Rate", format.rate(last?.rate, "rows")],
          ["Operators running", format.count(running.length), `of ${run.operators.length}`],
          ["Tasks", format.count(run.operators.reduce((sum, operator) => sum + operator.tasks_active, 0))],
          ["Duration", <Since key="duration" time={run.started} until={run.ended} />],
        ]}
      />
      {progress !== null && <Bar share={progress} label="Rows produced" />}
      <Panel name="Plan" about={run.name}>
        <Plan operators={run.operators} />
      </Panel>
      <Panel name="Operators" bare>
        <DataTable label="Operators" columns={COLUMNS} rows={run.operators} rowKey={(operator) => operator.id} />
      </Panel>
    </>
  );
}

const COLUMNS: Column<Operator>[] = [
  { key: "name", label: "Operator", render: (row) => <span title={row.name}>{row.name}</span> },
  { key: "state", label: "State", width: 104, render: (row) => <State value={row.state} /> },
  { key: "rows_in", label: "Rows in", width: 90, number: true, hide: "wider", render: (row) => format.count(row.rows_in) },
  { key: "rows_out", label: "Rows out", width: 90, number: true, render: (row) => format.count(row.rows_out) },
  { key: "bytes_out", label: "Bytes out", width: 96, number: true, hide: "wide", render: (row) => format.bytes(row.bytes_out) },
  { key: "rate", label: "Rows/s", width: 90, number: true, render: (row) => format.rate(row.rate).replace("/s", "") },
  { key: "tasks", label: "Tasks", width: 66, number: true, hide: "wide", render: (row) => format.count(row.tasks_active) },
  { key: "queue", label: "Queued", width: 76, number: true, hide: "wide", render: (row) => format.count(row.blocks_queued) },
  {
    key: "backpressure",
    label: "Backpressure",
    hide: "wide",
    render: (row) => <span title={row.backpressure ?? undefined}>{row.backpressure ?? "–"}</span>,
  },
];

const WIDTH = 208;
const HEIGHT = 112;
const SPACE = 44;

interface Placed {
  operator: Operator;
  x: number;
  y: number;
}

/** Put operators into layers by their longest way from a source, side by side or, where it is narrow, one below the other. */
function place(operators: Operator[], width: number): { placed: Placed[]; height: number; vertical: boolean } {
  const byId = new Map(operators.map((operator) => [operator.id, operator]));
  const depths = new Map<string, number>();
  const depthOf = (id: string, path: string[] = []): number => {
    const known = depths.get(id);
    if (known !== undefined) return known;
    const inputs = (byId.get(id)?.inputs ?? []).filter((input) => byId.has(input) && !path.includes(input));
    const depth = inputs.length === 0 ? 0 : 1 + Math.max(...inputs.map((input) => depthOf(input, [...path, id])));
    depths.set(id, depth);
    return depth;
  };
  const layers: Operator[][] = [];
  for (const operator of operators) (layers[depthOf(operator.id)] ??= []).push(operator);
  const vertical = layers.length * (WIDTH + SPACE) - SPACE > width;
  const widest = Math.max(1, ...layers.map((layer) => layer.length));
  const placed = layers.flatMap((layer, depth) =>
    layer.map((operator, index) => {
      const across = (index + (widest - layer.length) / 2) * ((vertical ? WIDTH : HEIGHT) + 16);
      const along = depth * ((vertical ? HEIGHT : WIDTH) + (vertical ? 30 : SPACE));
      return vertical ? { operator, x: across, y: along } : { operator, x: along, y: across };
    }),
  );
  const height = Math.max(HEIGHT, ...placed.map(({ y }) => y + HEIGHT));
  return { placed, height: height + 2, vertical };
}

function Plan({ operators }: { operators: Operator[] }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const sizes = new ResizeObserver(() => setWidth(element.clientWidth));
    sizes.observe(element);
    setWidth(element.clientWidth);
    return () => sizes.disconnect();
  }, []);
  const { placed, height, vertical } = useMemo(() => place(operators, width), [operators, width]);
  const positions = new Map(placed.map((each) => [each.operator.id, each]));
  return (
    <div ref={box} className="plan" style={{ height, overflowX: "auto" }} tabIndex={0} role="group" aria-label="Plan of the dataset">
      <svg width="100%" height={height} aria-hidden="true">
        {placed.flatMap(({ operator, x, y }) =>
          operator.inputs.map((input) => {
            const from = positions.get(input);
            if (!from) return null;
            return <Edge key={`${input} ${operator.id}`} from={from} x={x} y={y} vertical={vertical} active={from.operator.state === "running"} />;
          }),
        )}
      </svg>
      {placed.map(({ operator, x, y }) => (
        <Box key={operator.id} operator={operator} x={x} y={y} />
      ))}
    </div>
  );
}

function Edge({ from, x, y, vertical, active }: { from: Placed; x: number; y: number; vertical: boolean; active: boolean }) {
  const [x1, y1] = vertical ? [from.x + WIDTH / 2, from.y + HEIGHT] : [from.x + WIDTH, from.y + HEIGHT / 2];
  const [x2, y2] = vertical ? [x + WIDTH / 2, y] : [x, y + HEIGHT / 2];
  const bend = vertical ? `C${x1},${(y1 + y2) / 2} ${x2},${(y1 + y2) / 2}` : `C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2}`;
  const color = active ? "var(--accent)" : "var(--idle)";
  const tip = vertical ? `M${x2 - 4},${y2 - 6}L${x2},${y2}L${x2 + 4},${y2 - 6}` : `M${x2 - 6},${y2 - 4}L${x2},${y2}L${x2 - 6},${y2 + 4}`;
  return <path d={`M${x1},${y1}${bend} ${x2},${y2}${tip}`} fill="none" stroke={color} strokeWidth={active ? 2 : 1.3} />;
}

function Box({ operator, x, y }: { operator: Operator; x: number; y: number }) {
  return (
    <div className="operator" data-state={operator.state} style={{ left: x, top: y, width: WIDTH, height: HEIGHT }}>
      <strong title={operator.name}>{operator.name}</strong>
      <div className="row">
        <State value={operator.state} />
        <b>{operator.state === "finished" ? `${format.count(operator.rows_out)} rows` : format.rate(operator.rate, "rows")}</b>
      </div>
      <div className="row">
        <span>{format.count(operator.tasks_active)} tasks</span>
        <span>{format.count(operator.blocks_queued)} blocks queued</span>
      </div>
      {operator.backpressure ? (
        <div className="note" title={operator.backpressure}>
          {operator.backpressure}
        </div>
      ) : (
        <div className="row">
          <span>{format.count(operator.rows_out)} rows</span>
          <span>{format.bytes(operator.bytes_out)}</span>
        </div>
      )}
    </div>
  );
}
