//! System calls with their arguments: strings above all, also those that no program has touched.

use super::*;

/// Calls with strings that are written before the call, so that they are in memory: in order a path, one that
/// is longer than what is copied, bytes that cannot be printed, an empty one, an address that leads nowhere,
/// and two at once.
pub(super) fn calls_with_strings() {
    let long = CString::new(format!("/absent/{}", "x".repeat(200))).unwrap();
    // Not where the program has them, which is a file that may have to be read first.
    let owned = |text: &CStr| text.to_owned();
    for path in [owned(c"/absent/one"), long, owned(c"t\t d\x7f e\x80 a\xa0!"), owned(c"")] {
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(path.as_ptr()) }, -1);
    }
    let (from, to) = (owned(c"/absent/from"), owned(c"/absent/to"));
    // SAFETY: the kernel refuses the address; the strings end, and there is nothing to rename.
    unsafe {
        libc::syscall(libc::SYS_chdir, 16_u64);
        libc::rename(from.as_ptr(), to.as_ptr());
    }
}

/// Where the program that the workload `untouched` executes has its path: what has this address in
/// the executed program is its environment.
pub const EXECUTED: usize = STACK_PAGE + 2048;

/// The last page of a process's stack whose addresses are not random (`STACK_TOP`,
/// arch/x86/include/asm/processor.h).
const STACK_PAGE: usize = 0x7fff_ffff_e000;

/// Calls with strings that nobody has touched before, so that they are not in memory: in order a path, one
/// that is longer than what is copied, bytes that cannot be printed, an empty one; two at once, of which the
/// first, the second, and both are untouched; a path to open, a text to write, a program that is not there,
/// and one that is.
pub(super) fn calls_with_untouched_strings(scratch: &Path) {
    // A call that is moved to another CPU ends where nothing is known of its beginning.
    on_cpu(0);
    let untouched = |text: &CStr| map_new(scratch, text.to_bytes_with_nul(), std::ptr::null_mut()).cast();
    let long = CString::new(format!("/absent/{}", "x".repeat(200))).unwrap();
    for path in [c"/absent/one", &long, c"t\t d\x7f e\x80 a\xa0!", c""] {
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(untouched(path)) }, -1);
    }
    // These are on the heap, where they have just been written.
    let [from, to] = [c"/absent/from", c"/absent/to"].map(CStr::to_owned);
    for (from, to) in
        [(untouched(&from), to.as_ptr()), (from.as_ptr(), untouched(&to)), (untouched(&from), untouched(&to))]
    {
        // SAFETY: strings that end; there is nothing to rename.
        assert_eq!(unsafe { libc::rename(from, to) }, -1);
    }
    let text = untouched(c"a text\n");
    // Not /dev/null, which does not read what it is given.
    let written = File::create(scratch.join("written")).unwrap();
    // SAFETY: strings that end, and seven bytes that are there.
    unsafe {
        assert_eq!(libc::openat(libc::AT_FDCWD, untouched(c"/absent/open"), libc::O_RDONLY), -1);
        assert_eq!(libc::write(written.as_raw_fd(), text.cast(), 7), 7);
    }
    let (absent, mut page) = (untouched(c"/absent/exec"), vec![0; PAGE]);
    page[EXECUTED - STACK_PAGE..][..10].copy_from_slice(b"/bin/true\0");
    let path = map_new(scratch, &page, STACK_PAGE as *mut _).wrapping_add(EXECUTED - STACK_PAGE).cast();
    let filler = CString::new("y".repeat(3000)).unwrap();
    let args = [c"true".as_ptr(), std::ptr::null()];
    let environment = [filler.as_ptr(), std::ptr::null()];
    // SAFETY: the child calls only what is allowed between fork and exec, with strings that end and lists
    // with a null pointer at their end.
    let child = unsafe {
        match libc::fork() {
            0 => {
                libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
                libc::execve(absent, args.as_ptr(), environment.as_ptr());
                libc::execve(path, args.as_ptr(), environment.as_ptr());
                libc::_exit(1)
            }
            child => child,
        }
    };
    let mut status = -1;
    // SAFETY: one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the program was executed");
}

/// Maps a file of its own with these bytes, at the address if that is not null. No page of the mapping is in
/// memory before somebody touches it. It is never unmapped.
fn map_new(scratch: &Path, bytes: &[u8], address: *mut libc::c_void) -> *const u8 {
    let path = scratch.join("untouched");
    fs::write(&path, bytes).unwrap();
    let file = File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let fixed = if address.is_null() { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | fixed;
    // SAFETY: a new mapping, in the place of no other.
    let memory = unsafe { libc::mmap(address, PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert!(memory != libc::MAP_FAILED && (address.is_null() || memory == address), "{memory:p}");
    memory.cast::<u8>().cast_const()
}

/// Many different system calls, with strings, structures and errors.
pub(super) fn syscalls(scratch: &Path) {
    let path = scratch.join("syscalls");
    for round in 0..40 {
        let mut file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(b"one two three").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let mut some = [0; 3];
        file.read_exact(&mut some).unwrap();
        file.set_len(round * 100).unwrap();
        fs::metadata(&path).unwrap();
        fs::rename(&path, scratch.join("renamed")).unwrap();
        fs::remove_file(scratch.join("renamed")).unwrap();
        assert!(File::open(scratch.join("absent")).is_err());
    }
    assert!(fs::read_dir("/proc/self/fd").unwrap().count() > 0);
    std::env::current_dir().unwrap();
    strings();
    touch(32 * PAGE);
    thread::sleep(Duration::from_millis(1));
    ping_pong(50);
    loopback(20);
    fork_and_exec(4);
    // SAFETY: calls without memory; nonsense is refused by the kernel.
    unsafe {
        for _ in 0..500 {
            libc::syscall(libc::SYS_getppid);
        }
        libc::umask(0o22);
        libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::sched_yield();
        libc::close(-1);
        // Six arguments that all differ, the upper halves too.
        let bits = |digit: i64| digit * 0x1111_0000_1111 + 0x7000_0000_0000_0000;
        libc::syscall(libc::SYS_fallocate, -1i64, bits(1), bits(2), bits(3), bits(4), bits(5));
        libc::syscall(libc::SYS_getrandom, -1i64, bits(1), bits(2), bits(3), bits(4), bits(5));
        // No system call has this number: only raw_syscalls sees it.
        libc::syscall(1_000_000, 1i64, 2i64, 3i64, 4i64, 5i64, 6i64);
    }
}

/// Strings around the length that the kernel copies (63) and around words, every byte that the kernel prints,
/// and pointers that lead nowhere. The kernel makes dots of other bytes, which our records keep.
pub(super) fn strings() {
    let call = |text: &[u8]| {
        let text = CString::new(text).unwrap();
        // SAFETY: a string that ends; there is no such directory.
        assert_eq!(unsafe { libc::chdir(text.as_ptr()) }, -1);
    };
    for length in (1..20).chain(55..75).chain([200, 4000]) {
        call(&[b'x'; 4000][..length]);
    }
    let bytes: Vec<u8> = (1..=255).collect();
    let is_printed = |byte: &u8| matches!(byte, 0x20..0x7f | 0xa0..);
    let printed: Vec<u8> = bytes.iter().copied().filter(is_printed).collect();
    for part in printed.chunks(8) {
        call(part);
    }
    // SAFETY: the kernel refuses these addresses.
    unsafe {
        for address in [0, 16, -1, i64::MIN] {
            libc::syscall(libc::SYS_chdir, address);
            libc::syscall(libc::SYS_rename, address, c"second".as_ptr());
        }
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), bytes.len());
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), 7i64);
        libc::syscall(libc::SYS_write, -1i64, bytes.as_ptr(), 0i64);
        libc::syscall(libc::SYS_write, -1i64, 16i64, 7i64);
    }
}

/// System calls for 50 ms of CPU time, which at the slowest tick of 100 Hz is long enough for some.
pub(super) fn calls_under_ticks() {
    let used = || clock(libc::CLOCK_THREAD_CPUTIME_ID);
    let end = used() + 50_000_000;
    while used() < end {
        for _ in 0..100 {
            // SAFETY: a call without arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }
}

/// The calls of the 32-bit program: number, name and how often. Each number is another call of 64 bits; 511
/// has no name.
pub const COMPAT: [(u32, Option<&str>, usize); 13] = [
    (5, Some("open"), 2),
    (4, Some("write"), 10),
    (39, Some("mkdir"), 3),
    (6, Some("close"), 2),
    (20, Some("getpid"), 7),
    (195, Some("stat64"), 4),
    (102, Some("socketcall"), 5),
    // The kernel's functions have other names, some of them those of other calls.
    (24, Some("getuid"), 8),
    (199, Some("getuid32"), 9),
    (82, Some("select"), 11),
    (142, Some("_newselect"), 12),
    (240, Some("futex"), 13),
    (511, None, 6),
];

/// Calls of the 32-bit table, which a program of 64 bits can make, too: `mkdir` fails (`ENOENT`), and `write`
/// writes 7 bytes each time. Their strings are where pointers of 32 bits reach.
pub(super) fn calls_of_32_bits() {
    // SAFETY: the handler does nothing but what handlers may.
    unsafe { libc::signal(libc::SIGSEGV, refused as *const () as libc::sighandler_t) };
    // SAFETY: a new mapping.
    let low = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(low, libc::MAP_FAILED);
    let text = |at: usize, text: &CStr| {
        let text = text.to_bytes_with_nul();
        // SAFETY: the page is this function's, and has room for short texts at these places.
        unsafe {
            let to = low.cast::<u8>().add(at);
            to.copy_from_nonoverlapping(text.as_ptr(), text.len());
            to as u32
        }
    };
    let (null, absent, content) =
        (text(0, c"/dev/null"), text(64, c"/absent/compat"), text(128, c"a text\n"));
    let written = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    for (number, _, times) in COMPAT {
        for time in 0..times as u32 {
            let first = 700 + time;
            let (arguments, expected) = match number {
                5 => ([null, libc::O_WRONLY as u32, 0], None),
                4 => ([written.as_raw_fd() as u32, content, 7], Some(7)),
                39 => ([absent, 0o700, 0], Some(-libc::ENOENT)),
                6 => ([first, 0, 0], Some(-libc::EBADF)),
                20 => ([0; 3], Some(std::process::id().cast_signed())),
                195 => ([absent, low as u32 + 512, 0], Some(-libc::ENOENT)),
                102 => ([0; 3], Some(-libc::EINVAL)),
                24 | 199 => ([0; 3], None),
                82 => ([16, 0, 0], Some(-libc::EFAULT)),
                // The last argument is whatever the register has.
                142 => ([u32::MAX, 0, 0], None),
                240 => ([low as u32 + 512, (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u32, 1], Some(0)),
                _ => ([0; 3], Some(-libc::ENOSYS)),
            };
            let result = call_of_32_bits(number, arguments);
            assert!(expected.is_none_or(|expected| expected == result), "{number}: {result}");
        }
    }
}

/// Ends the program with a reason where the kernel has no calls of 32 bits (`CONFIG_IA32_EMULATION`,
/// `ia32_emulation=`): the instruction is not allowed there.
extern "C" fn refused(_: libc::c_int) {
    let text = b"this kernel refuses system calls of 32 bits (int $0x80): CONFIG_IA32_EMULATION is needed\n";
    // SAFETY: what a handler may call; the text is whole.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(1);
    }
}

fn call_of_32_bits(number: u32, [first, second, third]: [u32; 3]) -> i32 {
    let result: u64;
    // SAFETY: the kernel changes the register of the result alone, and those that the calls above are given
    // lead to the memory of `calls_of_32_bits`. The first argument is in a register that is the compiler's.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {first}",
            "int 0x80",
            "xchg rbx, {first}",
            first = inout(reg) u64::from(first) => _,
            inlateout("rax") u64::from(number) => result,
            in("rcx") u64::from(second),
            in("rdx") u64::from(third),
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result as i32
}
