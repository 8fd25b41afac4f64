//! HTTP clients that a store can neither lead elsewhere nor fill the memory of, and whose failures have the
//! status of the answer as a typed error: the crate has it in texts only.

use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest,
    HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::redirect::{Action, Attempt, Policy};
use url::Url;

/// The most bytes of an answer to a request that names no range. The largest is a page of a list: 5000 names
/// of 1024 bytes (Azure, "List Blobs") with as much about each; WebDAV has all names in one answer.
pub(super) const LONGEST_ANSWER: u64 = 32 << 20;
/// Bytes that are read of an answer with an error; the rest is left out.
const LONGEST_REASON: usize = 64 << 10;
/// Redirects within the host that a request follows.
const MOST_REDIRECTS: usize = 4;
/// What the crate gives to requests to the metadata service of a machine, in its notation.
const CONNECT_METADATA: &str = "1s";

/// A store is overloaded or down: it answered with 429 or 5xx.
#[derive(Debug, thiserror::Error)]
#[error("the store answered with status {0}")]
pub(super) struct Unavailable(pub(super) u16);

/// A store refers to another host, or to others of its addresses again and again.
#[derive(Debug, thiserror::Error)]
#[error("the store answered with status {status}{}; no request follows to another host: set {}",
    refers(.location.as_deref(), .region.as_deref()), wanted(.region.is_some()))]
pub(super) struct Redirected {
    status: u16,
    /// Scheme, host and port.
    location: Option<String>,
    /// The region that the bucket is in (S3 API, "HeadBucket", `x-amz-bucket-region`).
    region: Option<String>,
}

fn refers(location: Option<&str>, region: Option<&str>) -> String {
    let location = location.map(|location| format!(" and refers to {location}")).unwrap_or_default();
    location + &region.map(|region| format!("; the bucket is in region {region}")).unwrap_or_default()
}

fn wanted(has_region: bool) -> &'static str {
    if has_region { "this region" } else { "the right endpoint or region" }
}

/// An answer has more bytes than it may have.
#[derive(Debug, thiserror::Error)]
#[error("the store's answer is longer than {0} bytes")]
pub(super) struct TooLong(pub(super) u64);

/// Makes such clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connector {
    /// How long a connection may take to be made.
    pub(super) connect: Duration,
    /// How long a request may take, with its answer.
    pub(super) timeout: Duration,
}

#[derive(Debug)]
struct Client(HttpClient);

/// Follows redirects to the same scheme, host and port: other ones would get the credentials.
fn same_origin(attempt: Attempt<'_>) -> Action {
    let is_same = attempt.previous().last().is_some_and(|last| last.origin() == attempt.url().origin());
    if is_same && attempt.previous().len() <= MOST_REDIRECTS { attempt.follow() } else { attempt.stop() }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // Somebody else in this process may have been faster, with whichever provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let value = |key| options.get_config_value(&key);
        let is_metadata = value(ClientConfigKey::ConnectTimeout).as_deref() == Some(CONNECT_METADATA);
        let connect = if is_metadata { Duration::from_secs(1) } else { self.connect };
        let allow_http = value(ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let builder = reqwest::Client::builder()
            .user_agent("tracer-agent")
            .timeout(self.timeout)
            .connect_timeout(connect)
            .redirect(Policy::custom(same_origin))
            .referer(false)
            .https_only(!allow_http)
            .http1_only();
        // What is unpacked has another length than the store says.
        let builder = builder.no_gzip().no_brotli().no_zstd().no_deflate();
        let failed = |error| object_store::Error::Generic { store: "HTTP client", source: Box::new(error) };
        Ok(HttpClient::new(Client(HttpClient::new(builder.build().map_err(failed)?))))
    }
}

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let range = request.headers().get("range").and_then(|range| range_len(range.to_str().ok()?));
        let url = request.uri().to_string();
        let response = self.0.execute(request).await?;
        let status = response.status();
        if status.is_server_error() || status.as_u16() == 429 {
            return Err(HttpError::new(HttpErrorKind::Request, Unavailable(status.as_u16())));
        }
        if matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(HttpError::new(HttpErrorKind::Unknown, Redirected::new(&url, &response)));
        }
        let (parts, body) = response.into_parts();
        let body = if status.is_success() {
            limited(body, range.unwrap_or(LONGEST_ANSWER))
        } else {
            reason(body).await?
        };
        Ok(HttpResponse::from_parts(parts, body))
    }
}

impl Redirected {
    fn new(url: &str, response: &HttpResponse) -> Self {
        let header = |name: &str| response.headers().get(name)?.to_str().ok();
        let location = header("location").and_then(|to| Url::parse(url).ok()?.join(to).ok());
        let is_region = |text: &&str| {
            text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        Self {
            status: response.status().as_u16(),
            location: location.map(|to| to.origin().ascii_serialization()),
            region: header("x-amz-bucket-region").filter(is_region).map(str::to_owned),
        }
    }
}

/// Bytes of a range as requests name it: `bytes=FIRST-LAST`.
fn range_len(range: &str) -> Option<u64> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some(last.parse::<u64>().ok()?.saturating_sub(first.parse().ok()?).saturating_add(1))
}

/// A body that fails at the first byte behind the `most`th.
fn limited(body: HttpResponseBody, most: u64) -> HttpResponseBody {
    let failed = move |error: Box<dyn std::error::Error + Send + Sync>| match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::new(HttpErrorKind::Unknown, TooLong(most)),
    };
    HttpResponseBody::new(Limited::new(body, usize::try_from(most).unwrap_or(usize::MAX)).map_err(failed))
}

/// The beginning of an answer with an error, as text.
async fn reason(mut body: HttpResponseBody) -> Result<HttpResponseBody, HttpError> {
    let mut text = Vec::new();
    while text.len() < LONGEST_REASON
        && let Some(frame) = body.frame().await
    {
        if let Ok(bytes) = frame?.into_data() {
            text.extend_from_slice(&bytes[..bytes.len().min(LONGEST_REASON - text.len())]);
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned().into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::failure::{Cause, StoreError};
    use super::super::hostile::{Server, VERSION, send};
    use super::super::place::block_on;
    use super::*;

    fn look(server: &Server) -> Result<Option<u64>, StoreError> {
        let place = server.place("a.dat");
        let found = block_on(place.look(place.path())).unwrap()?;
        Ok(found.map(|object| object.meta.size))
    }

    #[test]
    fn another_host_gets_no_request() {
        for status in [301, 302, 303, 307, 308] {
            let other = Server::start(|_, stream| send(stream, "200 OK\r\ncontent-length: 0", b""));
            let to = other.address;
            let server = Server::start(move |request, stream| {
                assert!(request.contains("x-amz-security-token: HERRING"), "{request}");
                let head = format!(
                    "{status} Moved\r\nlocation: http://{to}/a?X=1\r\nx-amz-bucket-region: eu-west-9\r\n\
                     content-length: 0"
                );
                send(stream, &head, b"");
            });
            let error = look(&server).unwrap_err();
            assert_eq!(
                (error.cause(), server.requests(), other.requests()),
                (Cause::Refused, 1, 0),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.contains(&format!("http://{to};")) && text.contains("eu-west-9"), "{text}");
        }
    }

    #[test]
    fn the_same_host_may_refer_to_itself_a_few_times() {
        let server = Server::start(|request, stream| {
            if request.starts_with("HEAD /moved ") {
                send(stream, &format!("200 OK\r\n{VERSION}\r\ncontent-length: 9"), b"");
            } else {
                send(stream, "307 Moved\r\nlocation: /moved\r\ncontent-length: 0", b"");
            }
        });
        assert_eq!((look(&server).unwrap(), server.requests()), (Some(9), 2));
        let server =
            Server::start(|_, stream| send(stream, "307 Moved\r\nlocation: /\r\ncontent-length: 0", b""));
        assert_eq!(look(&server).unwrap_err().cause(), Cause::Refused);
        assert_eq!(server.requests(), MOST_REDIRECTS + 1);
    }

    #[test]
    fn a_reason_without_end_is_cut() {
        let server = Server::start(|_, stream| {
            send(stream, "403 Forbidden", b"");
            while stream.write_all("\u{9b}2J \u{1b}[2J ".repeat(1000).as_bytes()).is_ok() {}
        });
        let place = server.place("a.dat");
        let error =
            block_on(place.store.put_opts(place.path(), "x".into(), object_store::PutOptions::default()))
                .unwrap()
                .unwrap_err();
        let error = StoreError::remote("upload", &place.filter)(error);
        assert_eq!((error.cause(), server.requests()), (Cause::Refused, 1), "{error}");
        assert!(!error.to_string().contains(char::is_control));
    }

    #[test]
    fn no_more_than_the_range_is_taken() {
        for extra in [0, 1] {
            let server = Server::start(move |_, stream| {
                let head = format!(
                    "206 Partial\r\n{VERSION}\r\ncontent-range: bytes 2-5/100\r\ncontent-length: {}",
                    4 + extra
                );
                send(stream, &head, &vec![7; 4 + extra]);
            });
            let place = server.place("a.dat");
            let got = block_on(async {
                let range = Some(object_store::GetRange::Bounded(2..6));
                let options = object_store::GetOptions { range, ..Default::default() };
                place.store.get_opts(place.path(), options).await?.bytes().await
            });
            let got = got.unwrap().map_err(StoreError::remote("get", &place.filter));
            match extra {
                0 => assert_eq!(got.unwrap().as_ref(), [7; 4]),
                _ => assert!(matches!(got, Err(StoreError::Limit { .. })), "{got:?}"),
            }
        }
        assert_eq!(range_len("bytes=0-0"), Some(1));
        assert_eq!([range_len("bytes=-5"), range_len("bytes=5-"), range_len("x")], [None; 3]);
        assert_eq!(range_len(&format!("bytes=0-{}", u64::MAX)), Some(u64::MAX));
    }
}
