// A page with one table of the state API: search, filters, more rows, and details of a row.

import { Button } from "@mantine/core";
import { useState, type ReactNode } from "react";
import { useLocation, useSearchParams } from "wouter";

import { addressOf, useOpenId } from "../addresses";
import * as format from "../format";
import { pathOf, useTopic } from "../live";
import type { Row, Table } from "../types";
import { Empty, Page, Panel, Pending, Search } from "./basics";
import { DataTable, type Column } from "./DataTable";
import { Details, type Action } from "./Details";

export interface Filter {
  label: string;
  filters: string[];
}

interface Props {
  name: string;
  kind: string;
  noun: string;
  idColumn: string;
  columns: Column<Row>[];
  filters?: Filter[];
  nameOf: (row: Row) => string;
  keyOf?: (row: Row) => string;
  /** The id that opens the details of a row; the value of `idColumn` unless given. */
  openOf?: (row: Row) => string;
  state?: string;
  action?: Action;
  empty: ReactNode;
  code: string;
  above?: (open: (id: string) => void) => ReactNode;
}

const LIMITS = [100, 500, 2000];

export function TablePage(props: Props) {
  const { name, kind, noun, idColumn, columns, filters = [], nameOf, action, state } = props;
  const [, navigate] = useLocation();
  const id = useOpenId();
  const [search, setSearch] = useState("");
  const [query] = useSearchParams();
  const asked = filters.findIndex((each) => each.label.toLowerCase() === query.get("show")); // in links to the page
  const [chosen, setChosen] = useState(Math.max(0, asked));
  const [limit, setLimit] = useState(LIMITS[0] ?? 100);
  const filter = filters[chosen];
  const topic = useTopic<Table>(pathOf(`/state/${kind}`, { limit, filter: filter?.filters, search }));
  const open = (opened: string) => navigate(addressOf(kind, opened));
  const keyOf = props.keyOf ?? ((row: Row) => `${String(row[idColumn])} ${String(row.attempt_number ?? "")}`);
  const isFiltered = search !== "" || (filter !== undefined && filter.filters.length > 0);
  return (
    <Page name={name} tools={<Search label={`Search ${name.toLowerCase()}`} value={search} onChange={setSearch} />}>
      {props.above?.(open)}
      <Panel
        name={props.above ? `All ${name.toLowerCase()}` : name}
        about={topic.data && `${format.count(topic.data.total)}${isFiltered ? " found" : ""}`}
        tools={filters.length > 0 && <Chips filters={filters} chosen={chosen} onChoose={setChosen} />}
        bare
      >
        <Pending topic={topic} what={name} />
        {topic.data && topic.data.rows.length > 0 && (
          <DataTable
            label={name}
            columns={columns}
            rows={topic.data.rows}
            rowKey={keyOf}
            onOpen={(row) => open(props.openOf?.(row) ?? String(row[idColumn]))}
          />
        )}
        {topic.data?.rows.length === 0 &&
          (isFiltered ? (
            <Empty>No {noun} matches the search and the filter.</Empty>
          ) : (
            <Empty code={props.code}>{props.empty}</Empty>
          ))}
        {topic.data && <Foot table={topic.data} nouns={`${noun}s`} limit={limit} onLimit={setLimit} />}
      </Panel>
      <Details
        kind={kind}
        noun={noun}
        id={id}
        idOf={props.openOf ?? ((row) => String(row[idColumn]))}
        name={nameOf}
        state={state}
        action={action}
        onClose={() => navigate(`/${kind}`)}
      />
    </Page>
  );
}

function Chips({
  filters,
  chosen,
  onChoose,
}: {
  filters: Filter[];
  chosen: number;
  onChoose: (index: number) => void;
}) {
  return (
    <div className="chips" role="group" aria-label="Filter">
      {filters.map((filter, index) => (
        <button
          key={filter.label}
          type="button"
          className="chip"
          aria-pressed={chosen === index}
          onClick={() => onChoose(index)}
        >
          {filter.label}
        </button>
      ))}
    </div>
  );
}

interface FootProps {
  table: Table;
  nouns: string;
  limit: number;
  onLimit: (limit: number) => void;
}

function Foot({ table, nouns, limit, onLimit }: FootProps) {
  const more = LIMITS.find((each) => each > limit);
  const hidden = table.total - table.rows.length;
  if (hidden <= 0 && table.dropped <= 0) return null;
  return (
    <div className="table-foot">
      {hidden > 0 && <span>The newest {format.count(table.rows.length)} are shown.</span>}
      {hidden > 0 && more !== undefined && (
        <Button size="compact-xs" variant="default" onClick={() => onLimit(more)}>
          Show {format.count(Math.min(more, table.total))}
        </Button>
      )}
      {table.dropped > 0 && <span>{format.count(table.dropped)} older {nouns} are no longer kept.</span>}
    </div>
  );
}
