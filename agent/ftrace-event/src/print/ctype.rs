//! The types of C as far as they decide what an expression's value is.

pub(super) use crate::int::IntType;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Int(IntType),
    /// A pointer or an array, and what it points to.
    Pointer(Pointee),
    /// A struct, or a type that is not known.
    Other,
}

/// What a pointer points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pointee {
    Int(IntType),
    Pointer,
    Void,
    /// A struct or an unknown type, by its name.
    Named(String),
}

impl Type {
    pub(super) const INT: Self = Self::Int(IntType::INT);
    pub(super) const TEXT: Self = Self::Pointer(Pointee::Int(IntType::CHAR));

    /// The integer type that a value of this type counts as in arithmetic.
    pub(super) fn int(&self) -> IntType {
        match self {
            Self::Int(int) => *int,
            Self::Pointer(_) | Self::Other => IntType::U64,
        }
    }
}

/// Whether a name can only be the start of a type.
pub(super) fn starts_type(word: &str) -> bool {
    matches!(
        word,
        "unsigned"
            | "signed"
            | "int"
            | "char"
            | "short"
            | "long"
            | "void"
            | "struct"
            | "union"
            | "enum"
            | "const"
            | "volatile"
            | "static"
            | "bool"
            | "_Bool"
            | "__auto_type"
            | "typeof"
            | "__typeof__"
    ) || typedef(word, 8).is_some()
}

/// The integer type behind a name of the kernel's.
fn typedef(word: &str, long_size: u8) -> Option<IntType> {
    let int = |size, signed| Some(IntType { size, signed });
    match word {
        "u8" | "__u8" | "uint8_t" | "u_int8_t" | "unchar" | "bool" | "_Bool" => int(1, false),
        "s8" | "__s8" | "int8_t" => int(1, true),
        "u16" | "__u16" | "uint16_t" | "__be16" | "__le16" | "__sum16" | "umode_t" | "ushort"
        | "sa_family_t" => int(2, false),
        "s16" | "__s16" | "int16_t" => int(2, true),
        "u32" | "__u32" | "uint32_t" | "__be32" | "__le32" | "__wsum" | "uint" | "gfp_t" | "dev_t"
        | "uid_t" | "gid_t" | "qid_t" | "projid_t" | "fmode_t" | "slab_flags_t" | "blk_opf_t"
        | "vm_fault_t" | "__poll_t" | "isolate_mode_t" | "xfs_agnumber_t" | "xfs_agblock_t"
        | "xfs_extlen_t" | "blk_mq_req_flags_t" => int(4, false),
        "s32" | "__s32" | "int32_t" | "pid_t" | "__kernel_rwf_t" | "rwf_t" | "key_t" | "key_serial_t"
        | "timer_t" | "clockid_t" | "mqd_t" | "rmap_t" => int(4, true),
        "u64" | "__u64" | "uint64_t" | "__be64" | "__le64" | "sector_t" | "blkcnt_t" | "dma_addr_t"
        | "phys_addr_t" | "resource_size_t" | "gpa_t" | "hpa_t" | "gfn_t" | "kvm_pfn_t" | "xfs_ino_t"
        | "xfs_daddr_t" | "xfs_fsblock_t" | "xfs_fileoff_t" => int(8, false),
        "s64" | "__s64" | "int64_t" | "loff_t" | "ktime_t" | "time64_t" | "xfs_lsn_t" => int(8, true),
        "size_t" | "uintptr_t" | "ulong" | "pgoff_t" | "ino_t" | "pteval_t" | "kernel_ulong_t"
        | "cycles_t" | "__kernel_ulong_t" | "__kernel_size_t" | "aio_context_t" | "nfds_t" => {
            int(long_size, false)
        }
        "ssize_t" | "intptr_t" | "off_t" | "time_t" | "clock_t" | "ptrdiff_t" => int(long_size, true),
        _ => None,
    }
}

/// The longest name of a type that is kept.
pub(super) const NAME_MAX: usize = 512;

/// The type that words name, `pointers` stars after them. Words of which nothing is known make
/// [`Type::Other`].
pub(super) fn named(words: &[&str], pointers: usize, long_size: u8) -> Type {
    match (pointers, base(words, long_size)) {
        (0, Some(int)) => Type::Int(int),
        (0, None) => Type::Other,
        (1, Some(int)) => Type::Pointer(Pointee::Int(int)),
        (1, None) if words.contains(&"void") => Type::Pointer(Pointee::Void),
        // No compiler has made this one. Every use of a variable has a copy of its type.
        (1, None) if words.iter().map(|word| word.len() + 1).sum::<usize>() > NAME_MAX => Type::Other,
        (1, None) => Type::Pointer(Pointee::Named(words.join(" "))),
        _ => Type::Pointer(Pointee::Pointer),
    }
}

fn base(words: &[&str], long_size: u8) -> Option<IntType> {
    let mut unsigned = false;
    let mut longs = 0;
    let mut size = None;
    let mut typed = None;
    for word in words {
        match *word {
            "const" | "volatile" | "static" | "__user" | "__force" | "__bitwise" => {}
            "unsigned" => unsigned = true,
            "signed" => size = size.or(Some(4)),
            "char" => size = Some(1),
            "short" => size = Some(2),
            "int" => size = size.or(Some(4)),
            "long" => longs += 1,
            "enum" => return Some(IntType { size: 4, signed: false }),
            "struct" | "union" | "void" => return None,
            other => typed = Some(typedef(other, long_size)?),
        }
    }
    if let Some(int) = typed {
        return Some(int);
    }
    let size = match longs {
        0 => size.or(unsigned.then_some(4))?,
        1 => long_size,
        _ => 8,
    };
    Some(IntType { size, signed: !unsigned })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types() {
        let int = |size, signed| Type::Int(IntType { size, signed });
        for (text, expected) in [
            ("unsigned long", int(8, false)),
            ("unsigned", int(4, false)),
            ("long long", int(8, true)),
            ("short", int(2, true)),
            ("unsigned char", int(1, false)),
            ("gfp_t", int(4, false)),
            ("enum x", int(4, false)),
            ("struct x", Type::Other),
            ("nothing_known", Type::Other),
        ] {
            let words: Vec<&str> = text.split(' ').collect();
            assert_eq!(named(&words, 0, 8), expected, "{text}");
        }
        assert_eq!(named(&["unsigned", "long"], 0, 4), int(4, false));
        assert_eq!(named(&["void"], 1, 8), Type::Pointer(Pointee::Void));
        assert_eq!(named(&["char"], 2, 8), Type::Pointer(Pointee::Pointer));
    }

    #[test]
    fn usual_conversions() {
        let (char, uint, long) =
            (IntType::CHAR, IntType { size: 4, signed: false }, IntType { size: 8, signed: true });
        assert_eq!(char.common(char), IntType::INT);
        assert_eq!(char.common(uint), uint);
        assert_eq!(uint.common(long), long);
        assert_eq!(long.common(IntType::U64), IntType::U64);
        assert_eq!(IntType::INT.wrap(0xffff_ffff), u64::MAX);
    }
}
