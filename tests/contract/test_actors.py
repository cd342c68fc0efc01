"""Actors: state, calls, order, handles and the end of their life."""

from __future__ import annotations

import os
from typing import Any

import pytest

import skate
from tests.contract.support import Counter, Signal, eventually

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
class Account:
    """Holds a balance."""

    currency = "EUR"

    def __init__(self, balance: int = 0) -> None:
        self.balance = balance

    def deposit(self, amount: int, *, times: int = 1) -> int:
        self.balance += amount * times
        return self.balance

    def read(self) -> int:
        return self.balance

    def split(self) -> tuple[int, int]:
        return self.balance // 2, self.balance - self.balance // 2

    def fail(self) -> None:
        raise ValueError("overdrawn")

    def pid(self) -> int:
        return os.getpid()

    @staticmethod
    def bank() -> str:
        return "static"

    @classmethod
    def kind(cls) -> str:
        return cls.currency

    @property
    def double(self) -> int:
        return 2 * self.balance


def test_an_actor_keeps_its_state_between_calls() -> None:
    account = Account.remote(10)
    account.deposit.remote(5)
    assert skate.get(account.read.remote()) == 15


def test_constructor_arguments_may_be_keywords() -> None:
    assert skate.get(Account.remote(balance=3).read.remote()) == 3


def test_method_arguments_may_be_keywords() -> None:
    assert skate.get(Account.remote().deposit.remote(2, times=3)) == 6


def test_two_actors_of_a_class_have_their_own_state() -> None:
    a, b = Account.remote(1), Account.remote(2)
    assert skate.get([a.read.remote(), b.read.remote()]) == [1, 2]


def test_calls_of_one_caller_run_in_order() -> None:
    account = Account.remote()
    assert skate.get([account.deposit.remote(1) for _ in range(100)]) == list(range(1, 101))


def test_calls_run_in_order_even_when_an_early_argument_is_late() -> None:
    signal = Signal.remote()

    @skate.remote
    def late() -> int:
        skate.get(signal.wait.remote())
        return 5

    account = Account.remote()
    first, second = account.deposit.remote(late.remote()), account.deposit.remote(1)
    signal.send.remote()
    assert skate.get([first, second]) == [5, 6]


def test_a_constructor_takes_refs() -> None:
    assert skate.get(Account.remote(skate.put(4)).read.remote()) == 4


def test_a_method_takes_refs_of_other_calls() -> None:
    a, b = Account.remote(1), Account.remote(2)
    assert skate.get(a.deposit.remote(b.read.remote())) == 3


def test_a_class_without_constructor_works() -> None:
    @skate.remote
    class Plain:
        def ping(self) -> str:
            return "pong"

    assert skate.get(Plain.remote().ping.remote()) == "pong"


def test_static_and_class_methods_can_be_called() -> None:
    account = Account.remote()
    assert skate.get([account.bank.remote(), account.kind.remote()]) == ["static", "EUR"]


def test_an_actor_inherits_methods() -> None:
    class Base:
        def hello(self) -> str:
            return f"hello from {self.name()}"

        def name(self) -> str:
            return "base"

    @skate.remote
    class Derived(Base):
        def name(self) -> str:
            return "derived"

    assert skate.get(Derived.remote().hello.remote()) == "hello from derived"


def test_a_method_calls_super() -> None:
    class Base:
        def __init__(self, x: int) -> None:
            self.x = x

    class Derived(Base):
        def __init__(self, x: int) -> None:
            super().__init__(x + 1)

        def value(self) -> int:
            return self.x

    assert skate.get(skate.remote(Derived).remote(1).value.remote()) == 2


def test_methods_call_each_other_directly() -> None:
    @skate.remote
    class Chain:
        def outer(self) -> int:
            return self.inner() + 1

        def inner(self) -> int:
            return 1

    assert skate.get(Chain.remote().outer.remote()) == 2


def test_a_closure_variable_reaches_the_actor() -> None:
    offset = 7

    @skate.remote
    class Closure:
        def value(self) -> int:
            return offset

    assert skate.get(Closure.remote().value.remote()) == 7


def test_calling_the_class_directly_says_to_use_remote() -> None:
    with pytest.raises(TypeError, match=r"\.remote\("):
        Account()


def test_calling_a_method_directly_says_to_use_remote() -> None:
    account = Account.remote()
    with pytest.raises(TypeError, match=r"\.remote\("):
        account.read()


def test_an_unknown_method_is_an_attribute_error() -> None:
    account = Account.remote()
    with pytest.raises(AttributeError, match="withdraw"):
        account.withdraw  # noqa: B018


def test_a_method_error_keeps_its_type_and_leaves_the_actor_alive() -> None:
    account = Account.remote(1)
    with pytest.raises(ValueError, match="overdrawn"):
        skate.get(account.fail.remote())
    assert skate.get(account.read.remote()) == 1


def test_method_options_set_num_returns() -> None:
    a, b = Account.remote(5).split.options(num_returns=2).remote()
    assert skate.get([a, b]) == [2, 3]


def test_the_method_decorator_sets_num_returns() -> None:
    @skate.remote
    class Pair:
        @skate.method(num_returns=2)
        def both(self) -> tuple[int, int]:
            return 1, 2

    a, b = Pair.remote().both.remote()
    assert skate.get([a, b]) == [1, 2]


def test_the_method_decorator_holds_for_a_handle_in_a_task() -> None:
    @skate.remote
    class Pair:
        @skate.method(num_returns=2)
        def both(self) -> tuple[int, int]:
            return 1, 2

    @skate.remote
    def use(pair: Any) -> list[int]:
        a, b = pair.both.remote()
        return skate.get([a, b])

    assert skate.get(use.remote(Pair.remote())) == [1, 2]


def test_class_options_override_the_decorator() -> None:
    @skate.remote(num_cpus=1)
    class Cpus:
        def assigned(self) -> float:
            return skate.get_runtime_context().get_assigned_resources()["CPU"]

    assert skate.get(Cpus.options(num_cpus=2).remote().assigned.remote()) == 2
    assert skate.get(Cpus.remote().assigned.remote()) == 1


def test_a_handle_passed_to_a_task_reaches_the_same_actor() -> None:
    @skate.remote
    def deposit(account: Any) -> None:
        skate.get(account.deposit.remote(1))

    account = Account.remote()
    skate.get([deposit.remote(account) for _ in range(3)])
    assert skate.get(account.read.remote()) == 3


def test_a_handle_passed_to_an_actor_reaches_the_same_actor() -> None:
    @skate.remote
    class Client:
        def __init__(self, account: Any) -> None:
            self.account = account

        def deposit(self) -> int:
            return skate.get(self.account.deposit.remote(1))

    account = Account.remote()
    clients = [Client.remote(account) for _ in range(2)]
    skate.get([client.deposit.remote() for client in clients])
    assert skate.get(account.read.remote()) == 2


def test_a_handle_nested_in_a_container_works() -> None:
    @skate.remote
    def use(handles: dict[str, Any]) -> int:
        return skate.get(handles["a"].deposit.remote(2))

    assert skate.get(use.remote({"a": Account.remote(1)})) == 3


def test_a_handle_in_a_closure_works() -> None:
    account = Account.remote(1)

    @skate.remote
    def use() -> int:
        return skate.get(account.read.remote())

    assert skate.get(use.remote()) == 1


def test_a_task_returns_a_handle() -> None:
    @skate.remote
    def create() -> Any:
        return Account.remote(9)

    account = skate.get(create.remote())
    assert skate.get(account.read.remote()) == 9


def test_an_actor_creates_actors() -> None:
    @skate.remote
    class Parent:
        def __init__(self) -> None:
            self.children = [Account.remote(i) for i in range(2)]

        def total(self) -> int:
            return sum(skate.get([child.read.remote() for child in self.children]))

    assert skate.get(Parent.remote().total.remote()) == 1


def test_an_actor_passes_its_own_handle() -> None:
    @skate.remote
    class Selfish:
        def __init__(self) -> None:
            self.value = 42

        def me(self) -> Any:
            return skate.get_runtime_context().current_actor

        def read(self) -> int:
            return self.value

    selfish = Selfish.remote()
    handle = skate.get(selfish.me.remote())
    assert skate.get(handle.read.remote()) == 42


def test_handles_of_one_actor_are_equal() -> None:
    @skate.remote
    def echo(handle: Any) -> Any:
        return [handle]

    account = Account.remote()
    other = skate.get(echo.remote(account))[0]
    assert other == account
    assert hash(other) == hash(account)
    assert account != Account.remote()


def test_a_handle_shows_its_class() -> None:
    assert "Account" in repr(Account.remote())


def test_an_actor_class_can_be_an_argument() -> None:
    @skate.remote
    def create(cls: Any) -> int:
        return skate.get(cls.remote(6).read.remote())

    assert skate.get(create.remote(Account)) == 6


def test_an_actor_class_is_defined_inside_a_task() -> None:
    @skate.remote
    def create() -> int:
        @skate.remote
        class Inner:
            def one(self) -> int:
                return 1

        return skate.get(Inner.remote().one.remote())

    assert skate.get(create.remote()) == 1


def test_remote_wraps_a_class_without_decorator_syntax() -> None:
    class Plain:
        def one(self) -> int:
            return 1

    assert skate.get(skate.remote(Plain).remote().one.remote()) == 1
    assert Plain().one() == 1


def test_an_actor_runs_in_a_process_of_its_own() -> None:
    account, other = Account.remote(), Account.remote()
    pids = skate.get([account.pid.remote(), other.pid.remote()])
    assert len({*pids, os.getpid()}) == 3


def test_a_constructor_error_reaches_the_callers() -> None:
    @skate.remote
    class Broken:
        def __init__(self) -> None:
            raise ValueError("cannot start")

        def ping(self) -> None: ...

    with pytest.raises(skate.exceptions.RayActorError, match="cannot start"):
        skate.get(Broken.remote().ping.remote())


def test_kill_ends_an_actor() -> None:
    account = Account.remote()
    assert skate.get(account.read.remote()) == 0
    skate.kill(account)
    with pytest.raises(skate.exceptions.RayActorError):  # Ray lets it answer for a moment
        eventually(lambda: skate.get(account.read.remote()) is None)


def test_a_handle_works_on_after_a_copy_of_it_is_gone() -> None:
    @skate.remote
    def send_back(handle: Any) -> Any:
        return handle

    account = Account.remote(1)
    copy = skate.get(send_back.remote(account))
    assert skate.get(copy.deposit.remote(1)) == 2
    del copy
    assert skate.get(account.deposit.remote(1)) == 3
    skate.kill(account)


def test_kill_fails_the_calls_that_are_waiting() -> None:
    signal = Signal.remote()
    ref = signal.wait.remote()
    queued = Counter.remote()
    skate.get(signal.wait_for_waiters.remote(1))
    skate.kill(signal)
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(ref)
    skate.kill(queued)


def test_exit_actor_ends_the_actor_from_inside() -> None:
    @skate.remote
    class Quitter:
        def quit(self) -> None:
            skate.actor.exit_actor()

        def ping(self) -> str:
            return "pong"

    quitter = Quitter.remote()
    assert skate.get(quitter.ping.remote()) == "pong"
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.quit.remote())
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.ping.remote())


def test_exit_actor_is_not_undone_by_max_restarts() -> None:
    @skate.remote(max_restarts=-1)
    class Quitter:
        def quit(self) -> None:
            skate.actor.exit_actor()

        def ping(self) -> str:
            return "pong"

    quitter = Quitter.remote()
    quitter.quit.remote()
    with pytest.raises(skate.exceptions.RayActorError):
        skate.get(quitter.ping.remote())


def test_exit_actor_outside_an_actor_is_an_error() -> None:
    with pytest.raises(TypeError):
        skate.actor.exit_actor()


@pytest.mark.one_machine
def test_an_actor_ends_when_its_last_handle_goes() -> None:
    @skate.remote
    class Holder:
        def ping(self) -> str:
            return "pong"

    @skate.remote(num_cpus=4)
    def whole_machine() -> str:
        return "free"

    holder = Holder.options(num_cpus=4).remote()
    assert skate.get(holder.ping.remote()) == "pong"
    del holder
    assert skate.get(whole_machine.remote()) == "free"


def test_calls_made_before_the_last_handle_goes_still_run() -> None:
    account = Account.remote(1)
    refs = [account.deposit.remote(1) for _ in range(3)]
    del account
    assert skate.get(refs) == [2, 3, 4]


def test_a_temporary_handle_lives_until_its_call_is_done() -> None:
    assert skate.get(Account.remote(5).read.remote()) == 5


def test_an_actor_lives_while_a_task_holds_its_handle() -> None:
    signal = Signal.remote()

    @skate.remote
    def use(account: Any) -> int:
        skate.get(signal.wait.remote())
        return skate.get(account.read.remote())

    account = Account.remote(3)
    ref = use.remote(account)
    del account
    signal.send.remote()
    assert skate.get(ref) == 3


def test_terminate_calls_run_after_the_queued_ones() -> None:
    @skate.remote
    class Worker:
        def ping(self) -> str:
            return "pong"

    worker = Worker.remote()
    refs = [worker.ping.remote() for _ in range(3)]
    worker.__ray_terminate__.remote()
    assert skate.get(refs) == ["pong"] * 3
    with pytest.raises(skate.exceptions.RayActorError):
        eventually(lambda: skate.get(worker.ping.remote()) is None)


def test_ray_call_runs_a_function_on_the_instance() -> None:
    account = Account.remote(8)
    assert skate.get(account.__ray_call__.remote(lambda self, x: self.balance + x, 2)) == 10


def test_ray_ready_resolves_when_the_actor_is_up() -> None:
    account = Account.remote()
    assert skate.get(account.__ray_ready__.remote()) is True


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_bound_actor_method_runs_when_executed() -> None:
    node = Account.bind(1).deposit.bind(2)
    assert skate.get(node.execute()) == 3


def test_method_without_options_changes_nothing() -> None:
    @skate.remote
    class One:
        @skate.method
        def one(self) -> int:
            return 1

    assert skate.get(One.remote().one.remote()) == 1
