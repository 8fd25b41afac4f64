//! Events of KVM (plugins/plugin_kvm.c of libtraceevent).

use super::super::text::{hex, signed, unsigned};
use super::{Num, labelled_hex};
use ftrace_event::Endian;
use ftrace_event::{Format, Machine};

/// Why a guest was left (arch/x86/include/uapi/asm/vmx.h, EXIT_REASON_*).
const VMX_EXITS: &[(i32, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (7, "PENDING_INTERRUPT"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (36, "MWAIT_INSTRUCTION"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (52, "PREEMPTION_TIMER"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (58, "INVPCID"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
];

/// The same of AMD's processors (arch/x86/include/uapi/asm/svm.h, SVM_EXIT_*).
const SVM_EXITS: &[(i32, &str)] = &[
    (0x000, "EXIT_READ_CR0"),
    (0x003, "EXIT_READ_CR3"),
    (0x004, "EXIT_READ_CR4"),
    (0x008, "EXIT_READ_CR8"),
    (0x010, "EXIT_WRITE_CR0"),
    (0x013, "EXIT_WRITE_CR3"),
    (0x014, "EXIT_WRITE_CR4"),
    (0x018, "EXIT_WRITE_CR8"),
    (0x020, "EXIT_READ_DR0"),
    (0x021, "EXIT_READ_DR1"),
    (0x022, "EXIT_READ_DR2"),
    (0x023, "EXIT_READ_DR3"),
    (0x024, "EXIT_READ_DR4"),
    (0x025, "EXIT_READ_DR5"),
    (0x026, "EXIT_READ_DR6"),
    (0x027, "EXIT_READ_DR7"),
    (0x030, "EXIT_WRITE_DR0"),
    (0x031, "EXIT_WRITE_DR1"),
    (0x032, "EXIT_WRITE_DR2"),
    (0x033, "EXIT_WRITE_DR3"),
    (0x034, "EXIT_WRITE_DR4"),
    (0x035, "EXIT_WRITE_DR5"),
    (0x036, "EXIT_WRITE_DR6"),
    (0x037, "EXIT_WRITE_DR7"),
    (0x040, "EXIT_EXCP_DE"),
    (0x041, "EXIT_EXCP_DB"),
    (0x043, "EXIT_EXCP_BP"),
    (0x044, "EXIT_EXCP_OF"),
    (0x045, "EXIT_EXCP_BR"),
    (0x046, "EXIT_EXCP_UD"),
    (0x047, "EXIT_EXCP_NM"),
    (0x048, "EXIT_EXCP_DF"),
    (0x04a, "EXIT_EXCP_TS"),
    (0x04b, "EXIT_EXCP_NP"),
    (0x04c, "EXIT_EXCP_SS"),
    (0x04d, "EXIT_EXCP_GP"),
    (0x04e, "EXIT_EXCP_PF"),
    (0x050, "EXIT_EXCP_MF"),
    (0x051, "EXIT_EXCP_AC"),
    (0x052, "EXIT_EXCP_MC"),
    (0x053, "EXIT_EXCP_XF"),
    (0x060, "EXIT_INTR"),
    (0x061, "EXIT_NMI"),
    (0x062, "EXIT_SMI"),
    (0x063, "EXIT_INIT"),
    (0x064, "EXIT_VINTR"),
    (0x065, "EXIT_CR0_SEL_WRITE"),
    (0x066, "EXIT_IDTR_READ"),
    (0x067, "EXIT_GDTR_READ"),
    (0x068, "EXIT_LDTR_READ"),
    (0x069, "EXIT_TR_READ"),
    (0x06a, "EXIT_IDTR_WRITE"),
    (0x06b, "EXIT_GDTR_WRITE"),
    (0x06c, "EXIT_LDTR_WRITE"),
    (0x06d, "EXIT_TR_WRITE"),
    (0x06e, "EXIT_RDTSC"),
    (0x06f, "EXIT_RDPMC"),
    (0x070, "EXIT_PUSHF"),
    (0x071, "EXIT_POPF"),
    (0x072, "EXIT_CPUID"),
    (0x073, "EXIT_RSM"),
    (0x074, "EXIT_IRET"),
    (0x075, "EXIT_SWINT"),
    (0x076, "EXIT_INVD"),
    (0x077, "EXIT_PAUSE"),
    (0x078, "EXIT_HLT"),
    (0x079, "EXIT_INVLPG"),
    (0x07a, "EXIT_INVLPGA"),
    (0x07b, "EXIT_IOIO"),
    (0x07c, "EXIT_MSR"),
    (0x07d, "EXIT_TASK_SWITCH"),
    (0x07e, "EXIT_FERR_FREEZE"),
    (0x07f, "EXIT_SHUTDOWN"),
    (0x080, "EXIT_VMRUN"),
    (0x081, "EXIT_VMMCALL"),
    (0x082, "EXIT_VMLOAD"),
    (0x083, "EXIT_VMSAVE"),
    (0x084, "EXIT_STGI"),
    (0x085, "EXIT_CLGI"),
    (0x086, "EXIT_SKINIT"),
    (0x087, "EXIT_RDTSCP"),
    (0x088, "EXIT_ICEBP"),
    (0x089, "EXIT_WBINVD"),
    (0x08a, "EXIT_MONITOR"),
    (0x08b, "EXIT_MWAIT"),
    (0x08c, "EXIT_MWAIT_COND"),
    (0x08d, "EXIT_XSETBV"),
    (0x400, "EXIT_NPF"),
    (0x401, "EXIT_AVIC_INCOMPLETE_IPI"),
    (0x402, "EXIT_AVIC_UNACCELERATED_ACCESS"),
    (-1, "EXIT_ERR"),
];

/// Why a guest was left, and on which kind of processor.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Exit {
    reason: Num,
    isa: Option<Num>,
}

/// The numbers behind the reason of a nested exit.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Nested {
    exit: Exit,
    numbers: [Num; 4],
}

/// A page of a guest's page tables.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Page {
    role: Num,
    roots: Num,
    unsync: Num,
}

/// How the records of an event are printed.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Kvm {
    Exit { exit: Exit, rip: Num, info: Option<(Num, Num)> },
    Entry { vcpu: Num, rip: Num },
    Emulate { rip: Num, base: Num, len: Num, failed: Num, instruction: usize },
    NestedExit { rip: Num, nested: Nested },
    NestedInject(Nested),
    GetPage { created: Num, gfn: Num, page: Page },
    Page(Page),
}

impl Kvm {
    pub(super) fn of(system: &str, name: &str, format: &Format) -> Option<Self> {
        let num = |name| Num::of(format, name);
        let exit = |name| Some(Exit { reason: num(name)?, isa: num("isa") });
        let nested = || {
            let numbers =
                [num("exit_info1")?, num("exit_info2")?, num("exit_int_info")?, num("exit_int_info_err")?];
            Some(Nested { exit: exit("exit_code")?, numbers })
        };
        let page = || Some(Page { role: num("role")?, roots: num("root_count")?, unsync: num("unsync")? });
        Some(match (system, name) {
            ("kvm", "kvm_exit") => Self::Exit {
                exit: exit("exit_reason")?,
                rip: num("guest_rip")?,
                info: num("info1").zip(num("info2")),
            },
            ("kvm", "kvm_entry") => Self::Entry { vcpu: num("vcpu_id")?, rip: num("rip")? },
            ("kvm", "kvm_emulate_insn") => Self::Emulate {
                rip: num("rip")?,
                base: num("csbase")?,
                len: num("len")?,
                failed: num("failed")?,
                instruction: format.field("insn")?.offset as usize,
            },
            ("kvm", "kvm_nested_vmexit") => Self::NestedExit { rip: num("rip")?, nested: nested()? },
            ("kvm", "kvm_nested_vmexit_inject") => Self::NestedInject(nested()?),
            ("kvmmmu", "kvm_mmu_get_page") => {
                Self::GetPage { created: num("created")?, gfn: num("gfn")?, page: page()? }
            }
            (
                "kvmmmu",
                "kvm_mmu_sync_page" | "kvm_mmu_unsync_page" | "kvm_mmu_zap_page" | "kvm_mmu_prepare_zap_page",
            ) => Self::Page(page()?),
            _ => return None,
        })
    }

    /// Prints a record. `false` if the `print fmt` is to be printed instead.
    pub(super) fn print(self, record: &[u8], machine: Machine, out: &mut Vec<u8>) -> bool {
        let read = |num: Num| num.read(record, machine);
        match self {
            Self::Exit { exit, rip, info } => {
                exit.print(record, machine, out);
                labelled_hex(out, b" rip 0x", read(rip));
                if let Some((first, second)) = info {
                    labelled_hex(out, b" info ", read(first));
                    labelled_hex(out, b" ", read(second));
                }
            }
            Self::Entry { vcpu, rip } => {
                out.extend_from_slice(b" vcpu ");
                unsigned(out, read(vcpu) & 0xffff_ffff);
                labelled_hex(out, b" rip 0x", read(rip));
            }
            Self::Emulate { rip, base, len, failed, instruction } => {
                hex(out, read(base));
                labelled_hex(out, b":", read(rip));
                out.extend_from_slice(b": ");
                let len = read(len).min(15) as usize;
                let bytes = record.get(instruction..).unwrap_or_default();
                for (index, byte) in bytes.iter().take(len).enumerate() {
                    if index > 0 {
                        out.push(b' ');
                    }
                    super::super::text::hex_zeros(out, u64::from(*byte), 2);
                }
                out.extend_from_slice(if read(failed) == 0 { b"" } else { b" FAIL" });
            }
            Self::NestedExit { rip, nested } => {
                labelled_hex(out, b" rip ", read(rip));
                nested.print(record, machine, out);
            }
            Self::NestedInject(nested) => nested.print(record, machine, out),
            Self::GetPage { created, gfn, page } => {
                out.extend_from_slice(if read(created) == 0 { b"existing " } else { b"new " });
                labelled_hex(out, b"sp gfn ", read(gfn));
                out.push(b' ');
                page.print(record, machine, out);
            }
            Self::Page(page) => page.print(record, machine, out),
        }
        true
    }
}

impl Exit {
    fn print(self, record: &[u8], machine: Machine, out: &mut Vec<u8>) {
        let reason = self.reason.read(record, machine);
        let table = match self.isa.map_or(1, |isa| isa.read(record, machine)) {
            1 => VMX_EXITS,
            2 => SVM_EXITS,
            _ => return out.extend_from_slice(b"reason UNKNOWN-ISA"),
        };
        if let Some((_, name)) = table.iter().find(|(value, _)| *value == reason as i32) {
            out.extend_from_slice(b"reason ");
            out.extend_from_slice(name.as_bytes());
        } else {
            out.extend_from_slice(b"reason UNKNOWN (");
            unsigned(out, reason);
            out.push(b')');
        }
    }
}

impl Nested {
    fn print(self, record: &[u8], machine: Machine, out: &mut Vec<u8>) {
        self.exit.print(record, machine, out);
        let labels = [" info1 ", " info2 ", " int_info ", " int_info_err "];
        for (label, num) in labels.into_iter().zip(self.numbers) {
            labelled_hex(out, label.as_bytes(), num.read(record, machine));
        }
    }
}

impl Page {
    /// The bits of `union kvm_mmu_page_role` as they were when the plugin was written
    /// (arch/x86/include/asm/kvm_host.h).
    fn print(self, record: &[u8], machine: Machine, out: &mut Vec<u8>) {
        let role = self.role.read(record, machine) as u32;
        if machine.endian == Endian::Big {
            out.extend_from_slice(b"WORD: ");
            super::super::text::hex_zeros(out, role.into(), 8);
        } else {
            let bits = |shift: u32, count: u32| role >> shift & ((1 << count) - 1);
            let unless = |shift: u32| if bits(shift, 1) == 0 { "!" } else { "" };
            let when = |set: bool, text: &'static str| if set { text } else { "" };
            let access = ["---", "--x", "w--", "w-x", "-u-", "-ux", "wu-", "wux"];
            let text = format!(
                "{} q{}{} {}{} {}pae {}nxe {}wp{}{}{}",
                bits(0, 4),
                bits(5, 2),
                when(bits(7, 1) != 0, " direct"),
                access[bits(8, 3) as usize],
                when(bits(11, 1) != 0, " invalid"),
                unless(4),
                unless(12),
                unless(13),
                when(bits(14, 1) != 0, " smep"),
                when(bits(15, 1) != 0, " smap"),
                when(bits(24, 8) != 0, " smm"),
            );
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(b" root ");
        signed(out, i64::from(self.roots.read(record, machine) as i32));
        out.push(b' ');
        out.extend_from_slice(if self.unsync.read(record, machine) == 0 { b"sync" } else { b"unsync" });
    }
}
