use std::io;

use super::checks::*;
use super::*;
use crate::tracefs::TracefsError;

const NONE: Capabilities = Capabilities::of(&[]);

#[test]
fn kernels_whose_interrupts_end_with_events_are_known() {
    let rt = "#1 SMP PREEMPT_RT Debian 6.12.117-1~deb12u1 (2026-10-01)";
    let other = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-10-01)";
    assert!(do_interrupts_end_with_events(rt, "quiet"));
    assert!(do_interrupts_end_with_events(other, "quiet threadirqs"));
    assert!(do_interrupts_end_with_events(other, "nohz_full=1-3 quiet"));
    assert!(!do_interrupts_end_with_events(other, "quiet nothreadirqs"));
    assert!(!do_interrupts_end_with_events("", ""));
}

#[test]
fn the_administrators_capability_stands_for_others() {
    let check = privileges(&Ok(NONE));
    assert!(check.blocks_recording() && check.detail.contains("CAP_BPF and CAP_PERFMON"), "{check:?}");
    assert!(!privileges(&Ok(Capabilities::of(&[Capability::SysAdmin]))).blocks_recording());
}

#[test]
fn priorities_help_and_are_no_condition() {
    for (has, status) in [(NONE, Status::No), (Capabilities::of(&[Capability::SysNice]), Status::Yes)] {
        let check = one_capability(has, Capability::SysNice);
        assert!(Capability::ALL.contains(&Capability::SysNice) && check.id.name() == "CAP_SYS_NICE");
        assert!(check.status == status && !check.blocks_recording(), "{check:?}");
        assert_eq!(check.remedy.is_some_and(|text| text.contains("nice -20")), status == Status::No);
    }
    // The administrator's does not stand for it (`can_nice` in kernel/sched/syscalls.c).
    let admin = one_capability(Capabilities::of(&[Capability::SysAdmin]), Capability::SysNice);
    assert_eq!(admin.status, Status::No);
}

#[test]
fn only_confidentiality_forbids_recording() {
    let check = |text: &str| lockdown(Ok(text.to_owned()));
    assert!(!check("[none] integrity confidentiality").blocks_recording());
    assert!(!check("none [integrity] confidentiality").blocks_recording());
    let locked = check("none integrity [confidentiality]");
    assert!(locked.blocks_recording() && locked.remedy.is_some());
    assert_eq!(check("nonsense").status, Status::Unknown);
    assert_eq!(lockdown(Err(io::ErrorKind::NotFound.into())).status, Status::Yes);
    assert_eq!(lockdown(Err(io::ErrorKind::PermissionDenied.into())).status, Status::Unknown);
}

#[test]
fn old_kernels_lack_what_newer_ones_have() {
    let statuses = |major, minor| -> Vec<bool> {
        let checks = by_version(Some(KernelVersion::new(major, minor, 3)));
        checks.iter().map(|check| check.status == Status::Yes).collect()
    };
    assert_eq!(statuses(5, 10), [false, false, false, false]);
    assert_eq!(statuses(5, 15), [true, false, false, false]);
    assert_eq!(statuses(6, 1), [true, true, false, false]);
    assert_eq!(statuses(6, 12), [true, true, true, true]);
    assert!(by_version(None).iter().all(|check| check.status == Status::Unknown));
    assert!(kernel(Some(KernelVersion::new(5, 10, 0))).blocks_recording());
}

#[test]
fn a_refused_map_is_a_matter_of_permission_or_of_the_kernel() {
    let check = |errno| bpf_map_check(Some(io::Error::from_raw_os_error(errno)));
    assert_eq!(check(libc::EPERM).need, Need::Permission);
    assert_eq!(check(libc::ENOSYS).need, Need::Support);
    assert_eq!(check(libc::EINVAL).need, Need::Support);
    assert!(!bpf_map_check(None).blocks_recording());
}

#[test]
fn tracefs_troubles_have_remedies() {
    let check = |error| tracefs_readable(&Err(error));
    let denied = check(TracefsError::NotPermitted("/sys/kernel/tracing".into()));
    assert_eq!((denied.need, denied.blocks_recording()), (Need::Permission, true));
    let unmounted = check(TracefsError::NotMounted(io::Error::from_raw_os_error(libc::EPERM)));
    assert!(unmounted.remedy.unwrap().starts_with("mount -t tracefs"));
    assert_eq!(check(TracefsError::NotInKernel).need, Need::Support);
}

#[test]
fn settings_are_understood() {
    assert_eq!(jit(&Ok("0".to_owned())).status, Status::No);
    assert_eq!(jit(&Ok("1".to_owned())).status, Status::Yes);
    let none = Ok(NONE);
    assert_eq!(perf_event_paranoid(Ok("2".to_owned()), &none).status, Status::No);
    assert_eq!(perf_event_paranoid(Ok("-1".to_owned()), &none).status, Status::Yes);
    assert_eq!(
        perf_event_paranoid(Ok("4".to_owned()), &Ok(Capabilities::of(&[Capability::Perfmon]))).status,
        Status::Yes
    );
    assert_eq!(perf_event_paranoid(Ok("x".to_owned()), &none).status, Status::Unknown);
    assert_eq!(memlock(Some(KernelVersion::new(5, 15, 0)), None).status, Status::Yes);
}

#[test]
fn a_missing_feature_comes_before_a_missing_permission() {
    let features = Features {
        checks: vec![
            Check::new(CheckId::Privileges, Need::Permission, false, ""),
            Check::new(CheckId::Jit, Need::Optional, false, ""),
            Check::new(CheckId::Kernel, Need::Support, false, ""),
        ],
    };
    let ids: Vec<CheckId> = features.blockers().iter().map(|check| check.id).collect();
    assert_eq!(ids, [CheckId::Kernel, CheckId::Privileges]);
    assert!(!features.has(CheckId::Kernel) && !features.has(CheckId::Btf));
}
