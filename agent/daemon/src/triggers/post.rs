//! HTTP to a service of this machine, as a user.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use crate::user::Owner;
use api::trigger::Firing;

/// How long the other side may take for each step.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much of an answer is looked at: its first line.
const ANSWER_MAX: usize = 256;

/// Posts what a trigger has found. The other side sees the user, not this daemon.
///
/// # Errors
/// The user may not connect, nobody answers in time, or the answer is no success.
pub(super) fn post(owner: &Owner, socket: &Path, firing: &Firing) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", socket.display());
    let body = serde_json::to_vec(firing).map_err(|error| error.to_string())?;
    let mut stream = connect(owner, socket).map_err(failed)?;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let answer = exchange(&mut stream, &[head.as_bytes(), &body]).map_err(failed)?;
    match status_of(&answer) {
        Some(200..300) => Ok(()),
        Some(status) => Err(format!("{}: answered with status {status}", socket.display())),
        None => Err(format!("{}: what answers speaks no HTTP", socket.display())),
    }
}

/// Connects in a thread of its own that is the user's and never this daemon's again.
fn connect(owner: &Owner, path: &Path) -> io::Result<UnixStream> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("post".into()).spawn_scoped(scope, || {
            owner.take_identity()?;
            let socket = rustix::net::socket_with(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            for side in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
                sockopt::set_socket_timeout(&socket, side, Some(PATIENCE))?;
            }
            rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
            Ok(UnixStream::from(socket))
        });
        let ended = thread?.join();
        ended.unwrap_or_else(|_| Err(io::Error::other("the daemon failed at it")))
    })
}

fn exchange(stream: &mut UnixStream, parts: &[&[u8]]) -> io::Result<Vec<u8>> {
    for part in parts {
        stream.write_all(part)?;
    }
    let mut answer = Vec::new();
    let mut chunk = [0; ANSWER_MAX];
    while answer.len() < ANSWER_MAX && !answer.contains(&b'\n') {
        match stream.read(&mut chunk)? {
            0 => break,
            count => answer.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(answer)
}

/// The status in the first line of an answer (RFC 9112, section 4).
fn status_of(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r' || *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let (version, rest) = line.split_once(' ')?;
    let status = rest.split(' ').next()?;
    (version.starts_with("HTTP/1.") && status.len() == 3).then(|| status.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_in_the_first_line() {
        assert_eq!(status_of(b"HTTP/1.1 204 No Content\r\nA: b"), Some(204));
        assert_eq!(status_of(b"HTTP/1.0 500\r\n"), Some(500));
        for wrong in [&b""[..], b"HTTP/1.1", b"SSH-2.0-x 200", b"HTTP/1.1 20\r\n", b"HTTP/1.1 \xff00 x"] {
            assert_eq!(status_of(wrong), None, "{wrong:?}");
        }
    }
}
