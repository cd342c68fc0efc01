import { Histogram } from "../charts/charts";
import { Empty, Page, Panel, Pending, State, Stats } from "../components/basics";
import { DataTable, type Column } from "../components/DataTable";
import { LogLink } from "../components/LogLink";
import { WhyButton } from "../components/Why";
import * as format from "../format";
import { useTopic } from "../live";
import type { Deployment, Serve as Data } from "../types";

const CODE =
  '@serve.deployment\nclass Hello:\n    def __call__(self, request):\n        return "hello"\n\nserve.run(Hello.bind())';

export default function Serve() {
  const topic = useTopic<Data>("/state/serve");
  const { data } = topic;
  const deployments = data?.applications.flatMap((application) => application.deployments) ?? [];
  return (
    <Page
      name="Serve"
      tools={
        data?.http && (
          <a href={data.http} target="_blank" rel="noreferrer" className="mono">
            {data.http}
          </a>
        )
      }
    >
      {!data && (
        <Panel name="Applications">
          <Pending topic={topic} what="Serve" />
        </Panel>
      )}
      {data && data.applications.length === 0 && (
        <Panel name="Applications">
          <Empty code={CODE}>No application is deployed:</Empty>
        </Panel>
      )}
      {data && data.applications.length > 0 && (
        <>
          <Stats
            values={[
              ["Applications", format.count(data.applications.length)],
              ["Deployments", format.count(deployments.length)],
              ["Replicas", format.count(deployments.reduce((sum, each) => sum + each.replicas.length, 0))],
              ["Deployment calls", format.rate(total(deployments, "requests_per_s"))],
              ["Errors", format.rate(total(deployments, "errors_per_s"))],
              ["Queued", format.count(total(deployments, "queued"))],
              ["Proxies", format.count(data.proxies.length)],
            ]}
          />
          {data.applications.map((application) => (
            <ApplicationPanels key={application.name} application={application} />
          ))}
        </>
      )}
    </Page>
  );
}

function total(deployments: Deployment[], field: "requests_per_s" | "errors_per_s" | "queued"): number | null {
  const known = deployments.map((each) => each[field]).filter((value) => value !== null);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) : null;
}

type Application = Data["applications"][number];

function ApplicationPanels({ application }: { application: Application }) {
  return (
    <>
      <Panel
        name={application.name}
        about={
          <>
            <State value={application.status} /> <span className="mono">{application.route}</span>
          </>
        }
        bare
      >
        {application.message && <div className="panel-body error-text">{application.message}</div>}
        <DataTable
          label={`Deployments of ${application.name}`}
          columns={DEPLOYMENT_COLUMNS}
          rows={application.deployments}
          rowKey={(row) => row.name}
        />
      </Panel>
      <div className="grid">
        {application.deployments.map((deployment) => (
          <Latency key={deployment.name} deployment={deployment} application={application} />
        ))}
      </div>
    </>
  );
}

function ready(deployment: Deployment): number {
  return deployment.replicas.filter((replica) => replica.state === "RUNNING").length;
}

const DEPLOYMENT_COLUMNS: Column<Deployment>[] = [
  {
    key: "name",
    label: "Deployment",
    render: (row) => <span title={row.name}>{row.name}</span>,
    sort: (row) => row.name,
  },
  {
    key: "status",
    label: "Status",
    width: 130,
    render: (row) => (
      <span title={row.message}>
        <State value={row.status} />
      </span>
    ),
    sort: (row) => row.status,
  },
  {
    key: "replicas",
    label: "Replicas",
    width: 84,
    number: true,
    render: (row) => `${ready(row)} of ${row.target}`,
    sort: (row) => row.replicas.length,
  },
  {
    key: "requests",
    label: "Requests",
    width: 100,
    number: true,
    hide: "wide",
    render: (row) => format.rate(row.requests_per_s),
    sort: (row) => row.requests_per_s,
  },
  {
    key: "errors",
    label: "Errors",
    width: 84,
    number: true,
    hide: "wide",
    render: (row) => format.rate(row.errors_per_s),
    sort: (row) => row.errors_per_s,
  },
  {
    key: "running",
    label: "Running",
    width: 84,
    number: true,
    hide: "wide",
    render: (row) => format.count(row.running),
    sort: (row) => row.running,
  },
  {
    key: "queued",
    label: "Queued",
    width: 84,
    number: true,
    hide: "wide",
    render: (row) => format.count(row.queued),
    sort: (row) => row.queued,
  },
  {
    key: "p50",
    label: "p50",
    width: 84,
    number: true,
    hide: "wider",
    render: (row) => format.milliseconds(row.latency?.p50),
    sort: (row) => row.latency?.p50,
  },
  {
    key: "p99",
    label: "p99",
    width: 84,
    number: true,
    hide: "wider",
    render: (row) => format.milliseconds(row.latency?.p99),
    sort: (row) => row.latency?.p99,
  },
];

function Latency({ deployment, application }: { deployment: Deployment; application: Application }) {
  const { latency, replicas } = deployment;
  const isKnown = application.message.includes(deployment.message); // it stands above
  const requests = latency?.counts.reduce((sum, each) => sum + each, 0) ?? 0;
  return (
    <Panel
      name={deployment.name}
      about={
        latency && requests > 0
          ? `latency p50 ${format.milliseconds(latency.p50)} · p90 ${format.milliseconds(latency.p90)} · p99 ${format.milliseconds(latency.p99)}`
          : "latency"
      }
    >
      {deployment.message && deployment.status !== "HEALTHY" && !isKnown && (
        <p style={{ marginTop: 0 }}>{deployment.message}</p>
      )}
      {latency && requests > 0 ? (
        <Histogram
          label={`Latency of ${deployment.name}: half of ${requests} requests took ${format.milliseconds(latency.p50)} or less`}
          bounds={latency.buckets_ms}
          counts={latency.counts}
          unit={format.milliseconds}
        />
      ) : (
        <Empty>No request has been answered yet.</Empty>
      )}
      <div
        className="chips"
        style={{ marginTop: 8, gap: "4px 14px" }}
        role="group"
        aria-label={`Replicas of ${application.name} ${deployment.name}`}
      >
        {replicas.map((replica) => (
          <span key={replica.id} className="nowrap">
            <State value={replica.state} />{" "}
            <span className="muted" title={replica.id}>
              {replica.pid === null ? format.shortId(replica.id) : `PID ${replica.pid}`}
            </span>{" "}
            <LogLink isLog={(file) => file.name.endsWith(`_${replica.id}.log`)} />
            {format.isWaiting(replica.state) && (
              <WhyButton id={replica.id} name={`the replica of ${deployment.name}`} />
            )}
          </span>
        ))}
      </div>
    </Panel>
  );
}
