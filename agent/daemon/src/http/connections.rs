//! Connections of clients: how many each client has, and when one ends by itself.

use std::{
    convert::Infallible,
    fmt::Display,
    io,
    os::fd::AsFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    response::{IntoResponse as _, Response},
};
use hyper::{
    Request,
    body::Incoming,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
    time::Sleep,
};

use super::answers::Refusal;
use api::{Code, ControlError};
use stdx::clients::{Connections, Full, Held, Limits};

/// How long a client may take for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The most bytes of a head.
const HEAD_MAX: usize = 64 << 10;

/// The connections of all clients: regular ones, and some beyond them, whose only request is refused with the
/// reason, but for those about the daemon's health.
#[derive(Clone, Debug)]
pub(crate) struct Room<C: Ord> {
    regular: Connections<C>,
    excess: Connections<C>,
    words: Words,
}

/// How refusals name the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// One of them, before its name.
    pub(crate) client: &'static str,
    /// All but the privileged one.
    pub(crate) all: &'static str,
    /// How the client gets a connection again.
    pub(crate) advice: &'static str,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Place<C: Ord> {
    _held: Held<C>,
    /// Why its request is refused, if it is.
    pub(crate) refusal: Option<ControlError>,
}

impl<C: Ord + Clone + Display> Room<C> {
    /// Room for so many regular connections, and so many beyond them, with a client that has its own.
    pub(crate) fn new((regular, excess): (Limits, Limits), privileged: C, words: Words) -> Self {
        let excess = Connections::new(excess, privileged.clone());
        Self { regular: Connections::new(regular, privileged), excess, words }
    }

    /// A place for one more connection of a client.
    ///
    /// # Errors
    /// There are no places beyond the regular ones either: the connection cannot be served.
    pub(crate) fn take(&self, client: C) -> Result<Place<C>, ControlError> {
        let full = match self.regular.hold(client.clone()) {
            Ok(held) => return Ok(Place { _held: held, refusal: None }),
            Err(full) => full,
        };
        let Words { client: kind, all, advice } = self.words;
        let refusal = match full {
            Full::OfClient(most) => format!("{kind} {client} has {most} connections already: {advice}"),
            Full::All(most) => format!("{all} have {most} connections already; try again later"),
        };
        let refusal = ControlError::new(Code::TooManyConnections, refusal);
        match self.excess.hold(client) {
            Ok(held) => Ok(Place { _held: held, refusal: Some(refusal) }),
            Err(_) => Err(refusal),
        }
    }
}

/// Answers a connection that there is no place for without a wait for its request.
pub(crate) fn refuse_at_once(stream: impl AsFd, refusal: &ControlError) {
    let body = serde_json::to_string(refusal).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    // A client that has gone is not told.
    let _ = send(&stream, answer.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = shutdown(&stream, Shutdown::Write);
    // A request that nobody reads would have the kernel reset the connection.
    let _ = recv(&stream, &mut [0; 4096], RecvFlags::DONTWAIT);
}

/// Serves the only request of a connection, until the client ends it, or takes too long: [`HEAD_TIME`] for
/// the head, and `patience` without reading any of the answer. When `ended` is ready, the answer is the last
/// thing that is written.
///
/// The request has a task, which holds `place` as the connection does: a client that leaves keeps its place
/// until the work that it has caused is done.
pub(crate) async fn serve_connection<P: Send + Sync + 'static>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    (patience, place): (Duration, Arc<P>),
    ended: impl Future<Output = ()>,
) {
    let stream = Patient { stream, patience, stalled: None };
    let router = TowerToHyperService::new(router);
    let answer = |request: Request<Incoming>| {
        let (router, place) = (router.clone(), Arc::clone(&place));
        let answered = tokio::spawn(async move {
            let _place = place;
            router.call(request).await
        });
        async move {
            Ok::<Response, Infallible>(match answered.await {
                Ok(Ok(answer)) => answer,
                // A panic has been printed.
                Err(_) => Refusal(ControlError::from(Code::Daemon)).into_response(),
            })
        }
    };
    let mut served = std::pin::pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            // A client that has sent everything and closes that way still wants the answer. An answer without
            // an end has a [`Hangup`].
            .half_close(true)
            // A second request would begin before the answer to the first is read.
            .keep_alive(false)
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service_fn(answer))
    );
    // What is wrong with a connection is the client's affair.
    tokio::select! {
        _ = served.as_mut() => {}
        () = ended => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

/// A stream of which writing fails when the other end reads nothing for a time.
#[derive(Debug)]
struct Patient<S> {
    stream: S,
    patience: Duration,
    /// The end of the wait for the other end, while there is one.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, buf) {
            self.stalled = None;
            return Poll::Ready(written);
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A Unix socket whose other end can be watched while it is read and written.
#[derive(Debug)]
pub(crate) struct Watched(Arc<UnixStream>);

/// When the other end of a [`Watched`] socket has hung up.
#[derive(Clone, Debug)]
pub(crate) struct Hangup(Arc<UnixStream>);

impl Watched {
    pub(crate) fn new(stream: UnixStream) -> (Self, Hangup) {
        let stream = Arc::new(stream);
        (Self(Arc::clone(&stream)), Hangup(stream))
    }
}

impl Hangup {
    /// Waits until the client has closed its end or the direction in which it sends, as clients of HTTP/1.1
    /// do only when they have gone or want no more (RFC 9112, section 9.6), or sends something although it
    /// has no whole answer yet. To be awaited while nobody reads.
    pub(super) async fn wait(&self) {
        // An error of the socket is its end, too.
        while self.0.readable().await.is_ok() {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let peek = || recv(&*self.0, &mut [0; 1], flags).map_err(io::Error::from);
            match self.0.try_io(Interest::READABLE, peek) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf.initialize_unfilled()) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(&*self.0, Shutdown::Write)?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    /// The daemon's end of a socket, and the client's.
    fn pair() -> (UnixStream, std::os::unix::net::UnixStream) {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (UnixStream::from_std(near).unwrap(), far)
    }

    #[test]
    fn a_client_that_closes_or_sends_has_hung_up_and_one_that_waits_has_not() {
        run(async {
            type Act = fn(std::os::unix::net::UnixStream) -> Option<std::os::unix::net::UnixStream>;
            let acts: [Act; 3] = [
                |_| None,
                |far| {
                    far.shutdown(std::net::Shutdown::Write).unwrap();
                    Some(far)
                },
                |mut far| {
                    far.write_all(b"GET").unwrap();
                    Some(far)
                },
            ];
            for act in acts {
                let (near, mut far) = pair();
                let (mut watched, hangup) = Watched::new(near);
                far.write_all(b"request").unwrap();
                let mut request = [0; 7];
                tokio::io::AsyncReadExt::read_exact(&mut watched, &mut request).await.unwrap();
                // What was readable is read: the client waits.
                let mut waiting = std::pin::pin!(hangup.wait());
                tokio::select! {
                    biased;
                    () = waiting.as_mut() => panic!("it has not hung up"),
                    () = std::future::ready(()) => {}
                }
                let far = act(far);
                waiting.await;
                drop(far);
            }
        });
    }

    #[test]
    fn writing_fails_when_the_client_reads_nothing_for_a_time() {
        run(async {
            let (near, mut far) = pair();
            let (watched, hangup) = Watched::new(near);
            let mut patient = Patient { stream: watched, patience: Duration::from_millis(1), stalled: None };
            let mut written = 0;
            let stalled = loop {
                match patient.write(&[0; 4096]).await {
                    Ok(count) => written += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
            drop((patient, hangup));
            assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), written);
        });
    }

    #[test]
    fn connections_beyond_the_regular_ones_are_refused_with_the_reason() {
        let of = |all, of_each, reserved| Limits { all, of_each, reserved };
        let words = Words { client: "user", all: "all users", advice: "end some" };
        let room = Room::new((of(3, 2, 1), of(1, 1, 1)), 0, words);
        let take = |uid: u32| room.take(uid);
        let refusal = |place: &Place<u32>| place.refusal.as_ref().map(|refusal| refusal.message.clone());
        let regular = [1, 1, 2].map(|uid| take(uid).unwrap());
        assert!(regular.iter().all(|place| place.refusal.is_none()));
        let excess = take(1).unwrap();
        assert_eq!(excess.refusal.as_ref().unwrap().code, Code::TooManyConnections);
        assert_eq!(refusal(&excess).unwrap(), "user 1 has 2 connections already: end some");
        assert_eq!(take(2).unwrap_err().code, Code::TooManyConnections);
        let root = [0, 0].map(|uid| take(uid).unwrap());
        assert_eq!(root.each_ref().map(|place| place.refusal.is_some()), [false, true]);
        drop((regular, excess));
        assert!(take(2).unwrap().refusal.is_none());
    }

    #[test]
    fn a_client_that_leaves_keeps_its_place_until_its_request_is_done() {
        run(async {
            let (near, mut far) = pair();
            far.write_all(b"POST / HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
            let (finish, finished) = tokio::sync::watch::channel(());
            let work = move || {
                let (begun, mut finished) = (begun.clone(), finished.clone());
                async move {
                    begun.send(()).await.unwrap();
                    finished.changed().await.unwrap();
                }
            };
            let place = Arc::new(());
            let served = serve_connection(
                near,
                Router::new().fallback(work),
                (Duration::from_mins(1), Arc::clone(&place)),
                std::future::pending(),
            );
            let served = tokio::spawn(served);
            has_begun.recv().await.unwrap();
            drop(far);
            served.abort();
            assert!(served.await.is_err());
            assert_eq!(Arc::strong_count(&place), 2);
            finish.send(()).unwrap();
            while Arc::strong_count(&place) == 2 {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn a_connection_has_one_request() {
        run(async {
            let (near, mut far) = pair();
            far.write_all(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2).as_slice()).unwrap();
            let served = serve_connection(
                near,
                Router::new().fallback(|| async {}),
                (Duration::from_mins(1), Arc::new(())),
                std::future::pending(),
            );
            served.await;
            let mut answers = String::new();
            // The second request, which nobody has read, resets the connection.
            let _ = far.read_to_string(&mut answers);
            assert_eq!(answers.matches("HTTP/1.1 200").count(), 1, "{answers}");
        });
    }

    #[test]
    fn a_connection_without_a_place_is_answered_before_it_asks() {
        run(async {
            let (near, mut far) = pair();
            far.write_all(b"GET /v1/sessions HTTP/1.1\r\n").unwrap();
            refuse_at_once(&near, &ControlError::from(Code::TooManyConnections));
            drop(near);
            let mut answer = String::new();
            far.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
            let refused: ControlError = serde_json::from_str(body).unwrap();
            assert_eq!(refused.code, Code::TooManyConnections);
        });
    }
}
