//! Sleeping, clocks, and descriptors that tell the time.

mod sleeping {
    raddle_tests::cases! { "sleeping.c":
        nanosleep_lasts,
        clock_nanosleep_relative_and_absolute_on_both_clocks,
        an_absolute_time_in_the_past_returns_at_once,
        invalid_times_are_refused,
        sleepers_wake_in_order,
        a_thousand_sleepers_sleep_together,
        many_short_sleeps_end,
        a_signal_interrupts_and_tells_the_remaining_time,
        sa_restart_does_not_restart_a_sleep,
        clocks_do_not_go_back,
        a_threads_cpu_clock_counts_its_own_time,
        timerfd_fires_repeatedly,
        timerfd_absolute,
        a_sleep_on_cpu_time_is_not_interrupted_by_what_others_get,
        one_threads_slack_delays_no_others,
        a_signal_interrupts_a_sleep_on_cpu_time,
        clocks_that_nobody_can_sleep_on,
        sleeps_of_no_time_take_some,
    }
}

mod cpu_clocks {
    raddle_tests::cases! { "clocks.c":
        a_thread_that_computes_uses_cpu_time,
        a_thread_that_sleeps_uses_none,
        times_of_threads_add_up,
        anothers_clock_is_read,
        usage_of_a_thread_is_its_own,
        a_forked_childs_clock_starts_again,
        a_thread_may_forbid_itself_the_time_stamp_counter,
        a_place_for_cpu_time_may_be_bad,
    }
}

mod timers {
    raddle_tests::cases! { "timers.c":
        a_timer_signals_the_thread_that_is_named,
        threads_wait_for_timers_of_their_own,
        an_expiry_of_a_deleted_timer_reaches_no_other_thread,
        expiries_that_nobody_took_are_counted,
        functions_run_in_threads_of_their_own,
        a_timer_may_tell_nobody,
        a_timer_counts_a_threads_cpu_time,
        a_default_timer_sends_sigalrm,
        a_timer_that_is_due_signals_who_sets_it,
        no_expiry_is_lost_beside_calls_that_block,
        no_expiry_of_many_at_once_is_lost,
    }
}
