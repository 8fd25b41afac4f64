//! Registers: what they are called, and where they are in a program's context.

/// A register's offset in `struct pt_regs`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(pub(super) u16);

/// `struct pt_regs` of x86-64 (arch/x86/include/asm/ptrace.h), by the names that tracefs takes
/// (`regoffset_table`, arch/x86/kernel/ptrace.c).
const X86_64: [(&str, u16); 21] = [
    ("r15", 0),
    ("r14", 8),
    ("r13", 16),
    ("r12", 24),
    ("bp", 32),
    ("bx", 40),
    ("r11", 48),
    ("r10", 56),
    ("r9", 64),
    ("r8", 72),
    ("ax", 80),
    ("cx", 88),
    ("dx", 96),
    ("si", 104),
    ("di", 112),
    ("orig_ax", 120),
    ("ip", 128),
    ("cs", 136),
    ("flags", 144),
    ("sp", 152),
    ("ss", 160),
];

/// The registers of a function's arguments, in their order (System V ABI).
const ARGUMENTS: [&str; 6] = ["di", "si", "dx", "cx", "r8", "r9"];

/// How many arguments are in registers.
pub(super) const ARGUMENT_REGISTERS: u32 = ARGUMENTS.len() as u32;

/// Whether programs on this machine know registers at all.
pub(super) const SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// The register of this name; `r` in front of an old name (`rdi`) is as good.
pub(super) fn named(name: &str) -> Option<Register> {
    let find = |name: &str| X86_64.iter().find(|(known, _)| *known == name);
    let found = find(name).or_else(|| find(name.strip_prefix('r')?))?;
    Some(Register(found.1))
}

/// The register that the assembler calls so, at any of its widths: `%edi`, `%r8d`, `%al`. `%ah` and its like
/// are none of them.
pub(super) fn of_assembler(name: &str) -> Option<Register> {
    if let Some(found) = named(name) {
        return Some(found);
    }
    if let Some(short) = name.strip_prefix('e') {
        return named(short);
    }
    if name.starts_with('r') {
        return named(name.strip_suffix(['d', 'w', 'b'])?);
    }
    let short = name.strip_suffix('l')?;
    named(short).or_else(|| named(&format!("{short}x")))
}

/// The register of argument `number`, from 1.
pub(super) fn of_argument(number: u32) -> Option<Register> {
    named(ARGUMENTS.get(number.checked_sub(1)? as usize)?)
}

pub(super) const RETURN_VALUE: Register = Register(80);
pub(super) const INSTRUCTION: Register = Register(128);
pub(super) const STACK: Register = Register(152);

/// The names, for errors.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    X86_64.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_many_names() {
        assert_eq!(named("di"), Some(Register(112)));
        assert_eq!(named("rdi"), Some(Register(112)));
        assert_eq!(named("edi"), None);
        for (name, wide) in [
            ("edi", "di"),
            ("dil", "di"),
            ("al", "ax"),
            ("eax", "ax"),
            ("bpl", "bp"),
            ("r8d", "r8"),
            ("r15b", "r15"),
            ("r9w", "r9"),
            ("cx", "cx"),
            ("rbx", "bx"),
        ] {
            assert_eq!(of_assembler(name), named(wide), "{name}");
        }
        for name in ["ah", "xmm0", "", "r16", "l"] {
            assert_eq!(of_assembler(name), None, "{name}");
        }
        assert_eq!(of_argument(2), named("si"));
        assert_eq!(of_argument(0).or(of_argument(7)), None);
    }
}
