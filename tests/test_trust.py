"""What is promised about trust, line by line, and the tests that hold each: one that is renamed or lost is missed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROMISES: dict[str, tuple[str, ...]] = {
    # --- the same result, always
    "METIS has a process of its own, whatever others draw from the C library's generator": (
        "methods/placing/test_metis.py::test_seeded_partitions_are_the_same_beside_a_thread_that_calls_rand",
    ),
    "a sweep of every kind of method gives the same bytes under load, on one worker, on two and without Ray": (
        "orchestration/driver/test_same_everywhere.py::test_without_ray_on_one_worker_and_on_two_under_load_all_bytes_are_the_same",
    ),
    "the processor is recorded with every result, and replay says when it differs": (
        "orchestration/cli/test_sweep_commands.py::test_replay_measures_the_recorded_placement_again",
    ),
    "a trial's hash, a problem's hash and a measurement's key see whatever decides": (
        "orchestration/specs/test_trial.py::test_what_determines_the_result_is_identity",
        "orchestration/specs/test_trial.py::test_every_field_is_decided_about",
        "envs/problem/test_problem.py::test_content_hash_sees_everything_but_names",
        "orchestration/rewards/test_kinds.py::test_whatever_decides_a_measurement_is_in_its_key",
        "orchestration/rewards/test_measurement_store.py::test_a_measurement_depends_on_every_part_of_its_context",
    ),
    # --- what is on disk
    "a flipped bit of a checkpoint or a policy is noticed and named, and the trial goes on from the one before or from the start": (
        "orchestration/specs/test_state_files.py::test_no_flipped_bit_is_overlooked_or_reaches_the_parser",
        "orchestration/trials/test_run_trial.py::test_a_flipped_bit_is_named_and_the_trial_goes_on_from_the_checkpoint_before",
        "orchestration/driver/test_driver.py::test_a_damaged_policy_is_made_again_in_the_same_run_and_in_the_next",
    ),
    "so is one of a ledger's line, of a cached graph, of a stored measurement and of a search's journal": (
        "orchestration/folder/test_ledger.py::test_no_flipped_bit_is_overlooked",
        "envs/graphs/test_store.py::test_no_damaged_byte_passes",
        "orchestration/rewards/test_measurement_store.py::test_no_damaged_value_passes",
        "orchestration/search/test_search.py::test_no_flipped_bit_of_the_journal_is_overlooked",
    ),
    "the ledger is the truth: a journal, a study or a store of runs that knows more or less follows it": (
        "orchestration/search/test_search.py::test_what_the_ledger_lost_runs_again_though_the_journal_has_decided",
        "orchestration/search/test_search.py::test_a_lost_journal_is_told_anew_from_the_ledger",
        "orchestration/tracking/test_tracking.py::test_a_ledger_that_lost_lines_leaves_one_finished_run_a_trial",
    ),
    "a damaged or foreign file is one sentence with file, line and cure": (
        "orchestration/folder/test_ledger.py::test_line_ends_of_windows_and_a_folder_in_its_place_are_a_sentence",
        "orchestration/folder/test_ledger.py::test_without_a_checksum_what_does_not_fit_is_a_sentence",
        "orchestration/search/test_search.py::test_a_line_of_the_journal_that_is_lost_or_moved_is_not_overlooked",
        "orchestration/tracking/test_tracking.py::test_a_database_with_a_damaged_page_is_one_clear_line",
        "orchestration/rewards/test_measurement_store.py::test_what_is_no_database_is_refused_in_a_sentence",
    ),
    "a full disk is a clear end, and the next run goes on": (
        "orchestration/folder/test_ledger.py::test_a_full_disk_is_a_sentence_and_costs_what_was_not_written",
        "orchestration/trials/test_run_trial.py::test_a_full_disk_costs_a_trial_its_checkpoints_and_no_more",
        "orchestration/trials/test_run_trial.py::test_what_others_start_from_must_be_written",
        "orchestration/cli/test_cli.py::test_a_full_disk_is_no_fault_of_the_program",
    ),
    "kills of whatever kind lose and double nothing": (
        "orchestration/driver/test_chaos.py::test_a_sweep_under_fire_gives_the_same_tables",
        "orchestration/folder/test_ledger.py::test_a_line_torn_by_a_kill_runs_again_and_nothing_else",
        "orchestration/rewards/test_measurement_store.py::test_a_lease_that_has_ended_is_refused",
    ),
    # --- what may never cost a sweep
    "a report, plot or page that fails is a note": (
        "orchestration/report/test_hostile_names.py::test_whatever_fails_in_a_report_is_a_note",
        "orchestration/report/test_hostile_names.py::test_a_sweep_with_such_names_ends_in_order",
    ),
    "no run stays RUNNING in MLflow, whatever ends the driver; stale ones are closed by whoever looks": (
        "orchestration/driver/test_driver.py::test_whatever_ends_the_driver_no_run_stays_running",
        "orchestration/tracking/test_tracking.py::test_runs_of_a_dead_driver_are_closed_by_whoever_looks",
    ),
    "a tracking server that goes and comes costs nothing": (
        "orchestration/driver/test_server_outage.py::test_nothing_is_missing_after_server_and_database_were_away",
    ),
    "Ray that does not start in time is tried again and then explained": (
        "orchestration/driver/test_backends.py::test_a_start_that_takes_too_long_is_tried_again",
        "orchestration/driver/test_backends.py::test_a_machine_that_never_gets_that_far_is_named",
    ),
    # --- who gets in, what gets out
    "passwords are masked everywhere, come from the environment or a file, and files that hold any are their owner's": (
        "orchestration/specs/test_secrets.py::test_passwords_are_masked_and_nothing_else_is",
        "orchestration/specs/test_secrets.py::test_errors_do_not_quote_passwords",
        "orchestration/specs/test_secrets.py::test_a_uri_may_come_from_the_environment_or_a_file",
        "orchestration/specs/test_secrets.py::test_a_jobs_command_does_not_hold_the_password",
        "orchestration/specs/test_secrets.py::test_a_definition_with_a_password_is_for_its_owner_alone",
    ),
    "the lock for measuring is the user's own": (
        "orchestration/rewards/test_machine_lock.py::test_a_planted_link_is_not_followed",
        "orchestration/rewards/test_machine_lock.py::test_a_planted_file_or_an_open_folder_is_refused",
    ),
    "cells, labels and names mean nothing to what prints them": (
        "orchestration/report/test_hostile_names.py::test_a_label_means_nothing_to_what_prints_it",
    ),
    "Ray without a token, or with one that others can read, is told": (
        "orchestration/driver/test_exposure.py::test_ray_without_a_token_is_told_where_others_reach_it",
        "orchestration/driver/test_exposure.py::test_a_token_that_others_can_read_is_told",
    ),
    "YAML is capped in depth, fragments, digits and size": (
        "orchestration/definition/test_odd_values.py::test_a_hostile_text_is_refused_by_one_sentence",
        "orchestration/definition/test_odd_values.py::test_fragments_that_include_one_another_without_end_are_refused",
    ),
    "validate refuses what run cannot do": (
        "orchestration/cli/test_malformed.py::test_names_place_and_cure",
        "orchestration/definition/test_definition.py::test_check_problems_names_what_cannot_work",
        "orchestration/definition/test_definition.py::test_check_problems_asks_evaluators_whether_they_fit",
        "envs/graphs/test_capture.py::test_onnx_nodes_out_of_order_are_refused",
        "envs/problem/test_network.py::test_what_a_network_refuses",
    ),
    "manifests: no capabilities, no privileges, no token, a network of their own, images by digest, packages by hash": (
        "test_infra.py::test_no_container_may_gain_privileges",
        "test_infra.py::test_only_the_autoscaler_has_a_token_of_kubernetes",
        "test_infra.py::test_pods_are_reached_by_their_own_kind_alone",
        "test_infra.py::test_images_are_named_by_digest",
        "test_infra.py::test_the_image_installs_what_was_tested_and_checks_every_file",
    ),
    "malformed and hostile input of every kind is refused by its name, and nothing more": (
        "fuzz/test_fuzz.py::test_a_thousand_hostile_inputs_do_no_harm",
    ),
}


@pytest.mark.parametrize("promise", PROMISES)
def test_every_promise_has_its_tests(promise: str) -> None:
    for test in PROMISES[promise]:
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (HERE / path).read_text(), re.M), f"{test} is gone; what holds {promise!r} now?"
