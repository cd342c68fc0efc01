// A dense table whose columns keep their widths when rows change.

import { useMemo, useState, type ReactNode } from "react";

export interface Column<R> {
  key: string;
  label: string;
  /** What the column means, if its label is not enough. */
  about?: string;
  render: (row: R) => ReactNode;
  /** The value to sort by; without it the column cannot be sorted. */
  sort?: (row: R) => string | number | null | undefined;
  number?: boolean;
  /** The width in pixels; columns without one share the rest. */
  width?: number;
  /** Hidden in a table narrower than 420 ("narrow"), 640 ("wide"), 900 ("wider") or 1150 ("widest") pixels. */
  hide?: "narrow" | "wide" | "wider" | "widest";
}

interface Props<R> {
  label: string;
  columns: Column<R>[];
  rows: R[];
  rowKey: (row: R) => string;
  onOpen?: (row: R) => void;
  selected?: string | null;
}

interface Order {
  key: string;
  descending: boolean;
}

export function DataTable<R>({ label, columns, rows, rowKey, onOpen, selected }: Props<R>) {
  const [order, setOrder] = useState<Order | null>(null);
  const sorted = useMemo(() => arrange(rows, columns, order), [rows, columns, order]);
  const width = columns.reduce((sum, column) => sum + (column.hide ? 0 : (column.width ?? 100)), 0);
  return (
    <div className="table-scroll" tabIndex={0} role="region" aria-label={label}>
      <table className="data" style={{ minWidth: Math.min(width, 900) }}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th
                key={column.key}
                scope="col"
                className={classes(column)}
                title={column.about}
                style={{ width: column.width }}
                aria-sort={order?.key === column.key ? (order.descending ? "descending" : "ascending") : undefined}
              >
                {column.sort ? (
                  <button type="button" onClick={() => setOrder((now) => next(now, column))}>
                    {column.label}
                    {order?.key === column.key ? (order.descending ? " ↓" : " ↑") : ""}
                  </button>
                ) : (
                  column.label
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => {
            const key = rowKey(row);
            return (
              <tr
                key={key}
                data-open={onOpen ? "" : undefined}
                aria-selected={selected === key ? true : undefined}
                onClick={onOpen && (() => onOpen(row))}
              >
                {columns.map((column) => (
                  <td key={column.key} className={classes(column)}>
                    {column.render(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function classes<R>(column: Column<R>): string | undefined {
  return [column.number && "number", column.hide && `only-${column.hide}`].filter(Boolean).join(" ") || undefined;
}

function next<R>(order: Order | null, column: Column<R>): Order | null {
  const first = Boolean(column.number); // numbers: the largest first
  if (order?.key !== column.key) return { key: column.key, descending: first };
  return order.descending === first ? { key: column.key, descending: !first } : null;
}

function arrange<R>(rows: R[], columns: Column<R>[], order: Order | null): R[] {
  const value = columns.find((column) => column.key === order?.key)?.sort;
  if (!order || !value) return rows;
  const sign = order.descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [left, right] = [value(one), value(other)];
    if (left == null || right == null) return left == null ? (right == null ? 0 : 1) : -1; // unknown values last
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right), "en", { numeric: true });
  });
}
