//! Cancellation, and unwinding through waits.

mod cancellation {
    raddle_tests::cases! { "cancel.c":
        cancels_a_read,
        cancels_a_recv_and_a_poll,
        cancels_a_sleep_and_a_pause,
        cancels_a_semaphore_wait_and_leaves_its_value,
        pthread_testcancel_is_a_cancellation_point,
        a_cancelled_condition_wait_holds_its_mutex_in_clean_up,
        cancels_a_timed_condition_wait,
        a_cancelled_wait_does_not_lose_a_signal,
        cancels_a_join_and_the_target_can_still_be_joined,
        asynchronous_cancellation_ends_a_compute_loop,
        a_disabled_cancellation_waits_until_enabled,
        pthread_exit_runs_handlers_then_destructors,
        a_thread_cancels_itself,
        main_is_cancelled => 6,
        two_hundred_waits_are_cancelled_together,
        a_cancellation_at_the_start_of_a_wait_is_not_slept_over,
    }
}

mod unwind_library {
    raddle_tests::cases! { "unwind_library.c":
        libunwind_steps_over_a_read,
        libunwind_steps_over_a_semaphore,
        libunwind_steps_over_a_yield,
    }
}

mod unwinding {
    raddle_tests::cases! { "unwinding.cc":
        cancelling_a_read_runs_destructors_of_every_frame,
        cancelling_a_sleep_runs_destructors,
        pthread_exit_runs_destructors,
        a_cancellation_is_caught_and_rethrown,
        exceptions_in_32_threads,
        exceptions_being_handled_belong_to_their_thread,
        backtrace_ends_in_main_and_in_threads,
        backtrace_from_a_handler_passes_the_interrupted_wait,
        exceptions_pass_callbacks_of_libc,
        a_call_once_that_throws_is_tried_by_the_next,
        a_pthread_once_that_throws_is_tried_by_the_next,
        an_exception_of_a_thread_reaches_who_asks_for_its_result,
        a_cancellation_unwinds_through_waits_and_exceptions,
        backtraces_at_any_moment_reach_the_first_frame,
        an_exception_that_nobody_catches_aborts => 134,
    }
}
