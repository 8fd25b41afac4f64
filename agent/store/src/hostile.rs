//! A server for tests that answers as it likes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::place::{Access, Place, Retries};

/// Lines of a head that each object has.
pub(super) const VERSION: &str = "etag: x\r\nlast-modified: Mon, 02 Mar 2026 10:15:00 GMT";

/// Answers requests, each on a connection and a thread of its own, for as long as the process lives.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// A server that gives the head of each request, and the connection, to `answer`.
    pub(super) fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, requests) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer, counter) = (stream.unwrap(), Arc::clone(&answer), counter.clone());
                thread::spawn(move || {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        match stream.read(&mut byte) {
                            Ok(1) => head.push(byte[0]),
                            _ => return,
                        }
                    }
                    counter.fetch_add(1, Ordering::SeqCst);
                    let head = String::from_utf8(head).unwrap();
                    let mut lines = head.lines();
                    let len = lines.find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    let _ = io::copy(&mut (&mut stream).take(len.unwrap_or(0)), &mut io::sink());
                    answer(&head, &mut stream);
                });
            }
        });
        Self { address, requests }
    }

    /// How many requests came.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// A place in a bucket of this server, with credentials of a session. Requests are not tried again.
    pub(super) fn place(&self, prefix: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        std::fs::write(&file, "AWS_ACCESS_KEY_ID=a\nAWS_SECRET_ACCESS_KEY=b\nAWS_SESSION_TOKEN=HERRING\n")
            .unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let access = Access {
            endpoint: Some(format!("http://{}", self.address)),
            region: Some("us-east-1".into()),
            allow_http: true,
            credentials_file: Some(file),
            timeout: Duration::from_secs(30),
        };
        Place::open(&format!("s3://bucket/{prefix}"), &access, Retries::Caller).unwrap()
    }
}

/// Sends an answer with these lines of a head.
pub(super) fn send(stream: &mut TcpStream, head: &str, body: &[u8]) {
    // Who has heard enough goes.
    let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes());
    let _ = stream.write_all(body);
}

/// Sends a page of a list.
pub(super) fn page(stream: &mut TcpStream, keys: &[&str], token: Option<&str>) {
    let object = |key: &&str| {
        format!(
            "<Contents><Key>{key}</Key><Size>7</Size>\
             <LastModified>2026-03-02T10:15:00Z</LastModified></Contents>"
        )
    };
    let token = token.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    let body: String = keys.iter().map(object).chain(token).collect();
    send(stream, "200 OK", format!("<ListBucketResult>{body}</ListBucketResult>").as_bytes());
}
