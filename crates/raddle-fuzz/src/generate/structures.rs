//! The structures that calls read at addresses.

mod files;
mod ids;
mod mappings;
mod processes;
mod signals;
mod sockets;
mod times;

pub use files::{
    aio_context, descriptor_or_new, descriptor_set, epoll_event, fcntl_argument, fit_vector,
    ioctl_argument, offset, poll_list, room_for_context, set_and_size, small_buffer, vector,
};
pub use ids::{
    capabilities, capability_header, filter, fit_filter, fit_prctl, personality, prctl_argument,
    processor_set, scheduling_attributes, scheduling_parameter, small_set,
};
pub use mappings::{changing_bytes, changing_place, fit_mapping, fit_remapping, stack_place};
pub use processes::{
    clone_arguments, clone_stack, fit_clone, fit_program, fit_wait, limit, message_queue,
    program_arguments, queue_message, semaphore_operations, semaphore_set, shell_command,
};
pub use signals::{
    room_for_timer, signal_action, signal_event, signal_information, signal_set, signal_stack,
    timer,
};
pub use sockets::{
    message_in, message_out, messages_in, messages_out, name_length, option_value, room_for_name,
    socket_name,
};
pub use times::{
    deadline, fit_futex, fit_sleep, futex_limit, futex_vector, interval, interval_us, robust_head,
    short_time, time_limit, time_limit_us,
};
