//! Every rule of numbers and windows, on code made for it.

mod synthetic;

use raddle_patch::{Cause, EntryKind, Image, Number, Refusal, Site, State, plan};
use synthetic::{Builder, CONSTANTS, TEXT};

const ALL: [u64; 8] = [u64::MAX; 8];

const GETPID: [u8; 5] = [0xb8, 39, 0, 0, 0]; // mov $39, %eax
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const RET: [u8; 1] = [0xc3];
const CMP_ERROR: [u8; 6] = [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]; // cmp $-4095, %rax
const LOAD_RIP: [u8; 7] = [0x48, 0x8b, 0x05, 0, 0, 0, 0]; // mov 0(%rip), %rax
const LOAD_RDI_RIP: [u8; 7] = [0x48, 0x8b, 0x3d, 0, 0, 0, 0]; // mov 0(%rip), %rdi
const MOV_ESI: [u8; 5] = [0xbe, 1, 0, 0, 0]; // mov $1, %esi
const MOV_R10_RCX: [u8; 3] = [0x49, 0x89, 0xca]; // mov %rcx, %r10
const LOAD_R9_RSP: [u8; 5] = [0x4c, 0x8b, 0x4c, 0x24, 0x08]; // mov 8(%rsp), %r9
const PUSH_RBX: [u8; 1] = [0x53];
const PXOR: [u8; 4] = [0x66, 0x0f, 0xef, 0xc0]; // pxor %xmm0, %xmm0

/// Returns the places found in an image of these functions.
fn sites_of(builder: &Builder, wanted: &[u64; 8]) -> Vec<Site> {
    let loaded = builder.load();
    let mut scratch = [Site::EMPTY; 32];
    let plan = plan(&loaded.image().unwrap(), wanted, &mut scratch).unwrap();
    let relative = |mut site: Site| {
        site.address -= loaded.base();
        site
    };
    plan.sites().iter().copied().map(relative).collect()
}

/// Returns the one site of one function.
fn site_of(parts: &[&[u8]]) -> Site {
    let mut builder = Builder::default();
    builder.function(&parts.concat());
    only(&builder)
}

fn only(builder: &Builder) -> Site {
    let sites = sites_of(builder, &ALL);
    assert_eq!(sites.len(), 1, "{sites:?}");
    sites[0]
}

fn window(site: &Site) -> (u8, u8) {
    assert!(matches!(site.state, State::Planned(_)), "{site:?}");
    (site.before, site.after)
}

const NO_WINDOW: State = State::Refused(Cause::NoWindow);

#[test]
fn the_number_and_the_site_are_the_usual_window() {
    let site = site_of(&[&GETPID, &SYSCALL, &RET]);
    assert_eq!(site.address, TEXT + 5);
    assert_eq!(site.number, Number::Constant(39));
    assert_eq!(window(&site), (5, 0));
    assert_eq!(site.state, State::Planned(EntryKind::Plain));
}

#[test]
fn exclusive_or_means_number_zero() {
    let site = site_of(&[&[0x31, 0xc0], &SYSCALL, &CMP_ERROR, &RET]);
    assert_eq!(site.number, Number::Constant(0));
    assert_eq!(window(&site), (0, 6));
}

#[test]
fn short_instructions_add_up_to_a_window() {
    let site = site_of(&[&RET, &[0x31, 0xc0], &[0x31, 0xff], &SYSCALL, &RET]);
    assert_eq!(window(&site), (4, 0));
    let site = site_of(&[&RET, &[0x31, 0xc0], &SYSCALL, &[0x85, 0xc0], &RET]);
    assert_eq!(window(&site), (2, 2));
}

#[test]
fn other_instructions_may_stand_between_number_and_site() {
    let site = site_of(&[&GETPID, &MOV_R10_RCX, &SYSCALL, &RET]);
    assert_eq!(site.number, Number::Constant(39));
    assert_eq!(window(&site), (3, 0));
}

#[test]
fn a_branch_that_is_not_taken_keeps_the_number() {
    let jne_behind_ret = [0x75, 0x03];
    let site = site_of(&[&GETPID, &jne_behind_ret, &SYSCALL, &RET, &RET]);
    assert_eq!(site.number, Number::Constant(39));
}

#[test]
fn whatever_writes_eax_hides_the_number() {
    let mov_edi_eax: &[u8] = &[0x89, 0xf8];
    let call: &[u8] = &[0xe8, 0, 0, 0, 0];
    let setne_al: &[u8] = &[0x0f, 0x95, 0xc0];
    let mov_ah: &[u8] = &[0xb4, 1];
    for write in [mov_edi_eax, call, setne_al, mov_ah] {
        let site = site_of(&[&GETPID, write, &MOV_ESI, &SYSCALL, &RET]);
        assert_eq!(site.number, Number::AtRunTime, "{write:x?}");
        assert!(matches!(
            site.state,
            State::Planned(EntryKind::Clone | EntryKind::PlainClone)
        ));
    }
}

#[test]
fn a_jump_behind_the_number_hides_it() {
    // jmp over `mov $39, %eax` to the load of esi.
    let site = site_of(&[&[0xeb, 0x05], &GETPID, &MOV_ESI, &SYSCALL, &RET]);
    assert_eq!(site.number, Number::AtRunTime);
    assert_eq!(window(&site), (5, 0));
}

#[test]
fn a_number_that_no_path_brings_to_the_site_does_not_count() {
    let site = site_of(&[&GETPID, &RET, &MOV_ESI, &SYSCALL, &RET]);
    assert_eq!(site.number, Number::AtRunTime);
}

#[test]
fn no_jump_of_the_function_leads_into_a_window() {
    // je from the end back to the site itself: it must begin the window.
    let back: &[u8] = &[0x74, 0xf6];
    let site = site_of(&[&GETPID, &SYSCALL, &CMP_ERROR, back, &RET]);
    assert_eq!(site.number, Number::AtRunTime);
    assert_eq!(window(&site), (0, 6));
    // Here the site would be in the middle of every window.
    let to_cmp: &[u8] = &[0x74, 0xf8];
    let site = site_of(&[&RET, &SYSCALL, &CMP_ERROR, to_cmp, &RET]);
    assert_eq!(site.state, NO_WINDOW);
}

#[test]
fn a_jump_behind_a_prefix_counts() {
    // je into `lock incl (%rdi)`, behind `lock`.
    let parts: [&[u8]; 4] = [&[0x74, 0x01], &[0xf0, 0xff, 0x07], &SYSCALL, &RET];
    assert_eq!(site_of(&parts).state, NO_WINDOW);
    let straight: [&[u8]; 4] = [&[0x74, 0x00], &[0xf0, 0xff, 0x07], &SYSCALL, &RET];
    assert_eq!(window(&site_of(&straight)), (3, 0));
}

#[test]
fn far_jumps_from_other_functions_count() {
    for opcode in [&[0xe9][..], &[0xe8], &[0x0f, 0x84]] {
        let mut builder = Builder::default();
        builder.function(&[&GETPID[..], &SYSCALL, &CMP_ERROR, &RET].concat());
        let site = TEXT + 5;
        let from = builder.function(&[0x90; 300]);
        assert_eq!(window(&only(&builder)), (5, 0));
        let end = from + 300 + 4 + opcode.len();
        let by = site as i32 - end.next_multiple_of(16) as i32;
        // The jump ends where the next multiple of 16 would be.
        let mut code = vec![0x90; end.next_multiple_of(16) - end];
        code.extend_from_slice(opcode);
        code.extend_from_slice(&by.to_le_bytes());
        builder = Builder::default();
        builder.function(&[&GETPID[..], &SYSCALL, &CMP_ERROR, &RET].concat());
        builder.function(&[vec![0x90; 300], code].concat());
        let site = only(&builder);
        assert_eq!(site.number, Number::AtRunTime, "{opcode:x?}");
        assert_eq!(window(&site), (0, 6), "{opcode:x?}");
    }
}

#[test]
fn near_jumps_from_neighbours_count() {
    let code = [&GETPID[..], &SYSCALL, &CMP_ERROR, &RET].concat();
    // From the function behind, at 16, to 5; from the one before, at 0, to 16 + 5.
    let mut behind = Builder::default();
    behind.function(&code);
    behind.function(&[0xeb, (5i8 - 18) as u8]);
    let mut before = Builder::default();
    before.function(&[0xeb, 16 + 5 - 2]);
    before.function(&code);
    for builder in [behind, before] {
        let site = only(&builder);
        assert_eq!(site.number, Number::AtRunTime);
        assert_eq!(window(&site), (0, 6));
    }
}

#[test]
fn what_only_looks_like_a_near_jump_does_not_count() {
    let mut builder = Builder::default();
    builder.function(&[&GETPID[..], &SYSCALL, &CMP_ERROR, &RET].concat());
    // mov $imm, %ecx: read from its second byte on, it is the jump of the last test.
    builder.function(&[0xb9, 0xeb, (5i8 - 19) as u8, 0, 0, 0xc3]);
    assert_eq!(window(&only(&builder)), (5, 0));
}

#[test]
fn jump_tables_count() {
    let build = |entry: usize| {
        let lea_by = CONSTANTS as i32 - (TEXT as i32 + 7);
        let mut code = vec![0x48, 0x8d, 0x15]; // lea CONSTANTS(%rip), %rdx
        code.extend_from_slice(&lea_by.to_le_bytes());
        code.extend_from_slice(&[0x48, 0x63, 0x04, 0x82]); // movslq (%rdx,%rax,4), %rax
        code.extend_from_slice(&[0x48, 0x01, 0xd0]); // add %rdx, %rax
        code.extend_from_slice(&[0xff, 0xe0]); // jmp *%rax
        assert_eq!(code.len(), 16);
        code.extend_from_slice(&[&GETPID[..], &SYSCALL, &CMP_ERROR, &RET].concat());
        let mut builder = Builder::default();
        builder.function(&code);
        let entries = [TEXT + 16, TEXT + entry].map(|target| target as i32 - CONSTANTS as i32);
        builder.constants(&entries.map(i32::to_le_bytes).concat());
        only(&builder)
    };
    assert_eq!(window(&build(16)), (5, 0));
    let site = build(16 + 5);
    assert_eq!(site.number, Number::AtRunTime);
    assert_eq!(window(&site), (0, 6));
}

#[test]
fn operands_relative_to_rip_stay_where_they_are() {
    let site = site_of(&[&LOAD_RDI_RIP, &SYSCALL, &LOAD_RIP, &RET]);
    assert_eq!(site.state, NO_WINDOW);
    let site = site_of(&[&LOAD_RDI_RIP, &MOV_ESI, &SYSCALL, &LOAD_RIP, &RET]);
    assert_eq!(window(&site), (5, 0));
}

#[test]
fn instructions_that_move_the_stack_pointer_stay_where_they_are() {
    let add_rsp: &[u8] = &[0x48, 0x83, 0xc4, 0x08];
    let pop_rbx: &[u8] = &[0x5b];
    let leave: &[u8] = &[0xc9];
    for instruction in [add_rsp, pop_rbx, leave, &PUSH_RBX] {
        let site = site_of(&[&MOV_ESI, instruction, &SYSCALL, instruction, &MOV_ESI, &RET]);
        assert_eq!(site.state, NO_WINDOW, "{instruction:x?}");
    }
}

#[test]
fn operands_relative_to_rsp_are_moved_only_if_nothing_else_can_be() {
    let site = site_of(&[&LOAD_R9_RSP, &SYSCALL, &CMP_ERROR, &RET]);
    assert_eq!(window(&site), (0, 6));
    let site = site_of(&[&LOAD_R9_RSP, &SYSCALL, &RET]);
    assert_eq!(window(&site), (5, 0));
}

#[test]
fn windows_do_not_overlap() {
    let mut builder = Builder::default();
    let code = [&GETPID[..], &SYSCALL, &MOV_R10_RCX, &SYSCALL, &RET].concat();
    builder.function(&code);
    let sites = sites_of(&builder, &ALL);
    assert_eq!(
        sites.iter().map(window).collect::<Vec<_>>(),
        [(5, 0), (3, 0)]
    );
    let mut builder = Builder::default();
    builder.function(&[&RET[..], &SYSCALL, &MOV_R10_RCX, &SYSCALL, &RET].concat());
    let sites = sites_of(&builder, &ALL);
    assert_eq!(window(&sites[0]), (0, 3));
    assert_eq!(sites[1].state, NO_WINDOW);
}

#[test]
fn bytes_inside_an_instruction_are_no_site() {
    // mov $0x050f, %esi
    let site = site_of(&[&[0xbe, 0x0f, 0x05, 0, 0], &RET]);
    assert_eq!(site.state, State::NotCode);
}

#[test]
fn code_that_can_not_be_decoded_is_refused() {
    let site = site_of(&[&[0x06], &GETPID, &SYSCALL, &RET]);
    assert_eq!(site.state, State::Refused(Cause::Undecodable));
}

#[test]
fn a_site_behind_the_unwind_entry_is_found_but_not_called_vector_free() {
    let mut builder = Builder::default();
    builder.function_covered(&[&GETPID[..], &SYSCALL, &RET].concat(), 5);
    assert_eq!(only(&builder).state, State::Planned(EntryKind::Vector));
}

#[test]
fn a_site_before_the_first_function_is_refused() {
    let mut builder = Builder::default();
    builder.function(&RET);
    let mut bytes = builder.bytes();
    // The entry and the function move on by 16 bytes, and a site appears before.
    bytes.copy_within(TEXT..TEXT + 1, TEXT + 16);
    bytes[TEXT..TEXT + 2].copy_from_slice(&SYSCALL);
    let pair = 0x4000 + 12;
    let moved = i32::from_le_bytes(bytes[pair..pair + 4].try_into().unwrap()) + 16;
    bytes[pair..pair + 4].copy_from_slice(&moved.to_le_bytes());
    let loaded = synthetic::Loaded::new(&bytes);
    let mut scratch = [Site::EMPTY; 4];
    let plan = plan(&loaded.image().unwrap(), &ALL, &mut scratch).unwrap();
    assert_eq!(plan.sites()[0].state, State::Refused(Cause::NoFunction));
}

#[test]
fn a_vector_register_anywhere_in_the_function_is_saved() {
    let site = site_of(&[&GETPID, &SYSCALL, &PXOR, &RET]);
    assert_eq!(site.state, State::Planned(EntryKind::Narrow));
    let vpxor = [0xc5, 0xf9, 0xef, 0xc0];
    let site = site_of(&[&GETPID, &SYSCALL, &vpxor, &RET]);
    assert_eq!(site.state, State::Planned(EntryKind::Vector));
}

#[test]
fn x87_registers_anywhere_in_the_function_are_saved() {
    let fld1 = [0xd9, 0xe8];
    let site = site_of(&[&fld1, &GETPID, &SYSCALL, &RET]);
    assert_eq!(site.state, State::Planned(EntryKind::Vector));
}

#[test]
fn any_function_of_the_image_may_hold_registers_where_no_abi_binds() {
    const EMMS: [u8; 2] = [0x0f, 0x77];
    const FLD1: [u8; 2] = [0xd9, 0xe8];
    const VZEROUPPER: [u8; 3] = [0xc5, 0xf8, 0x77];
    const UNKNOWN: [u8; 1] = [0x06];
    // jmp 1f; .byte 0x48, 0xb8; 1: movq %r9, %xmm9: the data hides the instruction.
    const HIDDEN: [u8; 9] = [0xeb, 2, 0x48, 0xb8, 0x66, 0x4d, 0x0f, 0x6e, 0xc9];
    const MOVDQU: [u8; 4] = [0xf3, 0x0f, 0x6f, 0xc1];
    let hidden = [&HIDDEN[..], &[0x90; 8], &RET].concat();
    for (other, [constant, at_run_time]) in [
        (&RET[..], [EntryKind::Plain, EntryKind::PlainClone]),
        (&PXOR, [EntryKind::Narrow, EntryKind::NarrowClone]),
        (&MOVDQU, [EntryKind::Narrow, EntryKind::NarrowClone]),
        (&EMMS, [EntryKind::Vector, EntryKind::Clone]),
        (&FLD1, [EntryKind::Vector, EntryKind::Clone]),
        (&VZEROUPPER, [EntryKind::Vector, EntryKind::Clone]),
        (&UNKNOWN, [EntryKind::Vector, EntryKind::Clone]),
        (&hidden, [EntryKind::Vector, EntryKind::Clone]),
    ] {
        let mut builder = Builder::default();
        builder.function(&[&GETPID[..], &SYSCALL, &RET].concat());
        builder.function(&[&MOV_ESI[..], &SYSCALL, &RET].concat());
        builder.function(other);
        let loaded = synthetic::Loaded::new(&builder.bytes());
        let mut scratch = [Site::EMPTY; 4];
        let plan = plan(&loaded.any_image().unwrap(), &ALL, &mut scratch).unwrap();
        let states: Vec<_> = plan.sites().iter().map(|site| site.state).collect();
        let expected = [constant, at_run_time].map(State::Planned);
        assert_eq!(states, expected, "{other:x?}");
    }
}

#[test]
fn parts_that_are_moved_elsewhere_belong_to_the_function() {
    let build = |back: i8| {
        let mut builder = Builder::default();
        // je to the part at 16.
        builder.function(&[&GETPID[..], &SYSCALL, &[0x74, 16 - 9], &RET].concat());
        builder.function(&[&PXOR[..], &[0xeb, (back - 22) as u8]].concat());
        builder.function(&RET);
        only(&builder).state
    };
    assert_eq!(
        build(9),
        State::Planned(EntryKind::Narrow),
        "it comes back behind the site"
    );
    assert_eq!(
        build(0),
        State::Planned(EntryKind::Plain),
        "it calls the function at its end"
    );
}

#[test]
fn clones_call_the_clone_entries() {
    for number in [56, 58] {
        let site = site_of(&[&[0xb8, number, 0, 0, 0], &SYSCALL, &RET]);
        assert_eq!(site.state, State::Planned(EntryKind::Clone));
    }
    let site = site_of(&[&[0xb8, 0xb3, 1, 0, 0], &SYSCALL, &RET]);
    assert_eq!(site.number, Number::Constant(435));
    assert_eq!(site.state, State::Planned(EntryKind::Clone));
}

#[test]
fn a_number_known_at_run_time_saves_vectors_where_there_are_some() {
    let mov_edi_eax: &[u8] = &[0x89, 0xf8];
    let xorps: &[u8] = &[0x0f, 0x57, 0xc0];
    let plain = site_of(&[mov_edi_eax, &MOV_ESI, &SYSCALL, &RET]);
    assert_eq!(plain.state, State::Planned(EntryKind::PlainClone));
    let vector = site_of(&[xorps, mov_edi_eax, &MOV_ESI, &SYSCALL, &RET]);
    assert_eq!(vector.state, State::Planned(EntryKind::NarrowClone));
}

#[test]
fn only_wanted_numbers_are_planned() {
    let mut builder = Builder::default();
    builder.function(&[&GETPID[..], &SYSCALL, &RET].concat());
    assert_eq!(sites_of(&builder, &[0; 8])[0].state, State::Untouched);
    let getpid_alone = [1 << 39, 0, 0, 0, 0, 0, 0, 0];
    assert!(matches!(
        sites_of(&builder, &getpid_alone)[0].state,
        State::Planned(_)
    ));
}

#[test]
fn numbers_beyond_the_set_are_left_untouched() {
    let site = site_of(&[&[0xb8, 0, 2, 0, 0], &SYSCALL, &RET]);
    assert_eq!(site.number, Number::Constant(512));
    assert_eq!(site.state, State::Untouched);
}

#[test]
fn the_signal_return_is_left_untouched() {
    // mov $15, %rax
    let site = site_of(&[&[0x48, 0xc7, 0xc0, 15, 0, 0, 0], &SYSCALL]);
    assert_eq!(site.number, Number::Constant(15));
    assert_eq!(site.state, State::Untouched);
}

#[test]
fn too_little_scratch_is_a_refusal() {
    let mut builder = Builder::default();
    builder.function(&[&SYSCALL[..], &SYSCALL, &RET].concat());
    let loaded = builder.load();
    let refusal = plan(&loaded.image().unwrap(), &ALL, &mut [Site::EMPTY; 1]).err();
    assert_eq!(refusal, Some(Refusal::TooManySites));
}

#[test]
fn an_image_without_sites_has_an_empty_plan() {
    let mut builder = Builder::default();
    builder.function(&RET);
    assert!(sites_of(&builder, &ALL).is_empty());
}

#[test]
fn images_are_shareable() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Image>();
}
