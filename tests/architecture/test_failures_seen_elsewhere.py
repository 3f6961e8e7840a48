"""What has gone wrong in systems like this one, and the tests that would fail if it did so here.

The reports are about routing, transport, streaming and the life of processes. Whoever renames or
removes one of these tests learns here what it was for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pytest

from tests.architecture.source import ROOT

_TEST: Final = re.compile(r"^ *(?:async )?def test_(\w+)\(", re.MULTILINE)
_KINDS: Final = {
    "streams": "src/stagemesh/testing/connector_streams.py",
    "engines": "src/stagemesh/testing/engine_conformance.py",
    "connector": "src/stagemesh/testing/connector_conformance.py",
}
"""Suites that every plug-in of a kind passes."""
FAILURES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "routing": {
        "on one host the policy was ignored, and requests went round": (
            "runtime/test_replicas::each_stage_follows_its_own_policy",
            "runtime/test_replicas::least_queue_avoids_the_busy_replica",
        ),
        "counts drifted with aborts, until most replicas idled": (
            "runtime/core/test_router::counts_stay_exact_whatever_the_ending",
            "testing/simulator/test_histories::every_rule_holds_in_every_history",
        ),
        "loads were seconds old, and everybody rushed to one replica": (
            "runtime/core/test_router::counts_stay_exact_whatever_the_ending",
        ),
        "long requests counted as much as short ones": (
            "runtime/core/test_router::least_queue_counts_costs",
        ),
        "no key kept a session on its replica": (
            "runtime/core/test_router::a_key_keeps_its_replica",
            "runtime/core/test_router::only_the_keys_of_a_lost_replica_move",
            "runtime/core/test_dispatcher::a_request_without_the_key_is_routed_by_its_name",
        ),
        "a request was registered at one replica and answered by another": (
            "runtime/test_replicas::every_replica_is_reached_from_every_other",
            "runtime/test_system::requests_at_once_do_not_mix",
            "runtime/core/test_router::a_binding_stays_until_it_is_forgotten",
        ),
        "what each policy does was written nowhere": (
            "docs/test_documents::every_policy_is_explained",
        ),
        "a death moved the turn of the others": (
            "runtime/core/test_router::a_death_does_not_shift_the_order_of_the_others",
        ),
        "all replicas bore the same name": (
            "runtime/test_seen_elsewhere::every_process_says_which_rank_of_which_replica_it_is",
            "runtime/test_stage_process::what_a_stage_writes_is_logged_under_its_name",
        ),
        "ranks took their number from a variable that was the same for all": (
            "runtime/test_seen_elsewhere::a_rank_knows_its_number_from_the_plan",
        ),
        "all ranks were on the first device": (
            "runtime/test_rank_engine::a_rank_sees_its_own_device",
        ),
        "replicas of several ranks met at one port": (
            "runtime/test_ranks::replicas_of_several_ranks_come_and_go",
        ),
    },
    "transport": {
        "a send to a dead peer blocked the loop for ever": (
            "runtime/test_deaths::a_stopped_consumer_makes_the_producer_wait",
            "runtime/test_back_pressure::a_consumer_that_dies_in_the_pause_holds_nobody_up",
        ),
        "a store that hangs stopped the thread of all requests": (
            "connectors/test_pipelines::a_store_that_hangs_or_dies_fails_its_requests_and_no_stage",
        ),
        "memory of requests that were left stayed until the end": (
            "runtime/test_aborted_streams::left_streams_leave_no_descriptor_and_no_memory",
        ),
        "memory outlived a process that was killed": (
            "runtime/test_kill_matrix::a_death_in_service_fails_what_was_bound_to_it_alone",
        ),
        "a fast producer filled the memory": (
            "connector::a_full_edge_says_so_and_has_room_after_a_release",
            "runtime/test_back_pressure::a_slow_stage_keeps_no_memory_of_the_edge",
        ),
        "payloads between stages passed the orchestrator": (
            "runtime/test_seen_elsewhere::payloads_between_stages_do_not_pass_the_caller",
        ),
        "the last chunk was lost at the end": (
            "runtime/test_stage_requests::the_terminal_word_comes_after_everything_else",
            "runtime/test_frontend::what_had_finished_before_the_death_has_finished",
        ),
        "the last chunk came twice, or its emptiness was an error": (
            "streams::the_last_chunk_may_be_empty_and_comes_once",
            "runtime/test_chunk_rules::a_second_last_on_one_edge_does_not_stand_for_another",
        ),
        "the end overtook the last chunk": ("streams::every_request_has_its_chunks_in_order",),
        "only one of the two ways to hand over was right": (
            "runtime/test_system::whole_payloads_give_the_same",
        ),
        "a request waited for a chunk for ever": (
            "runtime/test_system::a_deadline_ends_a_request_and_frees_its_place",
            "runtime/core/test_dispatcher::deadlines_name_who_is_to_blame",
        ),
        "messages and payloads were unpickled": (
            "architecture/test_banned_imports::no_module_imports_a_pickling_library",
            "runtime/test_fuzz::bytes_are_messages_or_a_protocol_error",
        ),
        "starts of different configurations met": (
            "runtime/launchers/test_headless::a_start_that_does_not_belong_ends_and_says_why",
        ),
    },
    "streaming": {
        "a user who does not read filled the memory of the server": (
            "runtime/test_slow_users::who_does_not_read_stops_the_stages",
            "serve/test_slow_clients::a_client_that_does_not_read_stops_its_stages",
        ),
        "one slow stream held up all others": (
            "runtime/test_back_pressure::others_run_on_beside_many_who_do_not_read",
        ),
        "gaps in audio were counted nowhere": (
            "serve/test_metrics::gaps_between_pieces_are_heard",
        ),
        "everything was generated before anything was sent": (
            "e2e/test_answers::audio_begins_before_the_text_ends",
        ),
        "a client that left went on costing": (
            "serve/test_http::a_client_that_goes_away_cancels_its_request",
            "runtime/test_system::leaving_the_iteration_cancels_everywhere",
        ),
        "a cancel hit a later request of the same name": (
            "runtime/test_stage_loop::a_cancel_of_an_earlier_request_does_not_hit_a_later_one",
        ),
        "what a later stage had begun was not cancelled": (
            "runtime/core/test_request::a_failure_ends_it_and_cancels_the_others",
        ),
        "the first request of another kind held up the queue behind it": (
            "engines/test_generation::equal_buckets_run_together_up_to_the_limit",
            "engines/test_generation::no_bucket_starves",
        ),
        "stages took turns instead of working at once": (
            "runtime/test_seen_elsewhere::stages_overlap",
        ),
        "more requests than a stage serves crashed it": (
            "runtime/test_hints::more_than_fit_are_refused_and_the_rest_is_served",
            "serve/test_http::a_full_server_says_when_there_may_be_room",
        ),
        "metrics were exported and always zero": (
            "serve/test_metrics::every_metric_is_fed_by_a_real_run",
        ),
    },
    "life": {
        "one dead replica ended the server": (
            "runtime/test_comebacks::a_replica_that_died_is_used_again_and_nobody_else_notices",
            "runtime/test_deaths::a_death_fails_its_request_and_no_other",
        ),
        "an exit by SIGTERM was taken for a shutdown, and requests waited": (
            "runtime/test_seen_elsewhere::a_stage_that_others_end_in_order_fails_its_requests_as_well",
        ),
        "a replica elsewhere could not be asked whether it lives": (
            "runtime/launchers/test_headless::a_process_that_dies_elsewhere_fails_its_requests_and_comes_back",
        ),
        "an exception about one output ended everything": (
            "runtime/test_stage_loop::a_failing_bridge_fails_its_request_alone",
            "runtime/test_stage_loop::a_malformed_output_fails_its_request_alone",
        ),
        "stages died with the thread that had started them": (
            "runtime/test_seen_elsewhere::stages_outlive_the_thread_that_has_started_them",
        ),
        "stages outlived a server that was killed": (
            "runtime/test_kill_matrix::the_death_of_the_caller_ends_everything",
            "runtime/launchers/test_headless::workers_end_when_the_head_is_killed",
        ),
        "a start that failed in part left the rest running": (
            "runtime/test_starts::a_stage_that_cannot_load_stops_the_start",
            "runtime/test_ranks::ranks_that_cannot_be_started_stop_the_start",
        ),
        "a stage that never got ready was waited for": (
            "runtime/test_starts::a_start_that_takes_too_long_names_who_is_missing",
        ),
        "a worker that came back was not used": (
            "runtime/core/test_membership::a_worker_that_registers_again_replaces_its_predecessor_at_once",
        ),
        "who joined while another died never met it": (
            "runtime/test_comebacks::a_replica_that_joins_beside_one_just_killed_meets_whoever_comes_back",
        ),
        "a frontend that hung kept its connections": (
            "serve/frontends/test_running::one_that_stays_silent_is_ended_and_comes_back",
        ),
        "a failing request of a batch made the call spin": (
            "runtime/test_system::a_failing_request_fails_alone",
        ),
        "health stayed green while an engine was stuck": (
            "runtime/test_hangs::a_step_without_end_ends_its_replica",
            "runtime/test_hangs::a_stopped_process_is_passed_over_and_used_again_when_it_goes_on",
        ),
        "flags were taken and did nothing": (
            "config/test_start_fields::a_policy_without_replicas_has_no_effect_and_is_told",
            "cli/test_flags::a_saved_plan_names_every_flag_that_cannot_change_it",
        ),
        "an interrupt from the keyboard killed stages in the middle": (
            "runtime/test_starts::ctrl_c_ends_everything",
        ),
        "one rank died, and the others hung in a collective": (
            "runtime/test_ranks::the_death_of_a_rank_ends_its_replica_and_nothing_else",
        ),
        "several requests in one engine changed each other": (
            "engines::results_do_not_depend_on_other_requests",
        ),
        "MPS daemons outlived the server": (
            "runtime/launchers/test_mps::the_end_of_the_caller_is_the_end_of_its_daemons",
        ),
        "a process that was not attached to MPS took turns unnoticed": (
            "runtime/launchers/test_mps::who_is_not_attached_is_told_of",
        ),
    },
}
"""By area and failure: tests as `FILE::NAME`, without what begins and ends all of them."""
ROWS: Final = [
    pytest.param(named, id=failure) for rows in FAILURES.values() for failure, named in rows.items()
]


@pytest.mark.parametrize("named", ROWS)
def test_a_failure_seen_elsewhere_has_a_test(named: tuple[str, ...]) -> None:
    """Every one of those that are named is there."""
    for each in named:
        place, _, name = each.partition("::")
        path = ROOT / _KINDS.get(place, f"tests/{place}.py")
        there = name in _TEST.findall(path.read_text(encoding="utf-8"))
        assert there, f"{each} is gone: what would notice the failure now?"
