"""Resources: exact fixed-point amounts, and the accelerators of a grant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

UNIT = 10_000  # amounts are multiples of 1/10000, so that 0.1 + 0.2 - 0.3 is zero

Request = Mapping[str, int]


def to_units(resources: Mapping[str, float]) -> dict[str, int]:
    """Return amounts as fixed-point integers, without the zero ones."""
    return {name: round(amount * UNIT) for name, amount in resources.items() if amount}


def to_floats(units: Mapping[str, int]) -> dict[str, float]:
    """Return fixed-point amounts as plain numbers."""
    return {name: amount / UNIT for name, amount in units.items()}


class Grant:
    """Resources taken from a pool: amounts, and shares of numbered devices."""

    __slots__ = ("amounts", "devices", "lent", "pool")

    def __init__(self, pool: Pool, amounts: Request, devices: dict[str, list[tuple[str, int]]]) -> None:
        self.pool = pool
        self.amounts = amounts
        self.devices = devices
        self.lent = False  # whether its CPUs are lent while the holder is blocked

    def device_ids(self) -> dict[str, list[str]]:
        """Return the devices of each kind that this grant may use."""
        return {kind: [device for device, _ in shares] for kind, shares in self.devices.items()}

    def lend_cpus(self) -> None:
        """Lend the CPUs of this grant to others while its holder is blocked."""
        cpus = self.amounts.get("CPU", 0)
        if cpus and not self.lent:
            self.lent = True
            self.pool.available["CPU"] += cpus

    def regain_cpus(self) -> None:
        """Take lent CPUs back, even if the pool is overcommitted for a moment."""
        if self.lent:
            self.lent = False
            self.pool.available["CPU"] -= self.amounts["CPU"]

    def give_back(self) -> None:
        """Return everything to the pool."""
        self.pool.give(self)


class Pool:
    """A set of resources that grants are taken from."""

    __slots__ = ("available", "devices", "total")

    def __init__(self, total: Request, devices: Mapping[str, Iterable[str]] | None = None) -> None:
        self.total = dict(total)
        self.available = dict(total)
        self.devices: dict[str, dict[str, int]] = {}
        for kind, ids in (devices or {}).items():
            self.devices[kind] = dict.fromkeys(ids, UNIT)

    def could_fit(self, request: Request) -> bool:
        """Return whether the request would fit into the unused pool."""
        total = self.total
        return all(total.get(name, 0) >= amount for name, amount in request.items())

    def fits(self, request: Request) -> bool:
        """Return whether the request fits now."""
        available = self.available
        for name, amount in request.items():
            if available.get(name, 0) < amount:
                return False
            if name in self.devices and not self._pick(name, amount):
                return False
        return True

    def take(self, request: Request) -> Grant:
        """Take the resources of a request that fits."""
        available = self.available
        devices = {}
        for name, amount in request.items():
            available[name] -= amount
            if name in self.devices:
                devices[name] = shares = self._pick(name, amount)
                for device, share in shares:
                    self.devices[name][device] -= share
        return Grant(self, request, devices)

    def give(self, grant: Grant) -> None:
        """Return a grant's resources."""
        available = self.available
        for name, amount in grant.amounts.items():
            if name == "CPU" and grant.lent:
                continue
            available[name] += amount
        for kind, shares in grant.devices.items():
            for device, share in shares:
                self.devices[kind][device] += share
        grant.lent = False

    def _pick(self, kind: str, amount: int) -> list[tuple[str, int]]:
        """Choose devices: free ones, or for a fraction the fullest one that it fits on."""
        free = self.devices[kind]
        if amount >= UNIT:
            whole = [device for device, left in free.items() if left == UNIT]
            count = -(-amount // UNIT)
            return [(device, UNIT) for device in whole[:count]] if len(whole) >= count else []
        best = min(((left, device) for device, left in free.items() if left >= amount), default=None)
        return [] if best is None else [(best[1], amount)]
