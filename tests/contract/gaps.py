"""The tests of the contract that an engine does not pass, with reasons.

Each entry turns one test on one engine into a strict xfail: it is printed with its reason, and it fails as soon
as the engine passes the test, so that the entry is removed. Tests with one reason stand in one list.
"""

from __future__ import annotations

from tests.plugins.sessions import NOT_RUN

_INLINE: dict[str, tuple[str, ...]] = {
    NOT_RUN + "tasks run in the driver's own process, which this test would end": (
        "test_actor_failures.py::test_the_call_that_kills_an_actor_fails_with_actor_error",
        "test_actor_failures.py::test_calls_after_death_fail_with_actor_died_error",
        "test_actor_failures.py::test_calls_queued_behind_the_fatal_one_fail",
        "test_actor_failures.py::test_calls_finished_before_death_keep_their_values",
        "test_actor_failures.py::test_kill_minus_nine_of_an_actor_is_noticed",
        "test_actor_failures.py::test_an_actor_error_names_its_class",
        "test_actor_failures.py::test_an_actor_without_restarts_stays_dead",
        "test_actor_failures.py::test_max_restarts_brings_an_actor_back",
        "test_actor_failures.py::test_a_restarted_actor_runs_its_constructor_again",
        "test_actor_failures.py::test_a_restarted_actor_knows_that_it_was_restarted",
        "test_actor_failures.py::test_an_actor_stays_dead_when_its_restarts_are_used_up",
        "test_actor_failures.py::test_max_restarts_minus_one_restarts_without_end",
        "test_actor_failures.py::test_a_named_actor_keeps_its_name_over_a_restart",
        "test_actor_failures.py::test_a_handle_in_a_task_follows_a_restart",
        "test_actor_failures.py::test_max_task_retries_runs_the_fatal_call_again",
        "test_actor_failures.py::test_max_task_retries_gives_up_when_they_are_used_up",
        "test_actor_failures.py::test_max_task_retries_keeps_queued_calls_through_a_restart",
        "test_actor_failures.py::test_method_options_set_max_task_retries",
        "test_actor_failures.py::test_a_constructor_that_dies_is_reported",
        "test_errors.py::test_a_worker_that_exits_names_its_exit_code",
        "test_errors.py::test_a_worker_that_is_killed_names_the_signal",
        "test_errors.py::test_a_worker_that_crashes_shows_its_last_words",
        "test_errors.py::test_a_crashed_worker_names_the_task_it_ran",
        "test_errors.py::test_a_dead_actor_names_its_exit_code",
        "test_faults.py::test_a_worker_killed_from_outside_fails_its_task",
        "test_faults.py::test_a_worker_killed_from_outside_is_retried",
        "test_faults.py::test_the_session_goes_on_after_many_crashes",
        "test_faults.py::test_a_segmentation_fault_is_a_worker_crash",
        "test_faults.py::test_a_task_that_closes_every_descriptor_does_not_hang_the_session",
        "test_faults.py::test_a_worker_that_closes_its_descriptors_and_runs_on_is_ended",
        "test_faults.py::test_the_producer_of_a_large_object_may_die_afterwards",
        "test_generators.py::test_a_generator_whose_worker_dies_starts_over_without_repeating_items",
        "test_generators.py::test_a_generator_that_starts_over_is_not_held_back_by_what_was_taken_before",
        "test_generators.py::test_a_generator_of_an_actor_that_starts_over_is_not_held_back_either",
        "test_generators.py::test_a_generator_whose_worker_dies_for_good_ends_with_the_crash",
        "test_placement_groups.py::test_a_crashed_actor_is_restarted_in_its_group",
        "test_resources.py::test_a_crashed_task_gives_its_resources_back",
        "test_task_options.py::test_a_dead_worker_is_retried_by_default",
        "test_task_options.py::test_a_dead_worker_is_not_retried_with_max_retries_zero",
        "test_task_options.py::test_a_dead_worker_is_retried_max_retries_times",
    ),
    NOT_RUN + "a task runs to its end before its caller goes on, so nobody could cancel this one": (
        "test_cancel.py::test_a_running_task_is_cancelled",
        "test_cancel.py::test_the_error_of_a_running_task_shows_where_it_was",
        "test_cancel.py::test_a_task_inside_one_long_system_call_is_cancelled",
        "test_cancel.py::test_cancelling_twice_is_the_same_as_once",
        "test_cancel.py::test_a_cancelled_task_is_not_retried",
        "test_cancel.py::test_a_cancelled_task_runs_its_finally_blocks",
        "test_cancel.py::test_an_import_is_not_left_half_done",
        "test_cancel.py::test_the_worker_of_a_cancelled_task_is_free_again",
        "test_cancel.py::test_force_ends_the_worker",
        "test_cancel.py::test_force_cancels_a_task_that_ignores_interrupts",
        "test_cancel.py::test_cancel_reaches_the_tasks_that_a_task_submitted",
        "test_cancel.py::test_a_task_that_waits_for_a_child_sees_its_own_cancellation",
        "test_cancel.py::test_a_sync_actor_call_sees_that_it_is_cancelled",
        "test_lifecycle.py::test_shutdown_ends_running_tasks",
    ),
    NOT_RUN + "calls of a threaded actor run one after another, and these wait for each other": (
        "test_concurrency_groups.py::test_a_group_runs_as_many_calls_as_its_limit_in_threads",
        "test_concurrency_groups.py::test_max_concurrency_is_the_limit_of_the_default_group",
        "test_threaded_actors.py::test_calls_run_side_by_side_in_threads",
        "test_threaded_actors.py::test_max_concurrency_limits_the_threads",
        "test_threaded_actors.py::test_options_set_max_concurrency",
        "test_threaded_actors.py::test_each_thread_sees_its_own_task_id",
    ),
    "a task runs to its end before its caller goes on: one that waits for its caller gets a DeadlockError": (
        "test_actor_failures.py::test_a_call_to_an_actor_that_restarts_fails_at_once_unless_it_may_be_retried",
        "test_actor_failures.py::test_max_pending_calls_refuses_the_call_over_the_limit",
        "test_actors.py::test_calls_run_in_order_even_when_an_early_argument_is_late",
        "test_actors.py::test_an_actor_lives_while_a_task_holds_its_handle",
        "test_cancel.py::test_a_task_blocked_in_get_is_cancelled",
        "test_cancel.py::test_a_task_that_waits_for_its_argument_is_cancelled",
        "test_cancel.py::test_a_task_that_depends_on_a_cancelled_one_fails",
        "test_cancel.py::test_cancel_without_recursion_leaves_children_alone",
        "test_cancel.py::test_a_task_can_be_cancelled_by_another_task",
        "test_cancel.py::test_cancelled_error_names_the_cancellation",
        "test_cancel.py::test_a_cancelled_ref_can_be_awaited",
        "test_cancel.py::test_a_queued_actor_call_is_cancelled_before_it_runs",
        "test_concurrency_groups.py::test_a_full_group_does_not_block_another[threaded]",
        "test_concurrency_groups.py::test_options_move_a_call_to_another_group[threaded]",
        "test_generators.py::test_wait_tells_whether_the_next_item_is_there",
        "test_generators.py::test_a_cancelled_stream_ends_with_the_cancellation",
        "test_get_wait.py::test_get_of_a_list_keeps_its_order",
        "test_get_wait.py::test_get_with_timeout_raises_get_timeout_error",
        "test_get_wait.py::test_get_with_timeout_zero_raises_for_what_is_not_there",
        "test_get_wait.py::test_get_of_a_list_times_out_when_one_is_missing",
        "test_get_wait.py::test_threads_may_get_one_ref_at_the_same_time",
        "test_get_wait.py::test_wait_returns_what_is_ready_and_what_is_not",
        "test_get_wait.py::test_wait_with_timeout_returns_fewer_than_asked",
        "test_get_wait.py::test_wait_with_timeout_zero_does_not_block",
        "test_get_wait.py::test_awaiting_lets_other_coroutines_run",
        "test_get_wait.py::test_an_await_that_times_out_leaves_the_ref_usable",
        "test_references.py::test_a_direct_argument_outlives_the_callers_ref",
        "test_resources.py::test_a_task_blocked_in_get_takes_its_cpus_again_afterwards",
        "test_state.py::test_why_names_the_argument_a_task_waits_for",
        "test_tasks.py::test_a_task_starts_only_when_its_argument_is_there",
        "test_tasks.py::test_tasks_run_side_by_side",
        "test_threaded_actors.py::test_a_blocked_thread_does_not_block_the_others",
        "test_threaded_actors.py::test_killing_a_threaded_actor_fails_the_calls_in_flight",
    ),
    NOT_RUN + "a task runs to its end before its caller goes on: the test waits for a state that never is": (
        "test_generators.py::test_backpressure_holds_the_generator_back",
        "test_state.py::test_a_task_that_waits_for_an_argument_says_so",
        "test_state.py::test_why_says_that_a_running_task_runs",
        "test_state.py::test_a_running_task_is_listed_with_its_process",
    ),
    "there is no worker that could fail to start: the environment itself cannot be made": (
        "test_runtime_env.py::test_a_setup_hook_that_fails_fails_the_actors",
    ),
    "packages cannot be installed into a process that runs": (
        "test_runtime_env.py::test_a_package_is_installed_for_one_actor_only",
        "test_runtime_env.py::test_a_package_that_cannot_be_installed_fails_the_task",
    ),
    "an actor that waits lends its CPUs to others, as a task does": (
        "test_deadlocks.py::test_an_actor_that_holds_all_cpus_and_waits_for_a_task_is_reported",
    ),
    "there is one process": (
        "test_placement_groups.py::test_child_tasks_of_a_thread_in_an_actor_are_captured_too",
        "test_actors.py::test_an_actor_runs_in_a_process_of_its_own",
        "test_runtime_context.py::test_a_worker_id_belongs_to_a_process",
        "test_task_options.py::test_max_calls_ends_the_worker_after_that_many_calls",
    ),
}

_LOCAL: dict[str, tuple[str, ...]] = {
    "the node passes an argument's error on as it is: it never unpickles what users made": (
        "test_errors.py::test_an_error_of_an_argument_names_both_tasks",
    ),
}

# What Ray 2.60 itself does otherwise; seen by running this suite on it.
_RAY: dict[str, tuple[str, ...]] = {
    NOT_RUN + "Ray waits for a node that could be added instead of failing": (
        "test_placement_groups.py::test_a_group_larger_than_the_machine_fails_at_once_with_both_amounts",
        "test_placement_groups.py::test_strict_spread_over_more_nodes_than_there_are_fails_at_once",
        "test_resources.py::test_a_task_that_can_never_run_says_what_was_asked_and_what_exists",
        "test_resources.py::test_an_actor_that_can_never_run_says_what_was_asked_and_what_exists",
        "test_resources.py::test_a_custom_resource_that_nobody_has_is_named",
        "test_resources.py::test_a_gpu_on_a_machine_without_gpu_can_never_be_had",
        "test_resources.py::test_more_memory_than_there_is_can_never_be_had",
        "test_resources.py::test_an_accelerator_type_that_nobody_has_is_named",
        "test_resources.py::test_a_label_that_no_node_has_is_named",
    ),
    NOT_RUN + "a task for a removed group waits without end": (
        "test_placement_groups.py::test_a_task_for_a_removed_group_fails",
    ),
    NOT_RUN + "processes that a worker of Ray forks keep its handler of SIGTERM, and end or not by chance": (
        "test_signals.py::test_a_process_that_a_task_has_forked_can_be_terminated",
        "test_signals.py::test_a_process_that_an_actor_has_forked_can_be_terminated",
        "test_signals.py::test_a_pool_of_processes_in_an_actor_ends",
    ),
    "Ray returns the first item of such a generator, and logs that there are more": (
        "test_generators.py::test_a_generator_that_a_plain_function_returns_is_refused_and_another_iterator_is_a_value",
    ),
    NOT_RUN + "Ray does not notice wait cycles": (
        "test_errors.py::test_two_actors_that_wait_for_each_other_are_reported",
        "test_errors.py::test_an_actor_that_waits_for_itself_is_reported",
        "test_deadlocks.py::test_a_task_that_waits_for_a_resource_it_holds_is_reported",
        "test_deadlocks.py::test_an_actor_that_holds_all_cpus_and_waits_for_a_task_is_reported",
        "test_deadlocks.py::test_actors_that_need_more_cpus_than_their_owners_leave_are_reported",
        "test_deadlocks.py::test_a_cycle_through_wait_is_reported",
        "test_deadlocks.py::test_a_cycle_of_coroutines_is_reported",
        "test_deadlocks.py::test_a_cycle_through_a_task_is_reported",
        "test_deadlocks.py::test_a_constructor_that_calls_its_own_actor_is_reported",
        "test_deadlocks.py::test_a_second_placement_group_that_its_owner_waits_for_is_reported",
    ),
    NOT_RUN + "Ray interrupts a task between two instructions, not inside a system call": (
        "test_cancel.py::test_a_task_inside_one_long_system_call_is_cancelled",
    ),
    "the error of a call that never ran is not a task error": (
        "test_cancel.py::test_the_error_of_a_call_that_is_cancelled_before_its_actor_exists_is_a_task_error_too",
    ),
    NOT_RUN + "Ray settles a cancelled call that waits in an actor's queue when its turn comes": (
        "test_cancel.py::test_a_queued_actor_call_is_cancelled_before_it_runs",
    ),
    NOT_RUN + "Ray starts a hundred processes in minutes": (
        "test_faults.py::test_a_hundred_actors_at_once_all_answer",
        "test_faults.py::test_a_thousand_actors_all_answer",
    ),
    "on Ray, sessions of a cluster share one copy of a working_dir": (
        "test_runtime_env.py::test_changes_in_a_working_dir_do_not_reach_the_next_session",
    ),
    NOT_RUN + "Ray tells of a setup hook that fails only as of a worker that died, after four of them": (
        "test_runtime_env.py::test_a_setup_hook_that_fails_fails_the_tasks",
        "test_runtime_env.py::test_a_setup_hook_that_fails_fails_the_actors",
    ),
    NOT_RUN
    + "Ray copies the whole environment of its Python, gigabytes of it, for each try to install a package": (
        "test_runtime_env.py::test_a_package_is_installed_for_one_actor_only",
        "test_runtime_env.py::test_a_package_that_cannot_be_installed_fails_the_task",
    ),
    NOT_RUN + "Ray may refuse a call while its actor restarts, whatever the call's own max_task_retries": (
        "test_actor_failures.py::test_method_options_set_max_task_retries",
    ),
    "Ray does not tell which of its arguments a task waits for, nor who holds the resources": (
        "test_state.py::test_why_names_the_argument_a_task_waits_for",
        "test_state.py::test_why_names_the_resources_a_task_waits_for",
    ),
    "a call in an unknown concurrency group crashes Ray's worker": (
        "test_concurrency_groups.py::test_an_unknown_group_is_an_error",
    ),
    "Ray calls send() on what a generator delegates to": (
        "test_generators.py::test_a_generator_may_delegate_to_any_iterable",
    ),
    "Ray's error for a dead worker names no exit code, signal, task or output": (
        "test_errors.py::test_a_dead_actor_names_its_exit_code",
        "test_errors.py::test_a_worker_that_exits_names_its_exit_code",
        "test_errors.py::test_a_worker_that_is_killed_names_the_signal",
        "test_errors.py::test_a_worker_that_crashes_shows_its_last_words",
        "test_errors.py::test_a_crashed_worker_names_the_task_it_ran",
    ),
}

GAPS: dict[tuple[str, str], str] = {
    (engine, test): reason
    for engine, reasons in {"inline": _INLINE, "local": _LOCAL, "ray": _RAY}.items()
    for reason, tests in reasons.items()
    for test in tests
}
