import { Since } from "../components/basics";
import type { Column } from "../components/DataTable";
import { TablePage } from "../components/TablePage";
import * as format from "../format";
import { Timeline } from "../timeline/Timeline";
import type { Row } from "../types";
import { idColumn, nameColumn, plainColumn, stateColumn } from "./tables";

const taskName = (row: Row) => String(row.name || row.func_or_class_name);
const seconds = (value: unknown) => (typeof value === "number" && value > 0 ? value / 1000 : null);

const COLUMNS: Column<Row>[] = [
  nameColumn("name", "tasks", "task_id", "Task"),
  stateColumn("state", "task_id", taskName, 240),
  plainColumn("type", { width: 130, hide: "widest", render: (row) => format.words(String(row.type)) }),
  plainColumn("worker_pid", { width: 84, number: true, label: "PID", hide: "wide" }),
  {
    key: "start_time_ms",
    label: "Started",
    width: 96,
    hide: "wide",
    render: (row) => format.clock(seconds(row.start_time_ms)),
    sort: (row) => row.start_time_ms as number | null,
  },
  {
    key: "duration",
    label: "Duration",
    width: 100,
    number: true,
    hide: "wide",
    render: (row) => <Since time={seconds(row.start_time_ms)} until={seconds(row.end_time_ms)} />,
    sort: (row) => (seconds(row.end_time_ms) ?? Infinity) - (seconds(row.start_time_ms) ?? Infinity),
  },
  plainColumn("error_type", { width: 170, hide: "widest", label: "Error" }),
  idColumn("task_id", "tasks"),
];

export default function Tasks() {
  return (
    <TablePage
      name="Tasks"
      kind="tasks"
      noun="task"
      idColumn="task_id"
      columns={COLUMNS}
      nameOf={taskName}
      filters={[
        { label: "All", filters: [] },
        { label: "Waiting", filters: ["state!=RUNNING", "state!=FINISHED", "state!=FAILED"] },
        { label: "Running", filters: ["state=RUNNING"] },
        { label: "Finished", filters: ["state=FINISHED"] },
        { label: "Failed", filters: ["state=FAILED"] },
      ]}
      action={{
        label: "Cancel",
        question: "Cancel this task?",
        path: (id) => `/actions/tasks/${id}/cancel`,
        allowed: (row) => row.state !== "FINISHED" && row.state !== "FAILED",
      }}
      above={(open) => <Timeline onOpen={open} />}
      empty="No task has been submitted yet. Decorate a function and call it:"
      code={"@skate.remote\ndef square(x):\n    return x * x\n\nskate.get(square.remote(4))"}
    />
  );
}
