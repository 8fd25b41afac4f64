//! Requests to the daemon's Unix socket, one connection each.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use super::client::{Call, ClientError, Reply, Transport, refusal};

pub use api::DEFAULT_SOCKET;

/// The environment variable that says where it listens instead.
pub const SOCKET_VARIABLE: &str = "TRACER_AGENT_SOCKET";

/// The socket: what was given, or else what the environment says.
pub fn chosen(given: Option<&Path>) -> PathBuf {
    let variable = || std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from);
    given.map(Path::to_owned).or_else(variable).unwrap_or_else(|| DEFAULT_SOCKET.into())
}

/// The most bytes of an answer: a list of all tracepoints of a kernel with their fields has less than 4 MiB.
const LONGEST_ANSWER: usize = 64 << 20;

/// The most bytes of an answer that comes before its request.
const EARLY_MAX: usize = 4096;

/// How long the daemon may take to accept a connection.
const ACCEPTS: Duration = Duration::from_secs(10);
/// How often a connection is tried again while as many wait to be accepted as may.
const AGAIN: Duration = Duration::from_millis(20);
/// How long it may take for a whole answer to a request that changes nothing, and to begin with what happens.
const TELLS: Duration = Duration::from_mins(1);
/// How long it may take for what it is to do, such as to write the rest of a recording.
const ACTS: Duration = Duration::from_mins(15);

/// A daemon's socket.
#[derive(Debug)]
pub struct UnixTransport {
    path: PathBuf,
    runtime: Runtime,
    /// How long it may take for each request, where that is not what requests of its kind may.
    limit: Option<Duration>,
}

impl UnixTransport {
    /// Nothing is connected before there is a request.
    pub fn new(path: &Path) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { path: path.to_owned(), runtime, limit: None })
    }

    /// The same, with so much time for each request, connecting included.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

impl Transport for UnixTransport {
    fn call(&mut self, call: Call) -> Result<Reply, ClientError> {
        let limit = self.limit.unwrap_or(if call.method == "GET" { TELLS } else { ACTS });
        self.runtime.block_on(within(limit, exchange(&self.path, call)))
    }

    fn listen(&mut self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), ClientError> {
        let call = Call { method: "GET", path: path.to_owned(), body: None };
        let answer = within(self.limit.unwrap_or(TELLS), send(&self.path, call));
        self.runtime.block_on(async { listen(answer.await?, each).await })
    }
}

/// Waits for something of the daemon, but not longer than this.
async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    tokio::time::timeout(limit, answer).await.unwrap_or(Err(ClientError::TimedOut(limit)))
}

async fn exchange(path: &Path, call: Call) -> Result<Reply, ClientError> {
    whole(send(path, call).await?).await
}

async fn whole(answer: Response<Incoming>) -> Result<Reply, ClientError> {
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    let body = body.map_err(|error| ClientError::Answer(format!("it cannot be read: {error}")))?;
    Ok(Reply { status, body: body.to_bytes().to_vec() })
}

async fn listen(answer: Response<Incoming>, each: &mut dyn FnMut(&str) -> bool) -> Result<(), ClientError> {
    if !answer.status().is_success() {
        let Reply { status, body } = within(TELLS, whole(answer)).await?;
        return Err(refusal(status, &body));
    }
    let mut body = answer.into_body();
    let mut rest = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Ok(()) };
        let Ok(data) = frame.into_data() else { continue };
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            if !each(String::from_utf8_lossy(&line[..end]).as_ref()) {
                return Ok(());
            }
        }
        if rest.len() > LONGEST_ANSWER {
            return Err(ClientError::Answer("a line does not end".to_owned()));
        }
    }
    Ok(())
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            // The kernel does not say when there is room (connect(2), `EAGAIN`).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(AGAIN).await,
            connected => return connected,
        }
    }
}

async fn send(path: &Path, call: Call) -> Result<Response<Incoming>, ClientError> {
    let no_daemon = |source| ClientError::NoDaemon { path: path.to_owned(), source };
    let connected = tokio::time::timeout(ACCEPTS, connect(path)).await;
    let stream = connected.map_err(|_| no_daemon(io::ErrorKind::TimedOut.into()))?.map_err(no_daemon)?;
    let request = request(call)?;
    let (stream, early) = Kept::new(stream).map_err(|error| ClientError::Connection(error.to_string()))?;
    let failed =
        |error: hyper::Error| early.refusal().unwrap_or_else(|| ClientError::Connection(error.to_string()));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(&failed)?;
    // It ends with the exchange; what goes wrong in it comes out of the request.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(request).await.map_err(failed)
}

/// A connection whose first bytes are kept: a daemon that has no room for a connection answers before there
/// is a request, which is an error to hyper.
#[derive(Debug)]
struct Kept {
    stream: UnixStream,
    first: Arc<Mutex<Vec<u8>>>,
}

/// The answer that a connection has brought too early.
#[derive(Debug)]
struct Early {
    socket: std::os::unix::net::UnixStream,
    first: Arc<Mutex<Vec<u8>>>,
}

impl Kept {
    fn new(stream: UnixStream) -> io::Result<(Self, Early)> {
        let stream = stream.into_std()?;
        let (socket, first) = (stream.try_clone()?, Arc::<Mutex<_>>::default());
        Ok((
            Self { stream: UnixStream::from_std(stream)?, first: Arc::clone(&first) },
            Early { socket, first },
        ))
    }
}

impl Early {
    /// Reads it from what has come, without a wait.
    fn refusal(&self) -> Option<ClientError> {
        let mut bytes = self.first.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What nobody has read yet. An error is the end of it.
        let _ = (&self.socket).take(EARLY_MAX as u64).read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")?;
        let status = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
        Some(refusal(status.parse().ok()?, &bytes[end + 4..]))
    }
}

impl AsyncRead for Kept {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let new = &buf.filled()[before..];
        let room = EARLY_MAX.saturating_sub(first.len());
        first.extend_from_slice(&new[..new.len().min(room)]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Kept {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn request(call: Call) -> Result<Request<BoxBody<Bytes, std::convert::Infallible>>, ClientError> {
    let body = call.body.unwrap_or_default();
    Request::builder()
        .method(call.method)
        .uri(call.path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)).boxed())
        .map_err(|error| ClientError::Connection(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixListener};

    use super::super::client::Client;
    use super::*;
    use api::{Code, ControlError};

    #[test]
    fn a_daemon_that_does_not_answer_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let limit = Duration::from_millis(50);
        let client = || Client::new(Box::new(UnixTransport::new(&path).unwrap().within(limit)));
        let listener = UnixListener::bind(&path).unwrap();
        // The kernel lets connect who is not accepted.
        assert!(matches!(client().health(), Err(ClientError::TimedOut(of)) if of == limit));
        assert!(matches!(client().listen(&mut |_| true), Err(ClientError::TimedOut(_))));
        // Until so many wait; there is a connection when one is accepted.
        rustix::net::listen(&listener, 0).unwrap();
        assert!(matches!(client().stop("one"), Err(ClientError::TimedOut(_))));
        drop(listener);
        assert!(matches!(client().health(), Err(ClientError::NoDaemon { .. })));
    }

    #[test]
    fn an_answer_that_comes_before_the_request_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let refuse = move || {
            // Before the client writes, in the middle of it, or after it.
            for wait in [0, 0, 1, 2, 5] {
                let (mut stream, _) = listener.accept().unwrap();
                std::thread::sleep(Duration::from_millis(wait));
                let body = serde_json::to_string(&ControlError::from(Code::TooManyConnections)).unwrap();
                let head =
                    format!("HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n", body.len());
                stream.write_all((head + &body).as_bytes()).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // As the daemon does, so that the kernel does not reset the connection.
                stream.set_nonblocking(true).unwrap();
                let _ = stream.read(&mut [0; 4096]);
            }
        };
        let refuser = std::thread::spawn(refuse);
        for _ in 0..5 {
            let health = Client::new(Box::new(UnixTransport::new(&path).unwrap())).health();
            assert_eq!(health.unwrap_err().code(), Code::TooManyConnections);
        }
        refuser.join().unwrap();
    }
}
