//! Disks, the loopback device, and the interrupts that they cause.

use super::*;

/// Network and disk traffic for soft interrupts, and long work for the tick and the disk to interrupt.
pub(super) fn irq(scratch: &Path) {
    loopback(400);
    let is_over = AtomicBool::new(false);
    // Before others that the machine runs, whom the disk would interrupt instead.
    be_nice(-20);
    thread::scope(|scope| {
        keep_cpus_busy(scope, &is_over);
        direct_io(scratch, 150);
        is_over.store(true, Ordering::Relaxed);
    });
    be_nice(0);
    loopback(200);
}

/// File names of many lengths, buffered and direct input and output, and writing back.
pub(super) fn block(scratch: &Path) {
    let dir = scratch.join("block");
    fs::create_dir(&dir).unwrap();
    for length in 1..40 {
        let path = dir.join("n".repeat(length * 3));
        fs::write(&path, vec![2; length * 1000]).unwrap();
        if length % 4 == 0 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
        if length % 3 == 0 {
            fs::rename(&path, dir.join(format!("m{length}"))).unwrap();
        }
    }
    direct_io(scratch, 80);
    queued_io(scratch);
    let path = scratch.join("uncached");
    fs::write(&path, vec![3; 256 * PAGE]).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    // SAFETY: an open descriptor.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
    assert_eq!(fs::read(&path).unwrap().len(), 256 * PAGE);
    let name = CString::new(path.display().to_string()).unwrap();
    // SAFETY: a terminated path.
    assert_eq!(unsafe { libc::truncate(name.as_ptr(), 12345) }, 0);
    fs::remove_file(&path).unwrap();
    fs::remove_dir_all(&dir).unwrap();
    if let Some((disk, sector)) = bad_disk() {
        read_bad_sector(&disk, sector);
    }
}

/// The disk that has a sector whose reads fail, and that sector: `BAD_DISK` says so in guests that have one.
pub fn bad_disk() -> Option<(PathBuf, u64)> {
    let text = std::env::var("BAD_DISK").ok()?;
    let (disk, sector) = text.split_once(':')?;
    let disk = PathBuf::from(disk);
    disk.exists().then_some((disk, sector.parse().ok()?))
}

/// Reads that end with an error, past the page cache: in the midst of others, which do not.
fn read_bad_sector(disk: &Path, sector: u64) {
    const SECTOR: u64 = 512;
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(disk).unwrap();
    let mut space = vec![0; 2 * PAGE];
    let page = aligned(&mut space);
    let at = sector * SECTOR;
    for round in 0..60 {
        assert!(file.read_exact_at(page, at).is_err(), "{} has no bad sector {sector}", disk.display());
        file.read_exact_at(page, at + (round + 1) * PAGE as u64).unwrap();
    }
}

pub(super) fn loopback(messages: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut bytes = [5; 600];
    for _ in 0..messages {
        client.write_all(&bytes).unwrap();
        server.read_exact(&mut bytes).unwrap();
        sender.send_to(&bytes, receiver.local_addr().unwrap()).unwrap();
        receiver.recv(&mut bytes).unwrap();
    }
}

/// Writes and reads past the page cache.
pub(super) fn direct_io(scratch: &Path, rounds: u64) {
    let path: PathBuf = scratch.join("direct");
    let Some(file) = uncached(&path) else { return };
    let mut space = vec![6; 5 * PAGE];
    let buffer = aligned(&mut space);
    for round in 0..rounds {
        file.write_all_at(buffer, round * 4 * PAGE as u64).unwrap();
    }
    file.sync_all().unwrap();
    for round in 0..rounds {
        file.read_exact_at(buffer, round * 4 * PAGE as u64).unwrap();
    }
    fs::remove_file(&path).unwrap();
}

/// Writes blocks past the page cache, all at once and out of order, so that the kernel merges neighbours:
/// each with what was asked for before it, and what comes of that with the neighbour that was asked for
/// earlier.
pub(super) fn queued_io(scratch: &Path) {
    const ORDER: [usize; 6] = [0, 2, 1, 14, 12, 13];
    /// `IOCB_CMD_PWRITE`, include/uapi/linux/aio_abi.h.
    const WRITE: u16 = 1;
    let path = scratch.join("queued");
    let Some(file) = uncached(&path) else { return };
    let mut space = vec![7; 17 * PAGE];
    let buffer = aligned(&mut space);
    file.write_all_at(buffer, 0).unwrap();
    file.sync_all().unwrap();
    let requests = ORDER.map(|block| {
        // SAFETY: a structure of numbers.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        request.aio_lio_opcode = WRITE;
        request.aio_fildes = file.as_raw_fd() as u32;
        request.aio_buf = buffer[block * PAGE..].as_ptr() as u64;
        request.aio_nbytes = PAGE as u64;
        request.aio_offset = (block * PAGE) as i64;
        request
    });
    let pointers = requests.each_ref().map(std::ptr::from_ref);
    let count = ORDER.len() as libc::c_long;
    // `struct io_event`: whose it is, which request, how it went in two parts.
    let mut events = [[0_i64; 4]; ORDER.len()];
    // SAFETY: everything that the calls get lives until the last request is done.
    unsafe {
        let mut context: libc::c_ulong = 0;
        assert_eq!(libc::syscall(libc::SYS_io_setup, count, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, count, pointers.as_ptr()), count);
        let none = std::ptr::null::<libc::timespec>();
        let done = libc::syscall(libc::SYS_io_getevents, context, count, count, events.as_mut_ptr(), none);
        assert_eq!(done, count);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    assert!(events.iter().all(|[_, _, written, _]| *written == PAGE as i64), "{events:?}");
    fs::remove_file(&path).unwrap();
}

/// A new file that is read and written past the page cache. `None` where there is no disk below, as in a
/// guest, and no such thing as I/O without a cache: before 6.6.
pub(super) fn uncached(path: &Path) -> Option<File> {
    let mut options = File::options();
    options.create(true).truncate(true).read(true).write(true).custom_flags(libc::O_DIRECT);
    match options.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => None,
        opened => Some(opened.unwrap()),
    }
}

/// The part of this memory that begins at a page and has one page less.
pub(super) fn aligned(space: &mut [u8]) -> &mut [u8] {
    let skip = space.as_ptr().align_offset(PAGE);
    let length = space.len() - PAGE;
    &mut space[skip..skip + length]
}
