from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from skate.serve import context
from skate.serve._runtime.ids import DeploymentID, ReplicaID
from skate.serve.context import ReplicaContext, _RequestContext
from skate.serve.metrics import Counter, Gauge, Histogram
from skate.util import metrics
from skate.util._metrics_store import Store
from skate.util.metrics import prometheus_text

TAGS = {"deployment": "Model", "replica": "abc", "application": "shop"}
REPLICA = ReplicaContext(ReplicaID("abc", DeploymentID("Model", "shop")), None)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test a store of its own, without a session."""
    fresh = Store(lambda: None)
    monkeypatch.setattr(metrics, "store", fresh)
    yield
    fresh.detach()


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_process_replica", REPLICA)


@pytest.fixture
def request_on_route() -> Iterator[None]:
    token = context._request.set(_RequestContext(route="/buy"))
    yield
    context._request.reset(token)


@pytest.mark.usefixtures("replica")
class TestInAReplica:
    def test_a_record_has_the_tags_of_the_replica(self) -> None:
        counter = Counter("sold", "Things sold.", tag_keys=("kind",))
        assert counter.info["tag_keys"] == (*TAGS, "kind")
        assert counter.info["default_tags"] == TAGS
        counter.inc(2, {"kind": "book"})
        assert (
            'skate_sold_total{application="shop",deployment="Model",kind="book",replica="abc"} 2.0'
            in prometheus_text()
        )

    def test_gauges_and_histograms_have_them_too(self) -> None:
        Gauge("stock").set(3)
        Histogram("price", boundaries=[1, 10], tag_keys=("kind",)).observe(5, {"kind": "pen"})
        text = prometheus_text()
        assert 'skate_stock{application="shop",deployment="Model"' in text
        assert 'skate_price_count{application="shop",deployment="Model",kind="pen",replica="abc"} 1' in text

    def test_defaults_of_your_own_leave_them_there(self) -> None:
        counter = Counter("sold", tag_keys=("kind",)).set_default_tags({"kind": "book"})
        assert counter.info["default_tags"] == {"kind": "book", **TAGS}

    @pytest.mark.usefixtures("request_on_route")
    def test_a_declared_route_is_that_of_the_request(self) -> None:
        gauge = Gauge("load", tag_keys=("route",))
        gauge.set(1)
        gauge.set(2, {"route": "/own"})
        text = prometheus_text()
        assert 'route="/buy"' in text
        assert 'route="/own"' in text

    def test_a_declared_route_needs_a_request_or_a_value(self) -> None:
        with pytest.raises(ValueError, match=r"Missing value for tag key\(s\): route"):
            Counter("load", tag_keys=("route",)).inc()

    @pytest.mark.parametrize("key", TAGS)
    def test_the_tags_of_serve_are_reserved(self, key: str) -> None:
        with pytest.raises(ValueError, match=f"The tag '{key}' is reserved"):
            Counter("sold", tag_keys=(key,))
        with pytest.raises(ValueError, match=f"The tag '{key}' is reserved"):
            Counter("sold").set_default_tags({key: "mine"})


def test_outside_of_a_replica_they_are_plain_metrics() -> None:
    counter = Counter("sold", tag_keys=("kind",))
    counter.inc(tags={"kind": "book"})
    assert counter.info["default_tags"] == {}
    assert 'skate_sold_total{kind="book"} 1.0' in prometheus_text()


@pytest.mark.parametrize(
    "metric", [Counter("c", tag_keys=("kind",)), Histogram("h", boundaries=[1.0], tag_keys=("kind",))]
)
def test_a_metric_that_travels_to_a_replica_gets_its_tags_there(
    metric: Counter | Histogram, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(metric.set_default_tags({"kind": "book"}))
    monkeypatch.setattr(context, "_process_replica", REPLICA)
    there = pickle.loads(data)
    assert there.info["default_tags"] == {"kind": "book", **TAGS}
    data = pickle.dumps(there)
    monkeypatch.setattr(context, "_process_replica", None)
    assert pickle.loads(data).info == metric.info
