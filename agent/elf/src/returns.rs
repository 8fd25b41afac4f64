//! Where functions return: the offsets of their return instructions, found by disassembly.
//!
//! For programs whose return addresses must not be replaced, as Go's: their stacks move, and whoever unwinds
//! them finds the replaced address (runtime/traceback.go of Go). A probe at the instruction changes nothing
//! on the stack.
//!
//! **Guarantees**
//!
//! - Every offset is in code, at the beginning of an instruction, as a breakpoint elsewhere would change what
//!   the program does, or what it reads: the function is in a segment of code from its first byte to its
//!   last, all bytes decode one after another, and each jump leads to one of these instructions. Data between
//!   instructions that looks like some itself would be taken for them; compilers for x86-64 put none there,
//!   and assembly may. That a path of jumps leads to a return is not asked for: a function of Go that
//!   recovers from a panic goes on where none does (`deferreturn`).
//! - What leaves a function by a jump is counted.
//! - Time and memory are bounded, whatever a file says: [`FUNCTION_MAX`], [`CODE_MAX`], [`RETURNS_MAX`].

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use super::symbols::{Function, Functions};
use super::{BinaryError, Machine, OpenBinary};

/// The longest function that is decoded, in bytes.
pub const FUNCTION_MAX: u64 = 1 << 20;
/// The most bytes that one [`Finder`] decodes. The code of the largest programs has about as many; functions
/// of a hostile file may overlap.
pub const CODE_MAX: u64 = 128 << 20;
/// The most return instructions that one [`Finder`] gives.
pub const RETURNS_MAX: usize = 1 << 18;

/// How a function ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// Its return instructions, as distances from its first byte, in ascending order; at least one.
    pub distances: Vec<u64>,
    /// Jumps out of it, which are returns that are not seen if the function that they lead to returns to the
    /// caller (tail calls).
    pub jumps_out: usize,
    /// Jumps to addresses that are known only when the program runs: by a table to another place in the
    /// function, or out of it.
    pub computed_jumps: usize,
}

/// Why it is not known where a function returns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReturnsError {
    /// The binary.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// No function begins there, or no table says how long it is.
    #[error("it is not known where the function at {offset:#x} of {} ends: no symbol there has a size", path.display())]
    NoSize {
        /// The binary.
        path: PathBuf,
        /// The offset in the file.
        offset: u64,
    },
    /// It is longer than what is decoded.
    #[error("{name} has {size} bytes, and returns are found in functions of up to {FUNCTION_MAX}")]
    TooLong {
        /// The function.
        name: String,
        /// Its length in bytes.
        size: u64,
    },
    /// It reaches out of the code of the file.
    #[error("{name} has {size} bytes, which reach out of the file's code")]
    OutsideCode {
        /// The function.
        name: String,
        /// Its length in bytes.
        size: u64,
    },
    /// The file was written to meanwhile.
    #[error("{} was changed while its functions were read", path.display())]
    Changed {
        /// The binary.
        path: PathBuf,
    },
    /// There is something else than instructions in it.
    #[error("{name}+{distance:#x} is no instruction: there may be data in the function")]
    NoInstruction {
        /// The function.
        name: String,
        /// Bytes from its beginning.
        distance: u64,
    },
    /// A jump leads into an instruction.
    #[error("{name} has a jump to {name}+{distance:#x}, which is inside an instruction")]
    IntoInstruction {
        /// The function.
        name: String,
        /// Bytes from its beginning.
        distance: u64,
    },
    /// It never returns, or only by jumps.
    #[error("{name} has no return instruction")]
    NoReturn {
        /// The function.
        name: String,
    },
    /// The functions are too many.
    #[error(
        "returns are found in up to {} MiB of functions of a file, and up to {RETURNS_MAX} of them: those that are meant of {} \
         have more", CODE_MAX >> 20, path.display()
    )]
    TooMuch {
        /// The binary.
        path: PathBuf,
    },
    /// Another processor's instructions.
    #[error("returns are found in code of x86-64 only, and {} is for {machine}", path.display())]
    Machine {
        /// The binary.
        path: PathBuf,
        /// Its processor.
        machine: Machine,
    },
}

/// Finds where the functions of a binary return.
#[derive(Debug)]
pub struct Finder<'a> {
    binary: &'a OpenBinary,
    file: File,
    all: &'a Functions,
    decode: fn(&[u8]) -> Result<Returns, Wrong>,
    /// By offset in the file, those whose length is known.
    functions: HashMap<u64, &'a Function>,
    /// Bytes that may still be decoded, and return instructions that may still be given.
    left: (u64, usize),
}

impl<'a> Finder<'a> {
    /// One for the functions of `binary`.
    ///
    /// # Errors
    /// The binary is another processor's, or cannot be opened again.
    pub fn new(binary: &'a OpenBinary, functions: &'a Functions) -> Result<Self, ReturnsError> {
        // The one place where the processor decides. Code of arm64 has data between its instructions, which
        // cannot be told from them.
        let decode = match functions.machine() {
            Machine::X86_64 => Returns::of_x86_64,
            machine => return Err(ReturnsError::Machine { path: binary.path().to_owned(), machine }),
        };
        let mut sized: HashMap<u64, &Function> = HashMap::new();
        for function in functions.all().iter().filter(|function| function.size != 0) {
            let known = sized.entry(function.offset).or_insert(function);
            // Of several lengths, the longest has all returns.
            if known.size < function.size {
                *known = function;
            }
        }
        let left = (CODE_MAX, RETURNS_MAX);
        Ok(Self { binary, file: binary.reopen()?, all: functions, decode, functions: sized, left })
    }

    /// The name of the function that begins at `offset` of the file, or the offset.
    pub fn name_at(&self, offset: u64) -> String {
        self.functions.get(&offset).map_or_else(|| format!("{offset:#x}"), |function| function.name.clone())
    }

    /// How the function that begins at `offset` of the file ends.
    ///
    /// # Errors
    /// It is not known how long the function is, it cannot be decoded, or it never returns; or the functions
    /// are too many, and so are all further ones.
    pub fn at(&mut self, offset: u64) -> Result<Returns, ReturnsError> {
        let path = || self.binary.path().to_owned();
        let function =
            self.functions.get(&offset).ok_or_else(|| ReturnsError::NoSize { path: path(), offset })?;
        let (name, size) = (|| function.name.clone(), function.size);
        if size > FUNCTION_MAX {
            return Err(ReturnsError::TooLong { name: name(), size });
        }
        if !self.all.is_code(offset, size) {
            return Err(ReturnsError::OutsideCode { name: name(), size });
        }
        let too_much = || ReturnsError::TooMuch { path: path() };
        self.left.0 = self.left.0.checked_sub(size).ok_or_else(too_much)?;
        let mut code = vec![0; size as usize];
        let read = self.file.read_exact_at(&mut code, offset);
        read.map_err(|source| BinaryError::Io { path: path(), source })?;
        let found = (self.decode)(&code).map_err(|wrong| match wrong {
            Wrong::NoInstruction(distance) => ReturnsError::NoInstruction { name: name(), distance },
            Wrong::IntoInstruction(distance) => ReturnsError::IntoInstruction { name: name(), distance },
        })?;
        if found.distances.is_empty() {
            return Err(ReturnsError::NoReturn { name: name() });
        }
        self.left.1 = self.left.1.checked_sub(found.distances.len()).ok_or_else(too_much)?;
        Ok(found)
    }
}

impl Returns {
    /// Those of a function of x86-64.
    fn of_x86_64(code: &[u8]) -> Result<Self, Wrong> {
        let mut found = Self::default();
        let mut begins = vec![false; code.len()];
        let mut targets = Vec::new();
        // With 0 as its address, what a jump leads to is a distance, and what is before the function is far
        // behind it.
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = instruction.ip();
            if instruction.is_invalid() {
                return Err(Wrong::NoInstruction(at));
            }
            if let Some(begins) = begins.get_mut(at as usize) {
                *begins = true;
            }
            let is_direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
            match instruction.mnemonic() {
                Mnemonic::Call => {}
                Mnemonic::Ret if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) => {
                    found.distances.push(at);
                }
                _ if is_direct => targets.push(instruction.near_branch_target()),
                Mnemonic::Jmp | Mnemonic::Ret | Mnemonic::Retf => found.computed_jumps += 1,
                _ => {}
            }
        }
        for target in targets {
            match usize::try_from(target).ok().and_then(|target| begins.get(target)) {
                Some(true) => {}
                Some(false) => return Err(Wrong::IntoInstruction(target)),
                None => found.jumps_out += 1,
            }
        }
        Ok(found)
    }
}

/// What bytes of a function have that code has not, with the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    NoInstruction(u64),
    IntoInstruction(u64),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn returns(distances: &[u64], jumps_out: usize, computed_jumps: usize) -> Returns {
        Returns { distances: distances.to_vec(), jumps_out, computed_jumps }
    }

    #[test]
    fn returns_are_at_instructions_and_not_at_bytes_that_look_like_them() {
        // je +6 (to the last); mov eax, 0xc3c3c3c3; ret; ret 8
        let code = [0x74, 6, 0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3, 0xc2, 8, 0];
        assert_eq!(Returns::of_x86_64(&code), Ok(returns(&[7, 8], 0, 0)));
        // An instruction of AVX-512, as assembly of Go has them: vmovdqu64 zmm0, [rsi]; vzeroupper; ret
        let wide = [0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x06, 0xc5, 0xf8, 0x77, 0xc3];
        assert_eq!(Returns::of_x86_64(&wide), Ok(returns(&[9], 0, 0)));
    }

    #[test]
    fn jumps_out_of_a_function_are_counted() {
        // je +2 (to the return); jmp rax; ret; jmp far out; jmp before; call out
        let code = [0x74, 2, 0xff, 0xe0, 0xc3, 0xe9, 0, 1, 0, 0, 0xeb, 0x80, 0xe8, 0, 1, 0, 0];
        assert_eq!(Returns::of_x86_64(&code), Ok(returns(&[4], 2, 1)));
        // je +1 (to the jump); ret; jmp +0, to the end of the function, which is outside of it.
        assert_eq!(Returns::of_x86_64(&[0x74, 1, 0xc3, 0xeb, 0]), Ok(returns(&[2], 1, 0)));
    }

    #[test]
    fn returns_that_no_jump_leads_to_are_among_them() {
        // call out; ret; call deferreturn; ret: there the function goes on after a panic.
        let code = [0xe8, 0, 1, 0, 0, 0xc3, 0xe8, 0, 2, 0, 0, 0xc3];
        assert_eq!(Returns::of_x86_64(&code), Ok(returns(&[5, 11], 0, 0)));
        // jmp [rax*8+table]; ret; ret: both may be in the table.
        let code = [0xff, 0x24, 0xc5, 0, 0, 0x40, 0, 0xc3, 0xc3];
        assert_eq!(Returns::of_x86_64(&code), Ok(returns(&[7, 8], 0, 1)));
    }

    #[test]
    fn a_return_may_have_a_prefix() {
        // repz ret
        assert_eq!(Returns::of_x86_64(&[0xf3, 0xc3]), Ok(returns(&[0], 0, 0)));
        // jmp +1, into it
        assert_eq!(Returns::of_x86_64(&[0xeb, 1, 0xf3, 0xc3]), Err(Wrong::IntoInstruction(3)));
    }

    #[test]
    fn what_is_no_code_is_refused() {
        // 06 is no instruction with 64 bits; then one that is cut; then jumps into one.
        assert_eq!(Returns::of_x86_64(&[0xc3, 0x06]), Err(Wrong::NoInstruction(1)));
        assert_eq!(Returns::of_x86_64(&[0xc3, 0xb8, 0, 0]), Err(Wrong::NoInstruction(1)));
        assert_eq!(Returns::of_x86_64(&[0xeb, 1, 0xb8, 0, 0, 0, 0, 0xc3]), Err(Wrong::IntoInstruction(3)));
        assert_eq!(Returns::of_x86_64(&[]), Ok(returns(&[], 0, 0)));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn functions_are_found_by_where_they_begin() {
        let binary = OpenBinary::open(&std::env::current_exe().unwrap()).unwrap();
        let functions = Functions::of_binary(&binary).unwrap();
        let sized = functions.all().iter().filter(|function| function.size > 1);
        let mut by_size: Vec<&Function> = sized.collect();
        by_size.sort_by_key(|function| function.size);
        let mut finder = Finder::new(&binary, &functions).unwrap();
        let mut returning =
            by_size.iter().filter_map(|function| Some((*function, finder.at(function.offset).ok()?)));
        let (function, found) = returning.next().unwrap();
        assert!(found.distances.iter().all(|&distance| distance < function.size), "{found:?}");
        assert_eq!(finder.at(function.offset).unwrap(), found);
        let begins = |offset| functions.all().iter().any(|function| function.offset == offset);
        let inside =
            (function.offset..function.offset + function.size).find(|&offset| !begins(offset)).unwrap();
        assert!(matches!(finder.at(inside), Err(ReturnsError::NoSize { offset, .. }) if offset == inside));
        // A length that is wrong leads to bytes that are no code, in which a breakpoint would be data.
        let last = functions.all().iter().max_by_key(|function| function.offset).unwrap();
        let far = Function { size: FUNCTION_MAX, ..last.clone() };
        finder.functions.insert(far.offset, &far);
        assert!(matches!(finder.at(far.offset), Err(ReturnsError::OutsideCode { size: FUNCTION_MAX, .. })));
        // What may be decoded, and what may be given, has an end.
        finder.left = (function.size, found.distances.len());
        assert_eq!(finder.at(function.offset).unwrap(), found);
        for left in [(function.size - 1, RETURNS_MAX), (CODE_MAX, found.distances.len() - 1)] {
            finder.left = left;
            assert!(matches!(finder.at(function.offset), Err(ReturnsError::TooMuch { .. })), "{left:?}");
        }
    }
}
