//! Descriptors: pipes, files, sockets, messages, and waiting for several at once.

mod pipes {
    raddle_tests::cases! { "pipes.c", |case| case.input("one\ntwo\nthree\n");
        a_reader_waits_for_a_writer,
        a_write_larger_than_the_pipe_is_completed,
        a_hundred_pairs_of_pipes_echo,
        closing_the_last_writer_wakes_every_reader_with_0,
        each_byte_wakes_one_reader,
        closing_the_reader_wakes_a_writer_with_epipe,
        o_nonblock_says_again,
        flags_stay_as_the_program_set_them,
        bad_descriptors_are_told,
        readv_and_writev_scatter_and_gather,
        a_large_writev_is_completed,
        standard_input_is_read_by_threads,
    }
}

mod descriptors {
    raddle_tests::cases! { "descriptors.c":
        eventfd_counts,
        eventfd_as_a_semaphore_wakes_one_for_each,
        a_full_eventfd_blocks_its_writer,
        descriptors_are_the_lowest_free_and_reused,
        a_number_reused_for_another_kind_of_file_works,
        duplicates_share_one_pipe,
        descriptors_above_1024_block_and_wake,
        numbers_from_1024_on_are_free,
        closing_every_other_descriptor_harms_nobody,
        files_are_written_and_read_by_16_threads,
        o_append_keeps_lines_whole,
    }
}

mod closing {
    raddle_tests::cases! { "closing.c":
        a_reader_outlives_its_number,
        the_number_can_be_another_file_meanwhile,
        shutdown_of_a_duplicate_wakes_who_waits_by_a_closed_number,
        a_peer_sees_the_end_when_the_last_reader_has_left,
        a_writer_outlives_its_number,
        an_accept_outlives_its_number,
        a_signal_ends_a_wait_by_a_closed_number,
        closing_all_numbers_leaves_threads_and_new_files_alone,
        what_is_closed_right_after_the_first_thread_began_is_closed,
        a_passed_number_is_waited_for_while_the_first_is_closed,
    }
}

mod modes {
    raddle_tests::cases! { "modes.c":
        a_descriptor_that_becomes_blocking_waits_again,
        a_number_that_was_non_blocking_is_another_file,
        a_read_that_became_blocking_behind_the_number_is_interrupted,
    }
}

mod sockets {
    raddle_tests::cases! { "sockets.c":
        tcp_echo_with_200_clients_and_a_thread_for_each,
        ten_threads_accept_on_one_socket,
        connecting_to_nobody_is_refused,
        a_nonblocking_connect_is_in_progress,
        a_nonblocking_accept_says_again,
        shutdown_wakes_a_reader,
        shutdown_wakes_an_accept,
        receive_and_send_time_limits,
        accept_has_a_time_limit,
        one_socket_carries_both_directions_at_once,
        udp_datagrams_keep_their_size,
        a_unix_socket_by_name,
        connect_waits_for_room_in_the_backlog,
        a_thousand_short_connections,
        a_waiting_write_is_told_that_unread_data_is_lost,
    }
}

mod messages {
    raddle_tests::cases! { "messages.c":
        msg_waitall_waits_for_everything,
        msg_waitall_gives_what_came_before_the_end,
        msg_peek_waits_and_leaves_the_data,
        msg_nosignal_says_epipe,
        sendmsg_gathers_and_recvmsg_scatters,
        a_truncated_datagram_is_told,
        descriptors_are_passed,
        several_messages_at_once,
        recvmmsg_ends_with_its_time_limit_between_messages,
        sequenced_packets_keep_their_boundaries,
        sendfile_sends_more_than_a_socket_holds,
        sendfile_to_what_is_not_waited_for_is_made_at_once,
        splice_says_that_it_would_wait,
        splice_waits_for_data,
    }
}

mod many_messages {
    raddle_tests::cases! { "many_messages.c":
        recvmmsg_waits_for_all,
        each_message_has_the_sockets_limit,
        the_time_of_recvmmsg_is_looked_at_after_each_message,
        recvmmsg_for_one_takes_what_is_there,
        an_error_after_a_message_is_the_next_calls,
        an_error_before_a_message_is_told,
        a_handler_ends_recvmmsg_after_a_message,
        sendmmsg_waits_for_room_for_all,
        sendmmsg_completes_each_message_of_a_stream,
        sendmmsg_gives_how_many_went_out_before_a_bad_one,
        a_datagram_waits_for_room_at_its_receiver,
        a_datagram_socket_that_is_shut_down_gives_0,
    }
}

mod time_limits {
    raddle_tests::cases! { "time_limits.c":
        an_accepted_socket_has_its_listeners_limit,
        a_limit_that_is_set_after_a_connection_came_is_not_the_connections,
        duplicates_share_a_limit,
        a_passed_socket_has_its_limit,
        a_forked_child_has_the_limit,
        the_limit_outlasts_execve,
        another_process_changes_a_limit,
        a_wait_under_way_keeps_its_limit,
        a_number_has_no_limit_of_the_socket_before,
        a_negative_limit_is_none_to_wait_for,
        sends_have_a_limit,
        files_and_pipes_are_sent_within_a_limit,
        connections_have_a_limit,
        a_connection_by_name_has_a_limit,
        what_came_before_the_end_of_the_limit_is_given,
        no_handler_restarts_a_call_with_a_limit,
    }
}

mod interrupted_parts {
    raddle_tests::cases! { "interrupted_parts.c":
        a_handler_ends_a_write_after_a_part,
        a_handler_ends_a_receive_of_all_after_a_part,
        a_reset_after_a_received_part_is_the_next_calls,
        a_reset_after_a_sent_part_is_the_next_calls,
        urgent_data_ends_a_receive_of_all,
        passed_descriptors_end_a_receive_of_all,
    }
}

mod readiness {
    raddle_tests::cases! { "readiness.c":
        poll_times_out,
        poll_tells_which_of_ten_is_ready,
        poll_ignores_negative_and_tells_bad_descriptors,
        poll_tells_hang_up_and_error,
        poll_wakes_when_the_writer_goes,
        poll_of_plain_files_is_ready_at_once,
        poll_for_writing_waits_for_room,
        many_threads_poll_the_same_descriptors,
        ppoll_takes_nanoseconds,
        select_tells_which_are_ready,
        select_times_out_and_clears_its_sets,
        an_interrupted_select_leaves_its_sets,
        pselect_opens_its_mask_only_while_it_waits,
        a_signal_interrupts_poll_even_with_sa_restart,
        poll_serves_a_server_of_one_thread,
        no_question_is_interrupted_without_a_signal,
        poll_for_a_class_of_data_is_woken,
        poll_for_room_for_a_class_of_data_is_woken,
    }
}

mod drained_poll {
    raddle_tests::cases! { "drained_poll.c":
        what_comes_later_ends_it,
        what_came_before_is_found,
        nothing_is_found_where_nothing_came,
        a_socket_in_non_blocking_mode_is_no_different,
        data_goes_before_a_signal,
    }
}

mod epoll {
    raddle_tests::cases! { "epoll.c":
        epoll_wait_times_out,
        level_triggered_tells_until_it_is_read,
        edge_triggered_tells_once_for_each_arrival,
        one_shot_is_silent_until_rearmed,
        control_errors_are_told,
        several_threads_wait_on_one_epoll,
        adding_a_ready_descriptor_wakes_a_waiter,
        modifying_wakes_a_waiter,
        one_epoll_inside_another,
        a_closed_descriptor_leaves,
        hang_up_is_told_unasked,
        timers_and_events_together,
        events_come_in_turn_when_the_array_is_small,
        an_event_loop_serves_40_clients,
        epoll_pwait_opens_its_mask,
    }
}

mod edges {
    raddle_tests::cases! { "edges.c":
        an_end_that_came_with_the_data_is_read,
        an_end_that_came_after_a_short_read_is_read,
        data_behind_urgent_data_is_read,
        a_read_that_ends_at_passed_descriptors_leaves_the_rest,
        answers_that_come_between_a_short_read_and_the_wait_are_seen,
        a_time_limit_ends_a_read_after_a_short_one,
        a_mode_that_another_thread_sets_counts_for_the_next_read,
        a_mode_that_another_process_sets_counts_too,
        a_read_that_must_not_wait_gets_what_has_just_come,
        several_readers_of_one_socket_share_all_bytes_and_all_see_the_end,
        duplicates_are_emptied_for_each_other,
        a_process_that_shares_the_socket_takes_what_it_reads,
        a_read_waits_for_the_low_water_mark,
        a_number_closed_by_a_raw_system_call_is_another_socket,
        a_number_closed_by_a_raw_system_call_is_a_pipe,
    }
}

mod disk {
    raddle_tests::cases! { "disk.c":
        sixty_four_threads_read_past_the_cache,
        sixty_four_threads_read_what_was_dropped_from_the_cache,
        threads_share_one_position,
        appended_lines_stay_whole,
        blocks_are_written_in_their_places,
        ends_and_errors_are_told,
        pread_of_a_pipe_is_refused,
        who_writes_beyond_the_size_limit_gets_the_signal,
        fork_while_reads_are_under_way,
        a_file_in_memory_is_synced_at_once,
        signals_do_not_interrupt_the_disk,
        reads_go_on_when_their_number_means_another_file,
        reads_go_on_beside_a_thread_stuck_in_the_kernel,
        reads_go_on_beside_a_thread_that_computes,
        fork_while_dropped_blocks_are_read,
        reads_go_on_while_carriers_come_and_go,
        a_closed_file_is_let_go,
        a_closed_file_is_let_go_beside_threads_stuck_in_the_kernel,
    }
}

mod disk_limits {
    raddle_tests::cases! { "disk_limits.c":
        reads_go_on_where_io_uring_is_refused,
        reads_go_on_where_aio_is_refused,
        reads_go_on_where_both_are_refused,
        reads_go_on_where_both_can_be_made_and_not_used,
        transfers_go_on_when_entering_a_ring_is_refused_from_now_on,
        transfers_go_on_when_rings_and_contexts_kill_from_now_on,
        transfers_go_on_when_somebody_listens_to_the_filter,
        transfers_go_on_when_a_filter_is_refused,
        reads_go_on_without_memory_to_lock,
        seven_hundred_threads_read,
        files_without_a_disk_are_read,
        files_of_an_overlay_are_read,
        exec_while_reads_are_under_way,
        a_child_has_none_of_its_parents_reads,
        reads_outlive_loops_that_close_everything,
        reads_end_beside_threads_that_are_stuck_and_that_compute,
        vectors_are_read_past_the_cache,
        reads_past_the_cache_see_what_was_written_through_it,
        who_copies_beyond_the_size_limit_gets_the_signal,
        four_threads_copy_a_file,
    }
}

mod queues {
    raddle_tests::cases! { "queues.c":
        a_lock_is_handed_over,
        record_locks_wait_for_their_owner,
        queues_and_semaphores_wake_each_other,
        each_call_restarts_or_not_as_in_linux,
        waits_are_cancelled,
        random_bytes_in_four_threads,
    }
}

mod neighbours {
    raddle_tests::cases! { "neighbours.c":
        pipe_read,
        pipe_readv,
        pipe_write,
        pipe_splice,
        pipe_tee,
        pipe_vmsplice,
        fifo_open,
        counter_read,
        counter_write,
        timer_read,
        watch_read,
        terminal_read,
        terminal_write,
        socket_recv,
        socket_recvmsg,
        socket_send,
        socket_sendfile,
        socket_accept,
        socket_connect,
        poll_pipe,
        select_pipe,
        epoll_pipe,
    }
}

mod slow_files {
    raddle_tests::cases! { "slow_files.c":
        slow_open,
        slow_close,
        slow_lookup,
        slow_stat,
        slow_fstat,
        slow_lstat,
        slow_statx,
        slow_statfs,
        slow_getdents,
        slow_read,
        slow_readv,
        slow_pread,
        slow_preadv,
        slow_write,
        slow_writev,
        slow_pwrite,
        slow_pwritev,
        slow_fsync,
        slow_fdatasync,
        slow_fallocate,
        slow_ftruncate,
        slow_copy,
        slow_page_fault,
        a_slow_file_that_was_open_before_the_first_thread,
    }
}

mod neighbours_others {
    raddle_tests::cases! { "neighbours_others.c":
        child_wait4,
        child_waitid,
        child_pidfd,
        file_flock,
        file_ofd,
        file_record,
        posix_receive,
        posix_send,
        queue_receive,
        queue_send,
        semaphore_down,
        semaphore_timed,
        shared_futex,
        aio_events,
    }
}
